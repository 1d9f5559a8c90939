"""Nearest neighbours of rows in memory under the min-max kernel, with the interface of scikit-learn's estimators."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat.compiled.sampling.codes import best_rows, empty_heaps
from dkfeat.errors import ConfigError
from dkfeat.maps._sampled import SampledMap
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.neighbors.exact import RowsInMemory, check_n_neighbors, ordered
from dkfeat.validation import check_choice, check_integer


@dataclass(eq=False, repr=False)
class GMMNeighbors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Nearest neighbours of rows under the generalized min-max (GMM) kernel; the distance is 1 - GMM.

    Rows are compared by their codes first; the `n_candidates` with the most equal codes are then compared by the exact
    kernel. Its methods are those of scikit-learn's ``NearestNeighbors`` and ``KNeighborsTransformer``, so it can stand
    in front of estimators that take precomputed distances, such as ``DBSCAN(metric="precomputed")``.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbours of each row, at least 1.
    mode : {"distance", "connectivity"}, default="distance"
        What `transform` returns: distances, of one neighbour more, or ones.
    features : GCWSFeatures, DartFeatures, MinHashFeatures or None, default=None
        Map that makes the codes; its power, centre and norm are also those of the exact kernel. None:
        ``GCWSFeatures(n_components=512, random_state=0)``.
    n_candidates : int, default=100
        Number of rows that are compared exactly with each query; at least the number of neighbours is. 0: none, and
        similarities are estimated from the codes.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    n_samples_fit_ : int
        Number of rows in `fit`.
    features_ : GCWSFeatures, DartFeatures or MinHashFeatures
        The fitted map.

    Raises
    ------
    dkfeat.errors.ConfigError
        For a parameter out of range, or more neighbours than rows.
    dkfeat.errors.InputError
        For values that are NaN or infinite.
    ValueError
        For another number of columns, as in scikit-learn.

    Notes
    -----
    Time is proportional to the pairs of rows, about 10 ns for each pair and 512 codes of 8 bits, and the exact kernel
    takes about 500 ns for each candidate of 75 nonzeros. Of equally similar rows the lower one comes first. An all-zero
    row has the distance 1 to every row, itself included.

    References
    ----------
    .. [1] "Linearized GMM Kernels and Normalized Random Fourier Features", P. Li, KDD 2017.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[4.0, 0.0, 1.0], [0.0, 3.0, 0.0], [4.0, 0.0, 2.0]])
    >>> distances, rows = GMMNeighbors(n_neighbors=2).fit(X).kneighbors(np.array([[4.0, 0.0, 1.0]]))
    >>> distances.round(3).tolist(), rows.tolist()
    ([[0.0, 0.167]], [[0, 2]])
    """

    n_neighbors: int = 5
    _: KW_ONLY
    mode: Literal["distance", "connectivity"] = "distance"
    features: SampledMap | None = None
    n_candidates: int = 100

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - the signature of scikit-learn
        """Encode the rows among which neighbours are found.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : None
            Ignored.
        """
        check_integer(self.n_neighbors, "n_neighbors", low=1)
        check_integer(self.n_candidates, "n_candidates", low=0)
        check_choice(self.mode, "mode", ("distance", "connectivity"))
        features = GCWSFeatures(n_components=512, random_state=0) if self.features is None else self.features
        if not isinstance(features, SampledMap):
            raise ConfigError(
                f"features={features!r:.100}, but the codes must be samples: pass GCWSFeatures, DartFeatures or "
                "MinHashFeatures"
            )
        rows = self._as_rows(X, reset=True)
        self.features_ = clone(features).fit(rows)
        self._fit_rows, self._codes = rows, self.features_.encode(rows)
        self.n_samples_fit_ = rows.shape[0]
        self._n_features_out = self.n_samples_fit_
        return self

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]] | NDArray[np.int64]:
        """Find the nearest rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_queries, n_features), or None
            Queries. None: the rows of `fit`, each without itself.
        n_neighbors : int or None
            Number of neighbours; None: that of the constructor.
        return_distance : bool, default=True
            False returns the rows alone.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors), float64
            1 - GMM, ascending.
        rows : ndarray of shape (n_queries, n_neighbors), int64
            Positions in the rows of `fit`.
        """
        check_is_fitted(self)
        n_neighbors = self.n_neighbors if n_neighbors is None else n_neighbors
        n_found = check_n_neighbors(n_neighbors, self.n_samples_fit_, without_self=X is None)
        queries = self._fit_rows if X is None else self._as_rows(X, reset=False)
        codes = self._codes if X is None else self.features_.encode(queries)
        own = np.arange(len(codes.empty)) if X is None else np.full(len(codes.empty), -1)
        n_kept = min(max(n_found, self.n_candidates), self.n_samples_fit_ - (X is None))
        heaps = empty_heaps(len(own), n_kept)
        self.features_._keep_most_similar(codes, self._codes, 0, own, heaps)
        counts, rows = best_rows(heaps)
        if self.n_candidates:
            similarities = RowsInMemory(self._fit_rows).similarities(self.features_, queries, rows)
        else:
            similarities = self.features_._similarity_of_counts(counts)
        similarities, rows = ordered(similarities, rows, n_found)
        return (np.clip(1.0 - similarities, 0.0, 1.0), rows) if return_distance else rows

    def kneighbors_graph(
        self, X: Any = None, n_neighbors: int | None = None, mode: Literal["connectivity", "distance"] = "connectivity"
    ) -> sp.csr_matrix:
        """Make the graph of queries and their nearest rows.

        Parameters
        ----------
        X, n_neighbors
            As in `kneighbors`.
        mode : {"connectivity", "distance"}, default="connectivity"
            Values of the edges: ones, or distances.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_fitted), float64
            Rows of n_neighbors edges, in the order of their distances.
        """
        check_choice(mode, "mode", ("connectivity", "distance"))
        distances, rows = self.kneighbors(X, n_neighbors)
        values = np.ones(rows.size) if mode == "connectivity" else distances.ravel()
        bounds = np.arange(rows.shape[0] + 1) * rows.shape[1]
        return sp.csr_matrix((values, rows.ravel(), bounds), shape=(rows.shape[0], self.n_samples_fit_))

    def transform(self, X: Any) -> sp.csr_matrix:
        """Make the graph of rows and their neighbours, as scikit-learn's ``KNeighborsTransformer`` does.

        With ``mode="distance"`` a row has n_neighbors + 1 edges. For a row of `fit` the first one is the row itself, or
        the lowest of the rows equal to it; an all-zero row is equal to none.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_queries, n_features)

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_fitted), float64
        """
        check_is_fitted(self)
        check_n_neighbors(self.n_neighbors, self.n_samples_fit_, without_self=self.mode == "distance")
        return self.kneighbors_graph(X, self.n_neighbors + (self.mode == "distance"), self.mode)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32), ensure_all_finite=False
        )
