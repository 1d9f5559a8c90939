"""Base class of encoders: fitted to drawn rows, kept in a spec with the file of knots beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkfeat.archives import archive_sha256
from dkfeat.compiled.random import STREAM_TABLE, choose_rows
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.maps._base import SpecEstimator
from dkfeat.validation import check_seed

N_DRAWN = 10_000
"""Number of rows to which a longer source is fitted."""


class Encoder(TransformerMixin, SpecEstimator):
    """Base of all encoders.

    A subclass is a dataclass, whose fields are the parameters. Besides `fit`, `transform` and `n_features_out` it has
    `_checked_params`, which returns the parameters of the spec; `_more_of_spec`, the entry of the spec that tells the
    columns; `_fitted_arrays`, those too large for the spec, which has the SHA-256 of their archive; and `_restore`,
    which fits to a spec and these arrays. The state of a fitted encoder is `_settings`, with ``params`` and ``seed``.
    """

    name: ClassVar[str]
    """Name of the encoder in specs."""
    version: ClassVar[int]
    """Version of the algorithm, increased when equal parameters and rows give other coordinates than before."""
    layout: ClassVar[Literal["sparse"]] = "sparse"
    takes_tables: ClassVar[bool]
    """True if it encodes the columns of a table; False if it encodes rows of numbers."""

    random_state: Any
    _settings: Any

    def _fit_drawn(self, n_rows: int, take: Callable[[NDArray[np.int64]], Any]) -> Self:
        """Fit to `n_rows` rows, of which `take` returns those with ascending numbers that the seed draws."""
        seed = check_seed(self.random_state)
        self.random_state = seed
        fitted: Self = self.fit(take(choose_rows(seed, n_rows, N_DRAWN, STREAM_TABLE)))
        return fitted

    def rows_for_map(self, X: Any, known: Collection[str] = (), odd: NDArray[np.int64] | None = None) -> Any:  # noqa: ARG002 - of tables
        """Encode rows in memory.

        For a table, `known` are columns of which there is no warning, and the numbers of odd values, which
        `ColumnTable.drift` takes, are added to `odd`.
        """
        return self.transform(X)

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values from which `from_spec` makes an equal encoder, with the array of knots.

        Returns
        -------
        spec : dict
            Keys: encoder, version, seed, params, knots (the SHA-256 of their archive), and one that tells the columns.
        """
        state = self._state()
        head = {"encoder": self.name, "version": self.version, "seed": state.seed}
        knots = archive_sha256(self._fitted_arrays())
        return {**head, "params": copy.deepcopy(state.params), **self._more_of_spec(), "knots": knots}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> Self:
        """Make a fitted encoder from the values of `to_spec` and `_fitted_arrays`."""
        if spec.get("encoder") != cls.name or spec.get("version") != cls.version:
            raise SpecConflictError(
                f"the spec is of version {spec.get('version')!r} of the encoder {spec.get('encoder')!r}, but this "
                f"dkfeat has version {cls.version} of {cls.name!r}; use the one that made it, or fit the encoder anew"
            )
        if arrays is None:
            raise ConfigError("the encoder's knots are not in its spec but in a file beside it; give them too")
        try:
            encoder = cls(**spec["params"])
            encoder.random_state = spec["seed"]
            encoder._restore(spec, arrays)
        except (KeyError, TypeError, IndexError, ShardError) as error:
            raise ConfigError(f"the spec of the encoder is incomplete: {error}; was it edited?") from error
        if encoder.to_spec() != dict(spec):
            raise SpecConflictError("the spec of the encoder or its knots do not read back; was it edited?")
        return encoder

    def _state(self) -> Any:
        if not self.__sklearn_is_fitted__():  # asked first, because scikit-learn takes 20 times as long
            check_is_fitted(self)
        return self._settings
