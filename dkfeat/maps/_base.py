"""The contract that every feature map keeps: fit makes a small value, transform is a function of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat import canonical
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.maps._display import map_card
from dkfeat.maps._kernel_estimates import KernelEstimates
from dkfeat.random_streams import check_seed
from dkfeat.validation import check_columns, check_integer, check_rows

__all__ = ["FeatureMap", "checked_seed", "dask_width", "is_dask"]


class FeatureMap(KernelEstimates, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all feature maps.

    A subclass sets `name`, `version` and `layout`, checks its parameters and draws its seed in `_settle`, and computes
    in `_transform_rows`. A row's features depend on the fitted map and that row alone, so rows may be
    given in any blocks, on any number of workers.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    seed_ : int
        Root of all random numbers, in [0, 2^64): ``random_state`` itself where that is an integer.
    n_features_out : int
        Columns that `transform` gives.
    encoded_row_bytes : int
        Bytes of a row as `layout` keeps it in a shard.
    """

    name: ClassVar[str]
    """What specs and the command line call the map."""
    version: ClassVar[int]
    """Raised whenever equal parameters give other features than before."""
    layout: ClassVar[Literal["codes", "dense"]]
    """How shards keep its rows."""
    needs_rows: ClassVar[bool] = False
    """Whether its fit needs rows of the source, and so a pass over it, beside the number of columns."""

    n_features_in_: int
    seed_: int

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Settle the parameters for the width of X.

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
        self._settle(self.n_features_in_)
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
        self._settle(n_features)
        self._set_width(n_features)
        return self

    def check_params(self) -> None:
        """Check what can be checked before the source is known, which may take a scan; fit checks all.

        Raises
        ------
        dkfeat.errors.ConfigError
            A parameter is out of range, whatever the source.
        """
        self._check_at_width(1)

    def _check_at_width(self, n_features: int) -> None:
        clone(self).fit_width(n_features)  # of the clone's own copy of a generator, which does not advance

    def fit_drawn(self, n_rows: int, n_features: int, take: Callable[[NDArray[np.int64]], Any]) -> Self:  # noqa: ARG002 - for maps that need rows
        """Fit to a whole source of which only some rows are read: those that the map's own seed chooses.

        Parameters
        ----------
        n_rows, n_features : int
            Shape of the source.
        take : callable
            Gives the rows of these numbers, which ascend, as an array or CSR; a map that needs no rows asks for none.

        Returns
        -------
        self : FeatureMap
        """
        return self.fit_width(n_features)

    def fit_like(self, other: FeatureMap) -> Self:
        """Fit to what a fitted map of the same kind was fitted to: its width and, where one needs them, its rows."""
        return self.fit_width(other.n_features_in_)

    def fitted_arrays(self) -> dict[str, NDArray[Any]]:
        """Fitted values too large for the spec, which names their SHA-256 under ``landmarks``; most maps have none."""
        check_is_fitted(self)
        return {}

    def transform(self, X: Any) -> Any:
        """Features of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a Dask array of such blocks
            Never changed.

        Returns
        -------
        features : of shape (n_samples, n_features_out)
            For a Dask array a Dask array with the same row blocks, of which nothing is computed yet.
        """
        check_is_fitted(self)
        if is_dask(X):
            # the one arrow up: Dask stays out of this layer, and out of the memory of those who do not use it
            from dkfeat.engine.collections import transform_blocks

            return transform_blocks(self, X)
        return self._transform_rows(self._check_rows(X))

    def encode(self, X: Any) -> Any:
        """Rows in the form that shards keep: features themselves, where the layout is "dense".

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        encoded : ndarray of shape (n_samples, n_features_out), float32, or what the map says
        """
        return self._encode_rows(self._check_rows(X))

    def decode(self, encoded: Any) -> Any:
        """Features of encoded rows: ``decode(encode(X))`` is ``transform(X)``."""
        check_is_fitted(self)
        return encoded

    def to_spec(self) -> dict[str, Any]:
        """Plain JSON values from which `dkfeat.from_spec` makes an equal map.

        Returns
        -------
        spec : dict
            Keys: map, version, n_features, seed, params and what the map adds.
        """
        check_is_fitted(self)
        return {
            "map": self.name,
            "version": self.version,
            "n_features": self.n_features_in_,
            "seed": self.seed_,
            **self._settled(),
        }

    def fingerprint(self) -> str:
        """SHA-256 of the spec, 64 hexadecimal digits: equal fingerprints mean equal features."""
        return canonical.fingerprint(self.to_spec())

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> Self:
        """Inverse of `to_spec`, with what `fitted_arrays` gave; `dkfeat.from_spec` finds the class."""
        if spec.get("map") != cls.name:
            message = f"the spec is of the map {spec.get('map')!r}, not {cls.name!r}; call dkfeat.from_spec"
            raise ConfigError(message)
        if spec.get("version") != cls.version:
            message = (
                f"the spec was made by version {spec.get('version')!r} of {cls.name}, but this dkfeat computes version "
                f"{cls.version}; use the dkfeat that made it, or featurize anew"
            )
            raise SpecConflictError(message)
        params = dict(spec.get("params", {}))
        unknown = sorted(set(params) - set(cls._get_param_names()))
        missing = sorted({"n_features", "seed", "params"} - set(spec))
        if unknown or missing:
            message = f"spec of {cls.name}: unknown settings {unknown}, missing entries {missing}; was it edited?"
            raise ConfigError(message)
        fitted = cls(**params, random_state=spec["seed"])
        fitted._restore(spec["n_features"], arrays)
        if fitted.to_spec() != dict(spec):
            message = f"the spec {dict(spec)!r} does not read back: it gives {fitted.to_spec()!r}; was it edited?"
            raise SpecConflictError(message)
        return fitted

    @property
    @abstractmethod
    def n_features_out(self) -> int:
        """Columns that `transform` gives."""

    @property
    @abstractmethod
    def encoded_row_bytes(self) -> int:
        """Bytes of one row as `layout` keeps it in a shard."""

    @abstractmethod
    def _settle(self, n_features: int) -> None:
        """Check the parameters, draw the seed and keep what `transform` needs."""

    @abstractmethod
    def _settled(self) -> dict[str, Any]:
        """Give the map's own part of the spec: ``params`` as they were in fit, and what fit derived from them."""

    @abstractmethod
    def _transform_rows(self, X: Any) -> Any:
        """Features of checked rows in memory."""

    def _encode_rows(self, X: Any) -> Any:
        """Encode checked rows in memory."""
        return self._transform_rows(X)

    def _restore(self, n_features: int, arrays: Mapping[str, NDArray[Any]] | None) -> None:  # noqa: ARG002 - for maps that need rows
        """Fit to the width, and to arrays that `fitted_arrays` gave."""
        self.fit_width(n_features)

    @property
    def working_bytes(self) -> int:
        """Bytes that a call holds beside rows and features, where that is not a matter of kilobytes."""
        return 0

    @property
    def _n_features_out(self) -> int:  # where scikit-learn looks for the number of names
        return self.n_features_out

    def _check_rows(self, X: Any) -> Any:
        """Array or CSR of the fitted width; values are not looked at yet."""
        check_is_fitted(self)
        if is_dask(X):
            message = "a Dask array came where rows in memory are needed; call transform, or featurize a source"
            raise InputError(message)
        if len(getattr(X, "shape", ())) == 2 and not hasattr(X, "columns"):  # a data frame's names come first
            check_columns(X.shape[1], self.n_features_in_, type(self).__name__)
        return self._as_rows(X, reset=False)

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        """Array or CSR as scikit-learn hands it to estimators; `reset` in fit."""
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,  # check_rows looks, and names the cell
            ensure_min_samples=1 if reset else 0,  # blocks without rows are fine
        )

    def _set_width(self, n_features: int) -> None:
        """Note a width that was fitted without a data frame."""
        if hasattr(self, "feature_names_in_"):  # left by an earlier fit on a data frame
            del self.feature_names_in_
        self.n_features_in_ = n_features

    def _repr_html_inner(self) -> str:  # where scikit-learn looks for the HTML of one that stands alone
        return map_card(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:  # noqa: ARG002 - what IPython passes
        shown = {"text/plain": repr(self)}
        return shown | {"text/html": map_card(self)} if get_config()["display"] == "diagram" else shown

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "seed_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []  # float32 whatever comes in
        return tags


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection, told without importing Dask."""
    return hasattr(X, "__dask_graph__")


def dask_width(X: Any) -> int:
    """Columns of a Dask array, or InputError where they are unknown."""
    width = X.shape[1] if len(getattr(X, "shape", ())) == 2 else None
    if width is None or np.isnan(width):
        message = (
            f"a Dask array of shape {X.shape} has no known column count; state it where the array is made, or, for a "
            "map that needs no rows, call fit_width(n_features)"
        )
        raise InputError(message)
    return int(width)


def checked_seed(random_state: Any) -> int:
    """Return the seed that an estimator's parameter stands for, in [0, 2^64), or raise ConfigError."""
    try:
        return check_seed(random_state)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
