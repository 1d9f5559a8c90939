"""Checks of parameters and of rows: scalars in range, seeds, rows finite and in canonical form.

No function here changes its arguments. If a single cell is invalid, the error's message and its attributes ``row`` and
``column`` name it.
"""

from __future__ import annotations

import math
import numbers
import secrets
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dkfeat.errors import ConfigError, InputError
from dkfeat.messages import meant, read_number

MAX_POWER = 1000.0
"""Largest power of the pGMM kernel; with a larger one, a float32 logarithm is not accurate enough."""

_INT32_MAX = 2**31 - 1
_CHECKED_CELLS = 2**20
"""Number of values of dense rows checked at a time."""
_SEED_LIMIT = 1 << 64


def as_label(value: Any) -> int | float:
    """Convert a label, as text or number, to an int if it is an integer, which is then exact, else to a float.

    Raises
    ------
    TypeError, ValueError
        If it is not a number.

    Examples
    --------
    >>> as_label("9007199254740993"), as_label("-1.0"), as_label(0.5)
    (9007199254740993, -1, 0.5)
    """
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str):
        with suppress(ValueError):
            return read_number(value, int)
    number = read_number(value, float) if isinstance(value, str) else float(value)
    return int(number) if number % 1 == 0 else number


def check_integer(value: object, name: str, *, low: int, high: int | None = None) -> int:
    """Return `value` as an int in [low, high], or raise.

    Raises
    ------
    ConfigError
        If it is not an integer (True and False are not) or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> check_integer(np.int64(8), "i_bits", low=1, high=16)
    8
    """
    wanted = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    if not is_integer or int(value) < low or (high is not None and int(value) > high):  # type: ignore[call-overload]  # an Integral converts
        raise ConfigError(f"{name}={value!r}, but it must be {wanted}; set {name} in that range")
    return int(value)  # type: ignore[call-overload]  # an Integral converts


