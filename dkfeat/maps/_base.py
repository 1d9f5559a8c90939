"""Base class of feature maps: fit makes a small state, and transform depends only on that state and the row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat import canonical
from dkfeat.errors import ConfigError, DkfeatError, InputError, SpecConflictError
from dkfeat.html import card
from dkfeat.maps._kernel_estimates import KernelEstimates, fitted_copy
from dkfeat.maps._rows import dask_width, is_dask, transform_blocks
from dkfeat.messages import show_bytes
from dkfeat.projections import Projection
from dkfeat.validation import check_columns, check_integer, check_rows, check_seed

_FLOATS = (np.float64, np.float32)


class FeatureMap(KernelEstimates, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all feature maps.

    A subclass sets `name`, `version` and `layout`, checks its parameters in `_resolve` and computes in
    `_transform_rows`. `_resolve` sets `_settings` and, of a map with the parameter `random_state`, `seed_`. A row's
    features depend only on the fitted map and that row, so rows may be split into blocks of any size, on any number of
    workers.

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

    n_features_in_: int
    seed_: int
    _settings: Any
    """State of the fitted map, set by `_resolve`: the parameters as they were in fit, and values derived from them."""

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
        self._resolve(self.n_features_in_)
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
        self._resolve(n_features)
        self._set_width(n_features)
        return self

    def _check_params(self) -> None:
        """Check the parameters as far as possible without the width of the source; fit checks everything.

        Raises
        ------
        dkfeat.errors.ConfigError
            If a parameter is out of range for any source.
        """
        self._check_at_width(1)

    def _check_at_width(self, n_features: int) -> None:
        clone(self).fit_width(n_features)  # the clone copies a generator, so the original does not advance

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
        spec, own = other.to_spec(), self.get_params(deep=False)
        usual = {name: item.default for name, item in signature(type(self)).parameters.items()}
        values = spec["params"] | ({"random_state": spec["seed"]} if self._is_random() else {})
        taken = {name: value for name, value in values.items() if _is_same(own[name], usual[name])}
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
        head = {"map": self.name, "version": self.version, "n_features": self.n_features_in_}
        return {**head, **seed, **self._spec_part()}

    def fingerprint(self) -> str:
        """Return the SHA-256 of the spec, 64 hexadecimal digits: equal fingerprints mean equal features."""
        return canonical.fingerprint(self.to_spec())

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
    def _resolve(self, n_features: int) -> None:
        """Check the parameters, draw the seed and keep what `transform` needs."""

    @abstractmethod
    def _spec_part(self) -> dict[str, Any]:
        """Return the subclass's part of the spec: ``params`` as they were in fit, and values derived from them."""

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
    def _n_features_out(self) -> int:  # scikit-learn takes the number of names from it
        return self.n_features_out

    def _check_rows(self, X: Any) -> Any:
        """Return an array or CSR of the fitted width; values are not checked yet."""
        self._check_fitted()
        if is_dask(X):
            raise InputError("X is a Dask array, but rows in memory are needed; call transform, or featurize a source")
        has_width = len(getattr(X, "shape", ())) == 2 and not hasattr(X, "columns")
        if has_width:  # a data frame's names are checked first
            check_columns(X.shape[1], self.n_features_in_, type(self).__name__)
        is_plain = has_width and type(X) in (csr_matrix, np.ndarray) and X.dtype in _FLOATS
        if is_plain and not hasattr(self, "feature_names_in_"):
            return X  # scikit-learn would return it too, but a tiny block takes longer to check than to transform
        return self._as_rows(X, reset=False)

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        """Return an array or CSR validated by scikit-learn; `reset` is True in fit."""
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

    def _repr_html_inner(self) -> str:  # scikit-learn shows this HTML for an estimator that is not part of another
        note = "not fitted"
        if self.__sklearn_is_fitted__():
            note = f"fitted to {self.n_features_in_:,} columns" + (f", seed {self.seed_}" if self._is_random() else "")
        try:
            description = self._description()
        except (DkfeatError, ValueError, TypeError) as error:  # a repr does not raise
            description = {"not usable": _short(str(error))}
        shown = {name: _short(repr(value)) for name, value in self.get_params(deep=False).items()}
        return card(type(self).__name__, description, note=note, details={"Parameters": shown})

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:  # noqa: ARG002 - what IPython passes
        shown = {"text/plain": repr(self)}
        return shown | {"text/html": self._repr_html_inner()} if get_config()["display"] == "diagram" else shown

    def _description(self) -> dict[str, str]:
        """Describe kernel, sizes and expected error for a card; an unfitted map by its parameters."""
        fitted = fitted_copy(self)
        kernel = fitted._estimated_kernel()
        is_fitted = fitted.__sklearn_is_fitted__()
        k = (fitted.to_spec()["params"] if is_fitted else fitted.get_params(deep=False)).get("n_components")
        if is_fitted:
            sizes = fitted._sizes(k, is_width_known=fitted is self)
        else:  # a map that needs rows
            sizes = {"columns of features": "at most k", "bytes a row": f"at most {4 * k:,}, stored and in memory"}
        return {
            "kernel": kernel.name,
            **({} if k is None else {"components k": f"{k:,}"}),
            **sizes,
            "error of an estimate": kernel.describe_error(),
        }

    def _sizes(self, k: int | None, *, is_width_known: bool) -> dict[str, str]:
        """Describe the sizes of the features of a fitted map; a copy of an unfitted one has an assumed width."""
        columns, stored = self.n_features_out, self.encoded_row_bytes
        if self.layout == "codes":
            ones = int(k or 0)
            dense = f"as features {show_bytes(8 * ones)} sparse, {show_bytes(4 * columns)} dense"
            return {
                "columns of features": f"{columns:,}, {ones:,} of them 1",
                "bytes a row": f"{stored:,} as stored codes; {dense}",
            }
        if is_width_known or not self._columns_per_input:
            return {"columns of features": f"{columns:,}", "bytes a row": f"{stored:,}, stored and in memory"}
        each = self._columns_per_input
        other = columns - each * self.n_features_in_
        and_other, and_bytes = (f"{other:,} and ", f"{4 * other:,} and ") if other else ("", "")
        return {
            "columns of features": f"{and_other}{each:,} for each column of the input",
            "bytes a row": f"{and_bytes}{4 * each:,} for each column of the input, stored and in memory",
        }

    @property
    def _columns_per_input(self) -> int:
        """Number of columns of `transform` that each further column of the input adds; 0 for most maps."""
        return 0

    @classmethod
    def _is_random(cls) -> bool:
        """Return True if the map draws random numbers, and so has the parameter `random_state` and a seed."""
        return "random_state" in cls._get_param_names()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_settings")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []  # the output is always float32
        return tags


@dataclass(frozen=True, slots=True)
class FittedProjection:
    """State of a fitted map."""

    params: dict[str, Any]
    """Parameters as they were in fit."""
    operator: Projection


class ProjectedMap(FeatureMap):
    """Base class of maps with one component for each row of a projection; `_resolve` sets a `FittedProjection`."""

    layout = "dense"

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: n_components."""
        return self._fitted.operator.n_components

    @property
    def _working_bytes(self) -> int:
        """Size of the tables that one call draws, in bytes."""
        return self._fitted.operator.table_bytes

    def _spec_part(self) -> dict[str, Any]:
        return {"params": dict(self._fitted.params)}


def checked_seed(random_state: Any) -> int:
    """Return the seed that ``random_state`` determines, in [0, 2^64), or raise ConfigError."""
    try:
        return check_seed(random_state)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


_LONGEST = 120
"""Maximum number of characters of a parameter in a card."""


def _is_same(value: Any, usual: Any) -> bool:
    return value is usual or (isinstance(value, str | int | float) and type(value) is type(usual) and value == usual)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
