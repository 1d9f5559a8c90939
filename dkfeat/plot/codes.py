"""Picture of the entropy of the bits of codes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError
from dkfeat.plot.style import BLUE, GREY, axes_of
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap


def code_entropy(
    codes: ShardDataset | PackedCodes,
    *,
    features: FeatureMap | None = None,
    max_rows: int = 20_000,
    ax: Any = None,
) -> Any:
    """Draw the entropy of each bit of the codes: 1 if half of the rows have it, 0 if all rows agree.

    A bar is the mean over the components; its whisker reaches from their 5th to their 95th percentile.

    Parameters
    ----------
    codes : ShardDataset or PackedCodes
        A data set of the layout "codes", or the result of ``features.encode(X)``.
    features : GCWSFeatures, DartFeatures or None
        The map that packed codes come from.
    max_rows : int, default=20,000
        Maximum number of rows to draw from a data set.
    ax : matplotlib.axes.Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If the argument holds no codes, or matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np
    >>> import dkfeat.plot
    >>> gcws = dkfeat.GCWSFeatures(4, i_bits=2, random_state=0).fit(np.eye(2))
    >>> ax = dkfeat.plot.code_entropy(gcws.encode(np.eye(2)), features=gcws)
    >>> [float(bar.get_height()) for bar in ax.patches]
    [0.0, 1.0]
    """
    packed: Any = codes
    if not isinstance(codes, PackedCodes):
        if codes.spec["output"]["layout"] != "codes":
            raise ConfigError(
                f"these shards hold the layout {codes.spec['output']['layout']!r}, not codes; the maps gcws and dart "
                "make codes"
            )
        rows = codes.batches(check_integer(max_rows, "max_rows", low=1), random_state=0, decode=False)
        packed, features = next((batch for batch, *_ in islice(rows, 1)), None), codes.map
    if features is None or features.layout != "codes":
        raise ConfigError("packed codes need their map; pass as features= the map whose encode made them")
    params = features.to_spec()["params"]
    n_bits = (features.n_features_out // params["n_components"]).bit_length() - 1
    i_bits = params.get("i_bits", n_bits)
    values = np.empty(0, np.int64) if packed is None else features.decode(packed).indices & ((1 << n_bits) - 1)
    values = values.reshape(-1, params["n_components"])  # without rows that have no features
    if not len(values):
        raise ConfigError("no row has features, so there are no codes to draw; look at the source")
    places = np.arange(n_bits)
    shares = np.stack([((values >> place) & 1).mean(axis=0) for place in places])
    entropies = (entr(shares) + entr(1 - shares)) / np.log(2)
    mean = entropies.mean(axis=1)
    low, high = np.percentile(entropies, [5, 95], axis=1)
    axes = axes_of(ax)
    reach = np.maximum([mean - low, high - mean], 0)
    axes.bar(places, mean, color=BLUE, yerr=reach, ecolor=GREY, capsize=3, width=0.7)
    names = [f"{place}" if place < i_bits else f"t{place - i_bits}" for place in places]
    axes.set_xticks(places, names)
    counts = [np.bincount(column) for column in values.T]
    total = float(np.mean([entr(count / len(values)).sum() for count in counts])) / np.log(2)
    axes.set(xlabel="bit of a code, lowest first", ylabel="entropy (bits)", ylim=(0, 1.05))
    axes.set_title(f"{total:.2f} of {n_bits} bits a code, {len(values):,} rows")
    return axes