def check_real(
    value: object, name: str, *, above: float = -math.inf, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return `value` as a finite float greater than `above`, at least `low` and at most `high`, or raise.

    Raises
    ------
    ConfigError
        If it is not a real number, not finite, or out of range.

    Examples
    --------
    >>> check_real(2, "p", above=0, high=1000)
    2.0
    """
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    number = float(value) if is_real else math.nan  # type: ignore[arg-type]  # a Real converts
    if not math.isfinite(number) or number <= above or not low <= number <= high:
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {low:g}"] * (low > -math.inf)
        bounds += [f"at most {high:,g}"] * (high < math.inf)
        wanted = " ".join(["a finite number", " and ".join(bounds)]).strip()
        if -math.inf < low < high < math.inf:
            wanted = f"from {low:g} to {high:g}"
        raise ConfigError(f"{name}={value!r}, but it must be {wanted}; set {name} in that range")
    return number


def check_seed(random_state: Any) -> int:
    """Return the seed that a user's ``random_state`` stands for.

    Parameters
    ----------
    random_state : int, None, numpy.random.RandomState or numpy.random.Generator
        An integer in [0, 2**64) is used unchanged. None draws a seed from the operating system. A generator of numpy
        gives its next 64 bits, and so advances.

    Returns
    -------
    seed : int
        In [0, 2**64).

    Raises
    ------
    ConfigError
        For any other value.

    Examples
    --------
    >>> check_seed(7)
    7
    >>> check_seed(np.random.RandomState(0)) == check_seed(np.random.RandomState(0))
    True
    """
    if random_state is None:
        return secrets.randbits(64)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, _SEED_LIMIT - 1, dtype=np.uint64, endpoint=True))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, _SEED_LIMIT, dtype=np.uint64))
    is_integer = isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool | np.bool_)
    if is_integer and 0 <= random_state < _SEED_LIMIT:
        return int(random_state)
    raise ConfigError(
        f"random_state={random_state!r} of type {type(random_state).__name__}; "
        "pass an integer in [0, 2**64), None, or a generator of numpy"
    )


def check_range(
    value: ArrayLike, name: str, low: float, high: float, *, open_low: bool = False, infinite: bool = False
) -> NDArray[np.float64]:
    """Return `value` as float64 if all entries lie in [low, high], or in (low, high]; else raise ConfigError.

    Infinity is rejected unless `infinite` is True.

    Examples
    --------
    >>> check_range([0.5, 2], "gamma", 0, math.inf, open_low=True).tolist()
    [0.5, 2.0]
    """
    array = np.asarray(value, dtype=np.float64)
    good = (array > low if open_low else array >= low) & (array <= high) & (np.isfinite(array) | infinite)
    if not good.all():
        worst = float(np.extract(~good, array)[0])
        if high == math.inf:
            wanted = (f"above {low:g}" if open_low else f"at least {low:g}") + ("" if infinite else " and finite")
        else:
            wanted = f"above {low:g} and at most {high:g}" if open_low else f"from {low:g} to {high:g}"
        raise ConfigError(f"{name}={worst!r}, but it must be {wanted}; give {name} in that range")
    return array


def check_choice(value: object, name: str, choices: Sequence[str | None]) -> Any:
    """Return `value` if it is one of `choices`, or raise ConfigError with the list.

    Examples
    --------
    >>> check_choice("l2", "normalize", (None, "l1", "l2"))
    'l2'
    >>> check_choice("l3", "normalize", (None, "l1", "l2"))
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: normalize='l3', but it must be one of None, 'l1', 'l2'; did you mean 'l2'?
    """
    if not (value is None or isinstance(value, str)) or value not in choices:
        message = f"{name}={value!r}, but it must be one of {', '.join(map(repr, choices))}"
        raise ConfigError(message + meant(str(value), [choice for choice in choices if choice is not None]))
    return value


def check_in_memory(X: Any, name: str = "X") -> None:
    """Raise InputError for a collection of Dask and for a lazy frame of polars, whose rows are not computed yet."""
    is_dask = hasattr(X, "__dask_graph__")
    if is_dask or type(X).__name__ == "LazyFrame":
        kind, method = f"{'Dask ' * is_dask}{type(X).__name__}", "compute" if is_dask else "collect"
        raise InputError(f"{name} is a {kind}, but values in memory are needed; give {name}.{method}()")


def check_columns(got: int, expected: int, owner: str) -> None:
    """Raise InputError, in scikit-learn's words, unless the column counts are equal.

    Examples
    --------
    >>> check_columns(3, 4, "GCWSFeatures")
    Traceback (most recent call last):
    ...
    dkfeat.errors.InputError: X has 3 features, but GCWSFeatures is expecting 4 features as input
    """
    if got != expected:
        raise InputError(f"X has {got} features, but {owner} is expecting {expected} features as input")


def check_finite(rows: sp.csr_matrix, *, name: str = "X", first_row: int = 0, cause: str = "") -> None:
    """Raise InputError naming the first cell that holds NaN or an infinity.

    Parameters
    ----------
    rows : csr_matrix of shape (n_samples, n_features), float32 or float64
    name : str
        The caller's name for the array.
    first_row : int
        Number of the first row in the caller's array.
    cause : str
        Text after the position of the cell, such as "after the centre was subtracted".
    """
    bad = ~np.isfinite(rows.data)
    if bad.any():
        remedy = "every value must be finite, neither NaN nor inf; replace or drop such cells first"
        raise cell_error(rows, int(bad.argmax()), remedy, name=name, first_row=first_row, cause=cause)


def rounded_integers(numbers: NDArray[Any], dtype: DTypeLike) -> NDArray[np.bool_] | None:
    """Return the mask of the integers that are not exact in a type of floats; None if all are, or for other numbers.

    Examples
    --------
    >>> rounded_integers(np.array([2**24, 2**24 + 1]), np.float32).tolist()
    [False, True]
    """
    most = 2 ** (np.finfo(dtype).nmant + 1)
    is_wide = numbers.dtype.kind in "iu" and np.iinfo(numbers.dtype).max > most and numbers.size > 0
    if not is_wide or max(int(numbers.max()), -int(numbers.min())) <= most:
        return None
    floats = numbers.astype(dtype).astype(np.float64)
    with np.errstate(invalid="ignore"):  # a float beyond the integers
        bad: NDArray[np.bool_] = floats.astype(numbers.dtype) != numbers
    bad |= floats >= float(np.iinfo(numbers.dtype).max)
    return bad if bad.any() else None


def rounding(number: int, dtype: str) -> str:
    """Describe an integer that a type of floats rounds, as the end of a warning."""
    remedy = "replace an identifier by a column for each of its values"
    if dtype == "float32":
        remedy = 'pass dtype="float64" (--dtype float64), which has every integer up to 2^53'
    nearest = int(np.dtype(dtype).type(float(number)))
    return f"an integer that {dtype} rounds, to {nearest}, and perhaps others after it; {remedy}"


def warn_of_rounding(X: Any, name: str = "X") -> None:
    """Warn of the first integer of an array or a sparse matrix that float64 rounds, as other numbers are not."""
    if getattr(getattr(X, "dtype", None), "kind", None) not in ("i", "u") or X.ndim != 2:
        return
    rows: Any = sp.csr_matrix(X) if sp.issparse(X) else np.asarray(X)
    bad = rounded_integers(rows.data if sp.issparse(X) else rows, np.float64)
    if bad is not None:
        value, row, column = _cell(rows, int(bad.argmax()))
        place = f"at row {row:,}, column {column:,} (counted from 0)"
        warnings.warn(f"{name} holds {value} {place}, {rounding(int(value), 'float64')}", stacklevel=2)


def _cell(rows: Any, at: int) -> tuple[Any, int, int]:
    """Return the value at a position, as in `cell_error`, with its row and column."""
    if sp.issparse(rows):
        return rows.data[at], int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
    return rows.flat[at], *divmod(at, rows.shape[1])


def cell_error(rows: Any, at: int, remedy: str, *, name: str = "X", first_row: int = 0, cause: str = "") -> InputError:
    """Make the error that names one cell.

    Parameters
    ----------
    rows : ndarray or csr_matrix of shape (n_samples, n_features)
    at : int
        Position of the value among all values of dense rows, or among the stored ones of a CSR matrix.
    remedy : str
        Text after "but".
    name, first_row, cause
        See `check_finite`.
    """
    value, row, column = _cell(rows, at)
    row += first_row
    shown, after = "NaN" if np.isnan(value) else str(value).removesuffix(".0"), f" {cause}" if cause else ""
    return InputError(
        f"{name} holds {shown} at row {row:,}, column {column:,} (counted from 0){after}, but {remedy}",
        row=row,
        column=column,
    )


def check_rows(X: Any, *, first_row: int = 0) -> None:
    """Raise the same InputError as `rows_as_csr`, without making a sparse copy of dense rows.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n_samples, n_features), float32 or float64
    first_row : int
        Number of the first row in the caller's array, for error messages.

    Examples
    --------
    >>> import numpy as np
    >>> check_rows(np.array([[0.0], [np.nan]]))
    Traceback (most recent call last):
    ...
    dkfeat.errors.InputError: X holds NaN at row 1, column 0 (counted from 0), but ...
    """
    if sp.issparse(X):
        rows_as_csr(X, first_row=first_row)
        return
    step = max(1, _CHECKED_CELLS // max(1, X.shape[1]))
    for start in range(0, X.shape[0], step):
        if not np.isfinite(X[start : start + step]).all():
            rows_as_csr(X[start : start + step], first_row=first_row + start)  # raises


def rows_as_csr(X: Any, *, name: str = "X", first_row: int = 0) -> sp.csr_matrix:
    """Convert finite rows to canonical form: columns ascending in each row, no duplicates, no explicit zeros.

    `X` is never changed; a canonical CSR matrix is returned without a copy.

    Parameters
    ----------
    X : array or sparse matrix or array of shape (n_samples, n_features)
        Numbers of any real dtype, any order, any sparse format. Duplicate entries are summed.
    name : str
        The caller's name for the array.
    first_row : int
        Number of the first row in the caller's array, for error messages.

    Returns
    -------
    rows : csr_matrix of shape (n_samples, n_features), float32 or float64
        Integers and booleans become float64. Indices are int32 if possible with scipy.

    Raises
    ------
    InputError
        If `X` is not two-dimensional or not of real numbers, column indices are out of range, or a value is NaN or
        infinite.

    Examples
    --------
    >>> import numpy as np
    >>> rows_as_csr(np.array([[0, 3], [0, 0]])).nnz
    1
    """
    is_sparse = sp.issparse(X)
    if not is_sparse:
        if hasattr(X, "__dask_graph__") and sp.issparse(X._meta):  # numpy would make an array of one object
            check_in_memory(X, name)
        X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise InputError(f"{name} has shape {X.shape} and dtype {X.dtype}, but it must be a 2-D array of real numbers")
    warn_of_rounding(X, name)
    if X.dtype != np.float32 or not X.dtype.isnative:
        X = X.astype(np.float64, copy=False)
    rows = _canonical(X, name) if is_sparse else _dense_to_csr(X)
    check_finite(rows, name=name, first_row=first_row)
    return rows


def _canonical(X: Any, name: str) -> sp.csr_matrix:
    rows = X if type(X) is sp.csr_matrix else sp.csr_matrix(X)  # shares the arrays of a CSR input
    if rows.nnz and (rows.indices.min() < 0 or rows.indices.max() >= rows.shape[1]):
        raise InputError(
            f"{name} has {rows.shape[1]:,} columns, but its indices run from {rows.indices.min():,} to "
            f"{rows.indices.max():,}; build it with the right shape"
        )
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    return rows


def _dense_to_csr(X: NDArray[Any]) -> sp.csr_matrix:
    n_samples, n_features = X.shape
    held = np.flatnonzero((X != 0).ravel())  # numpy finds nonzero booleans three times faster than nonzero numbers
    row_starts = np.arange(n_samples + 1) * n_features
    indptr = np.searchsorted(held, row_starts)
    index_dtype = np.int32 if max(n_features, len(held)) <= _INT32_MAX else np.int64
    columns = (held - np.repeat(row_starts[:-1], np.diff(indptr))).astype(index_dtype)
    rows = sp.csr_matrix((X.reshape(-1)[held], columns, indptr.astype(index_dtype)), shape=X.shape)
    rows.has_canonical_format = True
    return rows
