"""Random Maclaurin features of dot-product kernels.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import normalize

from dkfeat.compiled.random import STREAM_MACLAURIN_INNER, STREAM_MACLAURIN_SAMPLE, draw_words, signs_of_samples
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import NamedKernel, named_kernel
from dkfeat.kernels._rows import inner_products, paired_rows, row_numbers
from dkfeat.maps._base import N_COMPONENTS, FeatureMap, Fitted, check_flag
from dkfeat.maps._kernel_estimates import EstimatedKernel, parameters_shown
from dkfeat.maps._rows import RowsFrom, check_lengths, rows_and_multipliers
from dkfeat.maps._sampled import WeightedMap
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.laplace import LaplaceFeatures
from dkfeat.maps.maclaurin.series import MAX_DEGREE, DegreeLaw, Draws, Series, degree_weights, draw_degrees, series_of
from dkfeat.maps.maclaurin.sign_products import multiply_rows, table_bytes
from dkfeat.validation import check_choice, check_integer, check_real

_WIDEST_LINEAR = 2**24
"""Maximum number of input columns that h01 appends."""


def _set_later(value: Any, name: str) -> None:
    """Leave a value to `MaclaurinFeatures._resolve`."""


def _real_or_none(value: Any, name: str) -> float | None:
    return None if value is None else check_real(value, name, above=0, high=1e12)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedMaclaurin(Fitted):
    """State of a fitted map."""

    law: DegreeLaw
    longest: float | None
    """Largest allowed l2 norm of a scaled row; None if there is no limit."""
    constant: float
    """Value of the column of degree 0 with h01; 0 without such a column."""
    linear: float
    """Multiplier of the columns of degree 1 with h01; 0 without such columns."""
    n_linear: int
    inner: FeatureMap | None
    truncation_error: float
    """Upper bound on the sum of the omitted degrees."""

    @property
    def draws(self) -> Draws:
        """Degrees and weights of the components."""
        return draw_degrees(self.law)

    @property
    def n_exact(self) -> int:
        """Number of columns of the exact degrees."""
        return (self.constant > 0) + self.n_linear


@dataclass(eq=False, repr=False)
class MaclaurinFeatures(FeatureMap):
    r"""Dense features whose inner products estimate a kernel of the inner product, such as a polynomial one.

    Each component draws a degree n of the kernel's power series and multiplies n sums of the row's values with random
    signs. Use it for polynomial kernels; for Gaussian kernels `FourierFeatures` has a lower variance. With `inner`, the
    kernel is composed with the kernel of another map. The time of a row is proportional to its nonzeros times the
    number of factors drawn, `degrees_.sum()`; signs are packed bits, and the number of columns is unbounded.

    Parameters
    ----------
    n_components : int, default=1024
        Number of features (D in the paper), from 1 to 2^24. The width of the output, unless `h01` adds columns.
    kernel : str, default="polynomial"
        Function of the inner product t of two scaled rows. "polynomial", :math:`(t + c)^r`, homogeneous for
        ``coef0=0``; "vovk_real", :math:`1 + t + \dots + t^{r - 1}`; "vovk_infinite", :math:`(1 - t)^{-\alpha}`;
        "exponential", :math:`e^{\gamma t}`; "maclaurin", :math:`\sum_n a_n t^n` with `coefficients`.
    degree : int, default=3
        Degree r of the kernels "polynomial" and "vovk_real", from 1 to 10,000.
    coef0 : float, default=1.0
        Constant term c of the kernel "polynomial", from 0 to 1e12.
    gamma : float, default=1.0
        Rate of the kernel "exponential", above 0 and at most 1e12, in 1 / (unit of scaled rows)^2.
    alpha : float, default=1.0
        Exponent of the kernel "vovk_infinite", above 0 and at most 1,000.
    coefficients : sequence of float, callable or None, default=None
        Coefficients of the kernel "maclaurin" from degree 0, each at least 0. Or a function that returns :math:`a_n`
        for n, which is called in fit, for as many degrees as `tolerance` requires; the spec stores the values.
    measure : {"kernel", "proper"}, default="kernel"
        Measure that degrees are drawn from. "kernel": :math:`P_n \propto a_n R^{2n}`, which draws only degrees with a
        term and suits rows about as long as R. "proper": :math:`(p - 1) p^{-(n + 1)}`, which does not depend on the
        kernel and may have a lower variance for rows shorter than half of R. With few components of a high degree,
        models may be more accurate with "proper", even if the variance is higher. See Notes.
    p : float, default=2.0
        Base of the measure "proper", above 1 and at most 1e6. The paper uses 2.
    normalize : {"l1", "l2"} or None, default=None
        Norm by which each row is divided first.
    scale : float, default=1.0
        Factor s of rows, above 0 and at most 1e12. The kernel has :math:`t = s^2 \langle x, y \rangle`, or with
        `inner` :math:`t = s^2 K(x, y)`.
    radius : float or None, default=None
        Largest l2 norm R of a scaled row, above 0 and at most 1e12. A longer row is an error that names the row.
        None means `scale` if rows are normalised or with `inner`; else 1, and longer rows are errors only if the
        series is infinite.
    tolerance : float, default=1e-6
        Largest share of an infinite series that omitted degrees may have, from 1e-15 to 0.5. It is a share of
        :math:`f(R^2)` (§4.2).
    h01 : bool, default=False
        Make the constant and the linear term exact (H0/1 in the paper, §6.1). Features are then a column of
        :math:`\sqrt{a_0}`, n_features columns of :math:`\sqrt{a_1} x`, and random features for higher degrees. For at
        most 2^24 columns; columns of a zero coefficient are omitted.
    inner : FourierFeatures, LaplaceFeatures, GCWSFeatures, DartFeatures, mapping or None, default=None
        Map, one of gcws, dart, fourier and laplace, whose kernel K replaces the inner product: f(s^2 K(x, y)) (§5). Its
        features must be unbiased: FourierFeatures with ``normalize=False`` and any projection except "orthogonal". For
        GCWSFeatures and DartFeatures a factor is a random sign of the full sample, and the bits of codes are not used.
        n_components and random_state of the map are not used either. In a spec, the map is a mapping ``{"map": name,
        "params": {...}}``, which is also accepted here.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Root of all random numbers: the same value gives the same features on any number of workers. None draws 64 bits
        in fit and keeps them in `seed_`.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features,), object
        Names of the input columns, if `fit` was called with a data frame.
    seed_ : int
        Seed in use, in [0, 2^64).
    degrees_ : ndarray of shape (n_components,), int64
        Number of factors of each random feature, in descending order; also 0 if the drawn degree has no term, which
        makes the feature 0.
    max_degree_ : int
        Largest degree of the series: `degree`, or the degree at which an infinite series was truncated.
    truncation_error_ : float
        Upper bound on the sum of omitted degrees for rows of length R, 0 for a finite series. For coefficients from a
        function it is an estimate, the sum of the later half of the degrees kept.
    n_features_out : int
        Number of columns of `transform`.
    encoded_row_bytes : int
        Size of a row in a shard, 4 * n_features_out bytes.

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range, the series does not converge at R, or `inner` is biased.
    dkfeat.errors.InputError
        A value is NaN, infinite or beyond 1e25 (the error has ``row`` and ``column``, from 0), a row is longer than R
        or its features overflow float32 (``row``), or the width is wrong.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.kernels.polynomial, dkfeat.kernels.vovk_real, dkfeat.kernels.vovk_infinite : Exact kernels.
    sklearn.kernel_approximation.PolynomialCountSketch : Another estimate of polynomial kernels, by hashing.

    Notes
    -----
    A component draws a degree N with probability :math:`P_N` and N vectors w of independent signs, and is
    :math:`\sqrt{a_N / (D P_N)} \prod_{j \le N} w_j^\top x` (Alg. 1): products of features are unbiased, and over D
    components have the variance :math:`(\sum_n a_n^2 M^n / P_n - f(t)^2) / D` with
    :math:`M = \|x\|^2 \|y\|^2 + 2 t^2 - 2 \sum_l x_l^2 y_l^2`. Each component's estimate is at most
    :math:`f(R_1^2)` for "kernel" and :math:`\frac p{p - 1} f(p R_1^2)` for "proper", :math:`R_1` the largest **l1**
    norm of a row, with R = :math:`R_1` for "kernel": Hoeffding's inequality then bounds the error (§4). For f to
    converge it is enough that rows have l2 norms of at most R.

    Of all measures "kernel" has the smallest variance for pairs with :math:`M = R^4`, and the smallest worst case over
    pairs with :math:`M \le R^4`; its first sum is f(R^2) f(M / R^2). No measure is the best for rows of all lengths,
    because the best one depends on M: :math:`P_n \propto a_n M^{n / 2}`, with the sum :math:`f(\sqrt M)^2`. M is
    :math:`\|x\|^2 \|y\|^2` for rows without common columns and up to three times that for equal rows, so R should be
    between the l2 norm of the rows and 1.3 times that norm. For homogeneous kernels R has no effect.

    Departures from the paper:

    * The paper's :math:`p^{-(n + 1)}` is a probability measure for p = 2 only; "proper" is one for every p > 1, and is
      equal to the paper's for p = 2.
    * "kernel" is the default: geometric measures waste every draw of a degree without a term, 15 of 16
      for homogeneous cubes, and draw high degrees too rarely.
    * Signs are functions of (seed, column, factor), 128 from one call of Philox, so no table of n_features by factors
      is needed.

    The arithmetic is float32, in one fixed order: dense and sparse rows, and blocks of any size, give equal bits. With
    `inner`, features are as reproducible as those of the inner map.

    References
    ----------
    .. [1] "Random Feature Maps for Dot Product Kernels", P. Kar, H. Karnick, AISTATS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.6, 0.8], [0.8, 0.6]])
    >>> Z = MaclaurinFeatures(n_components=16384, degree=2, random_state=0).fit_transform(X)
    >>> bool(abs(Z[0] @ Z[1] - (0.96 + 1) ** 2) < 0.15)
    True
    """

    name = "maclaurin"
    version = 1
    layout = "dense"
    _checks: ClassVar = {
        "n_components": N_COMPONENTS,
        "kernel": partial(
            check_choice, choices=("polynomial", "vovk_real", "vovk_infinite", "exponential", "maclaurin")
        ),
        "degree": partial(check_integer, low=1, high=MAX_DEGREE),
        "coef0": partial(check_real, low=0, high=1e12),
        "gamma": partial(check_real, above=0, high=1e12),
        "alpha": partial(check_real, above=0, high=1000),
        "coefficients": _set_later,
        "measure": partial(check_choice, choices=("kernel", "proper")),
        "p": partial(check_real, above=1, high=1e6),
        "normalize": partial(check_choice, choices=(None, "l1", "l2")),
        "scale": partial(check_real, above=0, high=1e12),
        "radius": _real_or_none,
        "tolerance": partial(check_real, low=1e-15, high=0.5),
        "h01": partial(check_flag, yes="degrees 0 and 1 exact", no="all degrees drawn"),
        "inner": _set_later,
    }

    n_components: int = 1024
    _: KW_ONLY
    kernel: Literal["polynomial", "vovk_real", "vovk_infinite", "exponential", "maclaurin"] = "polynomial"
    degree: int = 3
    coef0: float = 1.0
    gamma: float = 1.0
    alpha: float = 1.0
    coefficients: Sequence[float] | Callable[[int], float] | None = None
    measure: Literal["kernel", "proper"] = "kernel"
    p: float = 2.0
    normalize: Literal["l1", "l2"] | None = None
    scale: float = 1.0
    radius: float | None = None
    tolerance: float = 1e-6
    h01: bool = False
    inner: FeatureMap | Mapping[str, Any] | None = None
    random_state: Any = None

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: n_components, and with h01 those of the exact terms."""
        return self._fitted.n_exact + self._fitted.law.n_components

    @property
    def degrees_(self) -> NDArray[np.int64]:
        """Number of factors of each random feature, in descending order."""
        return self._fitted.draws.degrees.copy()

    @property
    def _working_bytes(self) -> int:
        """Memory of a call besides rows and features, in bytes: tables of signs, or one factor of each component."""
        s = self._fitted
        if s.inner is not None:
            factor_map = _factor_map(s.inner, self.n_features_in_, s.law.n_components, 0)
            return _FACTORS_BYTES + factor_map._working_bytes
        return table_bytes(self.n_features_in_, s.draws)

    @property
    def max_degree_(self) -> int:
        """Highest degree of the series."""
        return len(self._fitted.law.terms) - 1

    @property
    def truncation_error_(self) -> float:
        """Upper bound on the sum of the omitted degrees."""
        error: float = self._fitted.truncation_error
        return error

    def _check_params(self) -> None:
        """See `FeatureMap._check_params`."""
        if self.inner is None:  # parameters of an inner map may be valid for one width only
            super()._check_params()

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> FittedMaclaurin:
        coefficients, kernel = self.coefficients, params["kernel"]
        if (coefficients is None) == (kernel == "maclaurin"):
            raise ConfigError(
                "kernel='maclaurin' needs coefficients; set them to a list a_0, a_1, ... or a function of n"
                if kernel == "maclaurin"
                else f"coefficients are given, but kernel={kernel!r} has its own; set kernel='maclaurin'"
            )
        inner = None
        if self.inner is not None:
            inner, params["inner"] = checked_inner(self.inner, n_features)
            _check_with_inner(params)
        radius = _radius(params)
        series = series_of(params, coefficients, radius * radius)
        if kernel == "maclaurin":
            params["coefficients"] = list(series.coefficients or ())
        is_infinite = kernel in ("vovk_infinite", "exponential") or callable(coefficients)
        longest = radius if is_infinite or params["radius"] is not None else None
        if callable(coefficients) and inner is None:
            params["radius"] = radius  # the spec's list of coefficients is truncated for this radius
        exact = np.zeros(2)
        if params["h01"]:
            _check_exact_terms(series, n_features)
            exact = np.sqrt(series.terms[:2])
        weights = degree_weights(series.terms, params["measure"], params["p"], 2 if params["h01"] else 0)
        unscaled_radius = radius / params["scale"]  # of rows before they are scaled
        law = DegreeLaw(
            weights=tuple(weights.tolist()),
            terms=tuple(series.terms.tolist()),
            radius=unscaled_radius,
            n_components=params["n_components"],
            seed=seed,
        )
        draw_degrees(law)  # raises for too many factors
        return FittedMaclaurin(
            params=params,
            seed=seed,
            law=law,
            longest=longest if params["normalize"] is None and inner is None else None,
            constant=float(exact[0]),
            linear=float(exact[1]) / unscaled_radius,
            n_linear=n_features if exact[1] > 0 else 0,
            inner=inner,
            truncation_error=series.omitted,
        )

    def _estimated_kernel(self) -> EstimatedKernel:
        s = self._fitted
        name = _NAMES.get(s.params["kernel"], s.params["kernel"])
        kernel = named_kernel(name, {key: s.params[key] for key in named_kernel(name).params})
        inner = None if s.inner is None else _kernel_of_factor(s.inner, self.n_features_in_)
        series = _SeriesKernel(kernel=kernel, settings=s, inner=inner)
        low, high = series.of_products(np.array([0.0, series.square])).tolist()
        shown = parameters_shown(kernel)
        return EstimatedKernel(
            name=shown if inner is None else f"{shown}, of {inner.name}",
            exact=lambda X, Y: series.of_products(series.products(X, Y)),
            variance_at=series.variance_at,
            variance=series.variance,
            bound="at most",
            note="for rows as long as the radius" if inner is None else "",
            low=low,
            high=high,
        )

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        rows = super()._as_rows(X, reset=reset)
        if reset and self.inner is not None:
            checked_inner(self.inner, rows.shape[1])[0].fit(rows)  # checks that rows are in the inner kernel's domain
        return rows

    def _transform_rows(self, X: Any) -> NDArray[np.float32]:
        s = self._fitted
        if s.inner is not None:
            return multiply_inner(X, s.inner, s.draws, s.law.seed)
        rows: Any
        rows, multipliers = rows_and_multipliers(X, s.params["normalize"])
        if s.longest is not None:
            check_lengths(rows, s.params["scale"], s.longest)
        features = np.empty((X.shape[0], self.n_features_out), np.float32)
        if s.constant > 0:
            features[:, 0] = s.constant
        if s.n_linear:
            factors = multipliers * np.float32(s.linear)
            linear = features[:, s.n_exact - s.n_linear : s.n_exact]
            if sp.issparse(rows):
                linear[:] = 0
                row_of = row_numbers(rows)
                linear[row_of, rows.indices] = rows.data * factors[row_of]
            else:
                np.multiply(rows, factors[:, None], out=linear)
        overflowed = multiply_rows(rows, multipliers, s.draws, s.law.seed, features, s.n_exact)
        if overflowed.any():
            row = int(overflowed.argmax())
            raise InputError(
                f"a feature of row {row:,} (counted from 0) overflows float32: the row's values are too large for "
                f"products of {int(s.draws.degrees[0])} sums of them; set normalize='l2', or a smaller scale",
                row=row,
            )
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if isinstance(self.inner, FeatureMap):
            tags.input_tags.positive_only = self.inner.__sklearn_tags__().input_tags.positive_only
        return tags


