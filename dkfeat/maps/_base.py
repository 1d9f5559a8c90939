"""Base class of feature maps: fit makes a small state, and transform depends only on that state and the row."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat import canonical
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.maps._kernel_estimates import EstimatedKernel, KernelPairs
from dkfeat.maps._rows import dask_width, is_dask, transform_blocks
from dkfeat.projections import Projection
from dkfeat.validation import check_columns, check_in_memory, check_integer, check_rows, check_seed, warn_of_rounding

_FLOATS = (np.float64, np.float32)
N_COMPONENTS = partial(check_integer, low=1, high=2**24)
"""Check of the number of components."""
_ANY_WIDTH = 1 << 20
"""Number of columns assumed for the parameters of an unfitted map."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fitted:
    """State of a fitted map: parameters as they were in fit, and values derived from them."""

    params: dict[str, Any]
    """Plain JSON values, as in the spec."""
    seed: int = 0
    """0 in a map without the parameter `random_state`."""


class SpecEstimator(BaseEstimator):
    """Base of estimators that are kept in specs; ``to_spec`` returns one."""

    def fingerprint(self: Any) -> str:
        """Return the SHA-256 of the spec, 64 hexadecimal digits: equal fingerprints mean equal features."""
        return canonical.fingerprint(self.to_spec())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_settings")

    def _given(self, names: Iterable[str]) -> Self:
        """Take these parameters as given, even at their defaults."""
        self._given_names = frozenset(names)
        return self

    def _cloned(self) -> Any:
        """Return an unfitted copy with these parameters."""
        return clone(self)._given(vars(self).get("_given_names", ()))

    def _params_like(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a spec of this class, with its seed, that are not given here."""
        own, usual = self.get_params(deep=False), signature(type(self)).parameters
        values = spec["params"] | ({"random_state": spec["seed"]} if "random_state" in own else {})
        at_default = {name for name in values if repr(own[name]) == repr(usual[name].default)}
        return {name: values[name] for name in at_default - vars(self).get("_given_names", frozenset())}


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SpecEstimator):
    """Base of all feature maps.

    A subclass is a dataclass, whose fields are the parameters; a map that draws random numbers has `random_state`. It
    sets `name`, `version` and `layout`, lists the checks of its parameters in `_checks`, derives from them what
    `transform` needs in `_resolve`, and computes in `_transform_rows`. A row's features depend only on the fitted map
    and that row, so rows may be split into blocks of any size, on any number of workers.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    seed_ : int
        Root of all random numbers, in [0, 2^64): ``random_state`` itself if that is an integer. A map without the
        parameter ``random_state`` has none.
    n_features_out : int
        Number of columns of `transform`.
    encoded_row_bytes : int
        Size of a row in a shard, in bytes.
    """

    name: ClassVar[str]
    """Name of the map in specs and on the command line."""
    version: ClassVar[int]
    """Version of the algorithm, increased when equal parameters give other features than before."""
    layout: ClassVar[Literal["codes", "dense"]]
    """Form in which shards store the rows."""
    _needs_rows: ClassVar[bool] = False
    """True if fit needs rows of the source, and so a pass over it, besides the number of columns."""

    takes_sets: ClassVar[bool] = False
    """True if rows must be sets, of zeros and ones alone."""

    _checks: ClassVar[Mapping[str, Callable[[Any, str], Any]]]
    """For each parameter that the spec holds, in this order, a function that checks a value, given with the name of the
    parameter, and returns it as a plain JSON value."""

    random_state: Any
    n_features_in_: int
    seed_: int
    _settings: Any
    """State of the fitted map, a `Fitted` of its class."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Check the parameters and draw the seed, for the width of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a Dask array
            Checked to be finite; of a Dask array only the shape is read.
        y : ignored

        Returns
        -------
        self : FeatureMap
        """
        if is_dask(X):
            return self.fit_width(dask_width(X))
        check_rows(self._as_rows(X, reset=True))
        self._fit_checked(self.n_features_in_)
        return self

    def fit_width(self, n_features: int) -> Self:
        """Fit without data, from the number of columns alone.

        Parameters
        ----------
        n_features : int
            Columns of the input, from 1 to 2^62.

        Returns
        -------
        self : FeatureMap
        """
        n_features = check_integer(n_features, "n_features", low=1, high=2**62)
        self._fit_checked(n_features)
        self._set_width(n_features)
        return self

    def _fit_checked(self, n_features: int) -> None:
        params, is_random = self._checked_params(), self._is_random()
        seed = check_seed(self.random_state) if is_random else 0
        self._settings = self._resolve(params, n_features, seed)
        if is_random:
            self.seed_ = seed

    def _checked_params(self) -> dict[str, Any]:
        """Return the parameters of the spec as plain JSON values, or raise ConfigError."""
        return {name: check(getattr(self, name), name) for name, check in self._checks.items()}

    def _check_params(self) -> None:
        """Check the parameters as far as possible without the width of the source; fit checks everything.

        Raises
        ------
        dkfeat.errors.ConfigError
            If a parameter is out of range for any source.
        """
        clone(self).fit_width(self._valid_width)  # the clone copies a generator, so the original does not advance

    def _fit_drawn(self, n_rows: int, n_features: int, take: Callable[[NDArray[np.int64]], Any]) -> Self:  # noqa: ARG002 - for maps that need rows
        """Fit to a whole source, reading only the rows that the map's seed selects.

        Parameters
        ----------
        n_rows, n_features : int
            Shape of the source.
        take : callable
            Returns the rows with these ascending numbers, as an array or CSR; not called by a map that needs no rows.

        Returns
        -------
        self : FeatureMap
        """
        return self.fit_width(n_features)

    def _fit_like(self, other: FeatureMap) -> Self:
        """Fit to the width, and the rows if any, of a fitted map of the same class.

        Parameters at their defaults, such as a `random_state` of None, are taken from it, unless that is no valid map.
        """
        taken = self._params_like(other.to_spec())
        try:
            clone(self).set_params(**taken)._restore(other.n_features_in_, other._fitted_arrays())
        except ConfigError:  # parameters of one kernel, given with another: the caller compares the maps
            taken = {name: value for name, value in taken.items() if name == "random_state"}
        self.set_params(**taken)._restore(other.n_features_in_, other._fitted_arrays())
        return self

    def _fitted_arrays(self) -> dict[str, NDArray[Any]]:
        """Fitted arrays too large for the spec, which has their SHA-256 as ``landmarks``; most maps have none."""
        check_is_fitted(self)
        return {}

    def transform(self, X: Any) -> Any:
        """Compute the features of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a Dask array of such blocks
            Never changed.

        Returns
        -------
        features : of shape (n_samples, n_features_out)
            For a Dask array, a lazy Dask array with the same row blocks.
        """
        self._check_fitted()
        if is_dask(X):
            return transform_blocks(self, X)
        return self._transform_rows(self._check_rows(X))

    def encode(self, X: Any) -> Any:
        """Compute rows in the form that shards store, which is the features themselves if the layout is "dense".

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        encoded : ndarray of shape (n_samples, n_features_out), float32, or as the subclass documents
        """
        return self._encode_rows(self._check_rows(X))

    def decode(self, encoded: Any) -> Any:
        """Compute the features of encoded rows: ``decode(encode(X))`` equals ``transform(X)``."""
        check_is_fitted(self)
        return encoded

    @property
    def kernel_range(self) -> tuple[float, float]:
        """Kernel values that `expected_error_at` accepts: 0 to 1, except for dot-product kernels."""
        kernel = self._fitted_copy()._estimated_kernel()
        return kernel.low, kernel.high

    def exact_kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Compute the kernel that inner products of the features estimate.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_x, n_features)
        Y : like X, of shape (n_y, n_features), default=X

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64

        Examples
        --------
        >>> import dkfeat, numpy as np
        >>> X = np.array([[1.0, -2.0], [1.0, 2.0]])
        >>> dkfeat.GCWSFeatures(normalize="l1").fit(X).exact_kernel(X)
        array([[1. , 0.2],
               [0.2, 1. ]])
        """
        kernel = self._estimated_kernel()
        return kernel.exact(self._check_rows(X), None if Y is None else self._check_rows(Y))

    def estimate_kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Estimate the kernel from encoded rows alone, by their inner products.

        Parameters
        ----------
        X : ndarray of shape (n_x, n_features_out)
            Rows as `encode` returns them or a shard stores them.
        Y : like X, of shape (n_y, n_features_out), default=X

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64
        """
        check_is_fitted(self)
        left = np.asarray(X, dtype=np.float64)
        right = left if Y is None else np.asarray(Y, dtype=np.float64)
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
            raise InputError(
                f"features have the shapes {left.shape} and {right.shape}; pass results of encode(X) of this map"
            )
        return left @ right.T

    def expected_error(self, X: Any, Y: Any = None) -> NDArray[np.float64] | None:
        """Compute the theoretical standard errors of the estimates for pairs of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_x, n_features)
        Y : like X, of shape (n_y, n_features), default=X

        Returns
        -------
        errors : ndarray of shape (n_x, n_y), float64, or None
            Standard errors. None for Nyström features, whose error depends on the data, and for circulant Laplace
            features, whose components are correlated, so that theory gives only a bound. For structured projections of
            `FourierFeatures` the values are for independent directions; the actual errors differ from them by up to a
            fifth (measured on digits).
        """
        kernel = self._estimated_kernel()
        left, right = self._check_rows(X), None if Y is None else self._check_rows(Y)
        variances = kernel.variances(left, right, kernel.exact(left, right))
        return None if variances is None else np.sqrt(variances)

    def expected_error_at(self, similarity: ArrayLike) -> NDArray[np.float64] | None:
        """Compute the theoretical standard error of an estimate from the kernel's value; the map may be unfitted.

        Parameters
        ----------
        similarity : float or array
            Values of the kernel, within `kernel_range`.

        Returns
        -------
        error : ndarray of the same shape, float64, or None
            For dense projections, exact for `DartFeatures`, for `GCWSFeatures` except for the levels that it drops, for
            `FourierFeatures` (if normalized, up to terms of 1 / k^2) and for the exponential semigroup kernel. A lower
            bound for other projections of `LaplaceFeatures`. An upper bound for its reciprocal kernel, over all rows,
            and for `MaclaurinFeatures`, over rows as long as the radius. None for `NystroemFeatures`, whose error
            depends on the data.

        Raises
        ------
        dkfeat.errors.InputError
            If a value lies outside `kernel_range`.
        dkfeat.errors.ConfigError
            If a parameter of an unfitted map is out of range.

        Examples
        --------
        >>> import dkfeat
        >>> float(dkfeat.FourierFeatures(1024).expected_error_at(0.5).round(4))
        0.0242
        """
        kernel = self._fitted_copy()._estimated_kernel()
        values = np.asarray(similarity, dtype=np.float64)
        slack = 1e-9 * (kernel.high - kernel.low)  # for rounding errors in computed values
        outside = ~((values >= kernel.low - slack) & (values <= kernel.high + slack))
        if outside.any():
            raise InputError(
                f"similarity={float(values[outside].flat[0])!r}, but the kernel {kernel.name} has values from "
                f"{kernel.low:g} to {kernel.high:g} here; give values in that range"
            )
        if kernel.variance_at is None:
            return None
        errors: NDArray[np.float64] = np.sqrt(kernel.variance_at(np.clip(values, kernel.low, kernel.high)))
        return errors

    def kernel_pairs(self, X: Any, *, n_rows: int = 64, random_state: int = 0) -> KernelPairs:
        """Compare estimates with exact values, for all pairs among randomly drawn rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        n_rows : int, default=64
            Number of rows to draw, at least 2; all rows if there are fewer. 64 rows make 2,016 pairs.
        random_state : int, default=0
            Seed of the draw.

        Returns
        -------
        pairs : KernelPairs
            Exact values, estimates and their theoretical errors; `dkfeat.plot.kernel_estimates` plots them.

        Raises
        ------
        dkfeat.errors.InputError
            If there are fewer than two rows, or the map rejects rows.
        """
        kernel = self._estimated_kernel()
        most = check_integer(n_rows, "n_rows", low=2, high=1 << 14)
        rows = self._check_rows(X)
        if rows.shape[0] < 2:
            raise InputError(f"X has {rows.shape[0]:,} rows, but a pair needs two; pass two rows or more")
        drawn = np.random.default_rng(random_state).permutation(rows.shape[0])[:most]
        drawn.sort()
        some = rows[drawn]
        left, right = np.triu_indices(len(drawn), k=1)
        estimates = self.estimate_kernel(self._encode_rows(some))
        exact = kernel.exact(some, None)
        variances = kernel.variances(some, None, exact)
        return KernelPairs(
            kernel=kernel.name,
            left=drawn[left],
            right=drawn[right],
            exact=exact[left, right],
            estimates=estimates[left, right],
            deviations=None if variances is None else np.sqrt(variances[left, right]),
            note=kernel.note if variances is not None else "the theoretical error of this map is unknown",
        )

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values from which `dkfeat.from_spec` makes an equal map.

        Returns
        -------
        spec : dict
            Keys: map, version, n_features, seed (of a map with random numbers), params, and further keys of the
            subclass.
        """
        check_is_fitted(self)
        seed = {"seed": self.seed_} if self._is_random() else {}
        head = {"map": self.name, "version": self.version, "n_features": self.n_features_in_, **seed}
        return {**head, "params": copy.deepcopy(self._settings.params), **self._more_of_spec()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> Self:
        """Make a fitted map from the values of `to_spec` and `_fitted_arrays`; `dkfeat.from_spec` finds the class."""
        if spec.get("map") != cls.name:
            raise ConfigError(f"the spec is of the map {spec.get('map')!r}, not {cls.name!r}; call dkfeat.from_spec")
        if spec.get("version") != cls.version:
            raise SpecConflictError(
                f"the spec was made by version {spec.get('version')!r} of {cls.name}, but this dkfeat computes version "
                f"{cls.version}; use the dkfeat that made it, or featurize anew"
            )
        params = dict(spec.get("params", {}))
        unknown = sorted(set(params) - set(cls._get_param_names()))
        seed = {"random_state": spec.get("seed")} if cls._is_random() else {}
        missing = sorted({"n_features", "params", *(["seed"] if seed else [])} - set(spec))
        if unknown or missing:
            raise ConfigError(
                f"spec of {cls.name}: unknown settings {unknown}, missing entries {missing}; was it edited?"
            )
        fitted = cls(**params, **seed)
        fitted._restore(spec["n_features"], arrays)
        if fitted.to_spec() != dict(spec):
            raise SpecConflictError(
                f"the spec {dict(spec)!r} does not read back: it gives {fitted.to_spec()!r}; was it edited?"
            )
        return fitted

    @property
    @abstractmethod
    def n_features_out(self) -> int:
        """Number of columns of `transform`."""

    @property
    def encoded_row_bytes(self) -> int:
        """Size of a row in a shard, in bytes; 4 for each feature if the layout is "dense"."""
        return 4 * self.n_features_out

    @property
    def _fitted(self) -> Any:
        self._check_fitted()
        return self._settings

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():  # asked first, because scikit-learn takes 20 times as long
            check_is_fitted(self)

    @abstractmethod
    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> Fitted:
        """Derive the state of the fitted map from checked parameters."""

    @abstractmethod
    def _estimated_kernel(self) -> EstimatedKernel:
        """Describe the kernel of the fitted map; for a map that learns from rows, the kernel of its parameters."""

    def _more_of_spec(self) -> dict[str, Any]:
        """Return further entries of the spec."""
        return {}

    @abstractmethod
    def _transform_rows(self, X: Any) -> Any:
        """Compute the features of checked rows in memory."""

    def _encode_rows(self, X: Any) -> Any:
        """Encode checked rows in memory."""
        return self._transform_rows(X)

    def _restore(self, n_features: int, arrays: Mapping[str, NDArray[Any]] | None) -> None:  # noqa: ARG002 - for maps that need rows
        """Fit to the width and to the arrays of `_fitted_arrays`."""
        self.fit_width(n_features)

    @property
    def _working_bytes(self) -> int:
        """Memory that a call needs besides rows and features, in bytes; 0 if it is only kilobytes."""
        return 0

    @property
    def _valid_width(self) -> int:
        """Number of columns for which the parameters of an unfitted map are valid."""
        return _ANY_WIDTH

    def _fitted_copy(self) -> Self:
        """Return a map fitted to some width, or the map itself if it is fitted or needs rows."""
        if self._needs_rows or self.__sklearn_is_fitted__():
            return self
        seed = {"random_state": 0} if self._is_random() else {}  # the caller's generator does not advance
        return clone(self).set_params(**seed).fit_width(self._valid_width)

    @property
    def _n_features_out(self) -> int:  # scikit-learn takes the number of names from it
        return self.n_features_out

    def _check_rows(self, X: Any) -> Any:
        """Return an array or CSR of the fitted width; values are not checked yet."""
        self._check_fitted()
        check_in_memory(X)
        has_width = len(getattr(X, "shape", ())) == 2 and not hasattr(X, "columns")
        if has_width:  # a data frame's names are checked first
            check_columns(X.shape[1], self.n_features_in_, type(self).__name__)
        is_plain = has_width and type(X) in (csr_matrix, np.ndarray) and X.dtype in _FLOATS
        if is_plain and not hasattr(self, "feature_names_in_"):
            return X  # scikit-learn would return it too, but a tiny block takes longer to check than to transform
        return self._as_rows(X, reset=False)

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        """Return an array or CSR validated by scikit-learn; `reset` is True in fit."""
        warn_of_rounding(X)
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=_FLOATS,
            ensure_all_finite=False,  # check_rows checks it, and names the cell
            ensure_min_samples=1 if reset else 0,  # blocks may have no rows
        )

    def _set_width(self, n_features: int) -> None:
        """Set the width of a fit without a data frame."""
        if hasattr(self, "feature_names_in_"):  # left by an earlier fit on a data frame
            del self.feature_names_in_
        self.n_features_in_ = n_features

    @classmethod
    def _is_random(cls) -> bool:
        """Return True if the map draws random numbers, and so has the parameter `random_state` and a seed."""
        return "random_state" in cls._get_param_names()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []  # the output is always float32
        return tags


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedProjection(Fitted):
    """State of a map that applies a projection."""

    operator: Projection


class ProjectedMap(FeatureMap):
    """Base of maps whose features are functions of the components of a projection."""

    layout = "dense"

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`, n_components."""
        return self._fitted.operator.n_components

    @property
    def _working_bytes(self) -> int:
        """Memory to draw the projection's tables."""
        return self._fitted.operator.table_bytes


def check_flag(value: Any, name: str, *, yes: str, no: str) -> bool:
    """Return `value` if it is a bool, or raise ConfigError, which says what both values mean."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name}={value!r}, but it must be True ({yes}) or False ({no})")
    return bool(value)