Values = NDArray[np.float64]
_NAMES = {"exponential": "exponential_dot_product"}


def _check_with_inner(params: dict[str, Any]) -> None:
    for name, default, reason in (
        ("normalize", None, "the inner map prepares its rows itself"),
        ("radius", None, "the kernel of the inner map is at most 1, and scale alone sets the radius"),
        ("h01", False, "the linear term is the inner kernel, which is itself an estimate"),
    ):
        if params[name] != default:
            raise ConfigError(f"{name}={params[name]!r} with inner, but {reason}; leave {name}={default!r}")


def _radius(params: dict[str, Any]) -> float:
    """Return R: the largest l2 norm of a scaled row, or the root of the largest value of a scaled inner kernel."""
    bounded = params["normalize"] is not None or params["inner"] is not None
    radius: float | None = params["radius"]
    if radius is None:
        return params["scale"] if bounded else 1.0
    if bounded and radius < params["scale"]:
        raise ConfigError(
            f"radius={radius:g}, but rows that are normalised and multiplied by scale are as long as "
            f"scale={params['scale']:g}; set radius to that or leave it None"
        )
    return radius


def _check_exact_terms(series: Series, n_features: int) -> None:
    if len(series.terms) <= 2:
        raise ConfigError(
            "h01=True leaves nothing to draw: the kernel has no degree above 1; take the rows themselves as features"
        )
    if series.terms[1] > 0 and n_features > _WIDEST_LINEAR:
        raise ConfigError(
            f"h01=True appends all of the {n_features:,} columns to dense features, but at most {_WIDEST_LINEAR:,} are "
            "appended; set h01=False"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeriesKernel:
    """Kernel f(s^2 t) of inner products t, or of values t of an inner kernel; one factor estimates t without bias."""

    kernel: NamedKernel
    settings: FittedMaclaurin
    inner: EstimatedKernel | None

    @property
    def square(self) -> float:
        """Largest t of rows whose norm is the radius."""
        return self.settings.law.radius**2

    def of_products(self, products: Values) -> Values:
        """Compute the kernel of values t, as rows of one column."""
        flat = self.kernel((self.settings.params["scale"] ** 2 * products).reshape(-1, 1), np.ones((1, 1)))
        return flat.reshape(products.shape)

    def products(self, X: Any, Y: Any) -> Values:
        """Compute t of all pairs of rows."""
        return self.inner.exact(X, Y) if self.inner is not None else inner_products(*self._paired(X, Y))

    def variance(self, X: Any, Y: Any, exact: Values) -> Values:  # noqa: ARG002 - t is needed, not the kernel
        """Compute the variance of each pair's estimate."""
        products = self.products(X, Y)
        if self.inner is not None:
            variances = self.inner.variances(X, Y, products)
            assert variances is not None, "the variance of a single factor is known"
            return self._variance(products, products**2 + variances)
        x, y = (rows**2 if isinstance(rows, np.ndarray) else rows.power(2) for rows in self._paired(X, Y))
        lengths = np.outer(np.asarray(x.sum(axis=1)), np.asarray(y.sum(axis=1)))
        return self._variance(products, lengths + 2 * products**2 - 2 * inner_products(x, y))

    def variance_at(self, values: Values) -> Values:
        """Compute the largest variance of pairs of rows whose norm is the radius, from the kernel's value."""
        products = self._inverse(values)
        if self.inner is not None:
            variances = self.inner.variance_at
            assert variances is not None, "the variance of a single factor is known"
            return self._variance(products, products**2 + variances(products))
        # omits the term of common columns, which reduces the second moment
        return self._variance(products, self.square**2 + 2 * products**2)

    def _variance(self, products: Values, moments: Values) -> Values:
        """Compute the variance from t and from the second moment M of one factor's estimate of t."""
        law = self.settings.law
        terms, weights = np.array(law.terms), np.array(law.weights)
        drawn = weights > 0
        squares = np.divide(terms**2, weights, out=np.zeros_like(terms), where=drawn)
        with np.errstate(over="ignore", invalid="ignore"):  # may overflow for rows longer than the radius
            second = polyval(moments / self.square**2, squares)
            mean = polyval(products / self.square, np.where(drawn, terms, 0.0))
            return np.maximum(second - mean**2, 0.0) / law.n_components

    def _inverse(self, values: Values) -> Values:
        """Invert f on [0, R^2], where it increases, by bisection; values out of range give the ends."""
        below, above = np.zeros_like(values), np.full_like(values, self.square)
        for _ in range(60):
            middle = (below + above) / 2
            is_low = self.of_products(middle) < values
            below, above = np.where(is_low, middle, below), np.where(is_low, above, middle)
        return above

    def _paired(self, X: Any, Y: Any) -> tuple[Any, Any]:
        norm = self.settings.params["normalize"]
        if norm is None:
            return paired_rows(X, Y)
        return paired_rows(normalize(X, norm), None if Y is None else normalize(Y, norm))


def _kernel_of_factor(inner: FeatureMap, n_features: int) -> EstimatedKernel:
    """Describe an inner map's kernel, and the variance of one factor: a component, or a random sign of a sample."""
    single = clone(inner).set_params(n_components=1, random_state=0)
    if isinstance(single, WeightedMap):
        # the product of two signs is 1 or -1
        return replace(
            single.fit_width(n_features)._estimated_kernel(), variance_at=lambda values: 1 - values**2, note=""
        )
    # correlations with other components do not matter for a single one
    return single.set_params(projection="dense").fit_width(n_features)._estimated_kernel()


_INNER = {cls.name: cls for cls in (FourierFeatures, LaplaceFeatures, GCWSFeatures, DartFeatures)}
_FACTORS = 2**20
"""Maximum number of factors from an inner map held in memory at a time."""
_FACTORS_BYTES = 24 * _FACTORS
"""Maximum memory of these factors, in bytes: 4 for each and for its copy, and 16 for a full sample."""


def checked_inner(inner: Any, n_features: int) -> tuple[FeatureMap, dict[str, Any]]:
    """Make an unfitted inner map from an estimator's parameter, check it, and describe it for the spec.

    Parameters
    ----------
    inner : FeatureMap or mapping
        A map, or ``{"map": its name, "params": its parameters}`` as in a spec.
    n_features : int
        Number of columns of the rows.

    Raises
    ------
    dkfeat.errors.ConfigError
        If single features of the map are biased, or one of its parameters is out of range.
    """
    if isinstance(inner, Mapping):
        if set(inner) != {"map", "params"} or inner["map"] not in _INNER or not isinstance(inner["params"], Mapping):
            raise ConfigError(
                f"inner={dict(inner)!r}, but a mapping must be {{'map': name, 'params': parameters}} with a name among "
                f"{', '.join(map(repr, _INNER))}"
            )
        cls = _INNER[inner["map"]]
        unknown = sorted(set(inner["params"]) - set(cls._get_param_names()))
        if unknown:
            raise ConfigError(f"inner has the unknown settings {unknown} of {cls.__name__}; leave them out")
        inner = cls(**inner["params"])
    if type(inner) not in _INNER.values():
        names = ", ".join(cls.__name__ for cls in _INNER.values())
        raise ConfigError(f"inner={inner!r}, but its factors must be unbiased features; give one of {names}")
    unfitted: FeatureMap = clone(inner).set_params(n_components=1, random_state=0)
    params = clone(unfitted).fit_width(n_features).to_spec()["params"]
    if isinstance(unfitted, FourierFeatures):
        for name, biased, kind, remedy in (
            ("normalize", True, "NRFF", "set normalize=False (RFF)"),
            ("projection", "orthogonal", "SORF", "choose another projection"),
        ):
            if params[name] == biased:
                raise ConfigError(
                    f"inner=FourierFeatures({name}={biased!r}) has biased features ({kind}), whose products are biased "
                    f"too; {remedy}"
                )
    del params["n_components"]  # which the factors set
    return unfitted, {"map": unfitted.name, "params": params}


def multiply_inner(X: Any, inner: FeatureMap, draws: Draws, seed: int) -> NDArray[np.float32]:
    """Compute products of inner features.

    For each j, an inner map with a seed of its own makes factor j of all components that have one. So the factors of a
    component are independent, even if the features of one inner map are correlated.

    Parameters
    ----------
    X : array or CSR of shape (n_samples, n_features)
    inner : FeatureMap
    draws : Draws
    seed : int

    Returns
    -------
    features : ndarray of shape (n_samples, n_components), float32
    """
    n_components = len(draws.degrees)
    features = np.empty((X.shape[0], n_components), np.float32)
    features[:] = draws.constants[:n_components]
    for j, factor_seed in enumerate(_factor_seeds(seed, int(draws.degrees[0]))):
        width = int(np.count_nonzero(draws.degrees > j))
        factor_map, n_rows = _factor_map(inner, X.shape[1], width, factor_seed), max(1, _FACTORS // width)
        for first in range(0, X.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            with RowsFrom(first):
                features[rows, :width] *= _factors(factor_map, X[rows], factor_seed) * draws.scales[:width]
    return features


def _factor_map(inner: FeatureMap, n_features: int, width: int, seed: int) -> FeatureMap:
    """Make the map of one factor of `width` components."""
    unfitted: FeatureMap = clone(inner).set_params(n_components=width, random_state=seed)
    return unfitted.fit_width(n_features)


def _factors(factor_map: FeatureMap, X: Any, seed: int) -> NDArray[np.float32]:
    """Compute features of which each alone is an unbiased estimate."""
    if not isinstance(factor_map, WeightedMap):
        features: NDArray[np.float32] = factor_map.transform(X)
        features *= np.float32(math.sqrt(factor_map.n_features_out))
        return features
    coordinates, numbers = factor_map.sample(X)
    signs = np.empty(coordinates.shape, np.float32)
    signs_of_samples(coordinates, numbers, np.uint64(STREAM_MACLAURIN_SAMPLE), np.uint64(seed), signs)
    return signs


def _factor_seeds(seed: int, depth: int) -> list[int]:
    words = np.empty((depth, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_MACLAURIN_INNER), np.uint64(seed), words)
    return [int(low) | int(high) << 32 for low, high in words[:, :2].tolist()]
