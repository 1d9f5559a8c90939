"""Exact dot-product kernels: power series of the inner product with non-negative coefficients.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels._rows import inner_products, paired_rows
from dkfeat.validation import check_integer, check_real

_MAX_DEGREE = 10_000
"""Maximum degree: higher powers are 0, 1 or too large, except for inner products close to 1."""

_MOST_SQUARED = 32
"""Maximum degree of a power that is computed by squares, with an error of at most 32 units in the last place."""


def polynomial(X: Any, Y: Any = None, degree: int = 3, coef0: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of the polynomial kernel :math:`(x^\top y + c)^r`; homogeneous for c = 0.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows with finite values; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    degree : int, default=3
        r, from 1 to 10,000.
    coef0 : float, default=1.0
        c, at least 0.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, a value is NaN or infinite, or a result overflows; the message names the cell or
        rows.
    dkfeat.errors.ConfigError
        If degree or coef0 is out of range.

    See Also
    --------
    maclaurin : Kernel for any power series.

    Notes
    -----
    Equal to scikit-learn's ``polynomial_kernel`` with gamma = 1. Time is that of one matrix product, sparse or dense.

    Examples
    --------
    >>> import numpy as np
    >>> polynomial(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 1.0]]), degree=2)
    array([[16.,  9.]])
    """
    degree = check_integer(degree, "degree", low=1, high=_MAX_DEGREE)
    coef0 = check_real(coef0, "coef0", low=0)
    return _gram("polynomial", X, Y, degree=degree, coef0=coef0)


def vovk_real(X: Any, Y: Any = None, degree: int = 3) -> NDArray[np.float64]:
    r"""Gram block of Vovk's real polynomial kernel, :math:`\frac{1 - (x^\top y)^r}{1 - x^\top y}`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows with finite values; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    degree : int, default=3
        r, from 1 to 10,000.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, a value is NaN or infinite, or a result overflows; the message names the cell or
        rows.
    dkfeat.errors.ConfigError
        If degree is out of range.

    See Also
    --------
    vovk_infinite : Limit of this kernel for infinite degree.

    Notes
    -----
    Computed as the sum :math:`\sum_{n < r} (x^\top y)^n`, so rows of any length are allowed.

    Examples
    --------
    >>> import numpy as np
    >>> vovk_real(np.array([[1.0]]), np.array([[0.5], [1.0], [2.0]]), degree=3)
    array([[1.75, 3.  , 7.  ]])
    """
    degree = check_integer(degree, "degree", low=1, high=_MAX_DEGREE)
    return _gram("vovk_real", X, Y, degree=degree)


def vovk_infinite(X: Any, Y: Any = None, alpha: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of Vovk's infinite polynomial kernel, :math:`(1 - x^\top y)^{-\alpha}`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows with finite values and inner products in (-1, 1); rows shorter than 1 always satisfy this. Any real dtype,
        any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    alpha : float, default=1.0
        Exponent, above 0.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64

    Raises
    ------
    dkfeat.errors.InputError
        If two rows have an inner product out of range (the message names both, and ``row`` is the first), if X and Y
        differ in width, or if a value is NaN or infinite.
    dkfeat.errors.ConfigError
        If alpha is out of range.

    See Also
    --------
    vovk_real : Partial sum of this kernel, for rows of any length.

    Examples
    --------
    >>> import numpy as np
    >>> vovk_infinite(np.array([[1.0]]), np.array([[0.5], [0.75]]))
    array([[2., 4.]])
    """
    alpha = check_real(alpha, "alpha", above=0)
    return _gram("vovk_infinite", X, Y, alpha=alpha)


def exponential_dot_product(X: Any, Y: Any = None, gamma: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of the exponential dot-product kernel, :math:`e^{\gamma x^\top y}`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows with finite values; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    gamma : float, default=1.0
        Above 0, in 1 / (unit of the values)²; the :math:`1/\sigma^2` of the paper.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, a value is NaN or infinite, or a result overflows; the message names the cell or
        rows.
    dkfeat.errors.ConfigError
        If gamma is out of range.

    See Also
    --------
    dkfeat.kernels.exponential_semigroup : Kernel of the sums of non-negative rows.

    Examples
    --------
    >>> import numpy as np
    >>> exponential_dot_product(np.array([[1.0, 1.0]]), np.array([[2.0, 1.0]]), gamma=np.log(2)).round(12)
    array([[8.]])
    """
    gamma = check_real(gamma, "gamma", above=0)
    return _gram("exponential_dot_product", X, Y, gamma=gamma)


def maclaurin(X: Any, Y: Any = None, coefficients: Iterable[float] = (1.0, 1.0)) -> NDArray[np.float64]:
    r"""Gram block of any power series of the inner product, :math:`\sum_n a_n (x^\top y)^n`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows with finite values; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    coefficients : iterable of float, default=(1.0, 1.0)
        :math:`a_0, a_1, \dots`, at least one, none negative. This is necessary and sufficient for a kernel in every
        dimension.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, a value is NaN or infinite, or a result overflows; the message names the cell or
        rows.
    dkfeat.errors.ConfigError
        If there are no coefficients, or one is negative or not finite.

    See Also
    --------
    polynomial, vovk_real, vovk_infinite, exponential_dot_product : Power series with a closed form.

    Examples
    --------
    >>> import numpy as np
    >>> maclaurin(np.array([[2.0]]), coefficients=[1.0, 0.0, 0.5, 0.25])
    array([[25.]])
    """
    listed = list(coefficients) if isinstance(coefficients, Iterable) else []
    given = [check_real(value, f"coefficients[{n}]", low=0) for n, value in enumerate(listed)]
    if not given:
        raise ConfigError(
            f"coefficients={coefficients!r}, but a kernel needs a list of at least one; give a_0, a_1, ..."
        )
    return _gram("maclaurin", X, Y, coefficients=given)


def _gram(kernel: str, X: Any, Y: Any, **params: Any) -> NDArray[np.float64]:
    return of_inner_products(kernel, inner_products(*paired_rows(X, Y)), params)


def of_inner_products(kernel: str, products: NDArray[np.float64], params: Mapping[str, Any]) -> NDArray[np.float64]:
    """Turn finite inner products of rows X and Y into values of a kernel of this module, in their place.

    Parameters
    ----------
    kernel : str
        One of `OF_INNER_PRODUCTS`.
    products : ndarray of shape (n_x, n_y), float64
    params : mapping
        All parameters of the kernel, checked.

    Raises
    ------
    dkfeat.errors.InputError
        If a value overflows, or an inner product is outside the domain of the kernel.

    Examples
    --------
    >>> of_inner_products("polynomial", np.array([[3.0]]), {"degree": 2, "coef0": 1.0})
    array([[16.]])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _without_overflow(OF_INNER_PRODUCTS[kernel](_without_overflow(products), **params))


def _polynomial(products: NDArray[np.float64], *, degree: int, coef0: float) -> NDArray[np.float64]:
    products += coef0
    return _power(products, degree)


def _power(base: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    """Compute a power in place, by squares if the degree is so low that rounding errors stay small."""
    if degree > _MOST_SQUARED:
        return np.asarray(np.power(base, degree, out=base))
    result = base.copy() if degree > 1 else base
    for bit in bin(degree)[3:]:
        result *= result
        if bit == "1":
            result *= base
    return result


def _vovk_infinite(products: NDArray[np.float64], *, alpha: float) -> NDArray[np.float64]:
    domain = "Vovk's infinite polynomial kernel is defined for inner products between -1 and 1, not"
    _check_pairs(products, np.abs(products) < 1, domain, "divide all rows by more than the length of the longest row")
    return np.asarray((1 - products) ** -alpha)


def _exponential(products: NDArray[np.float64], *, gamma: float) -> NDArray[np.float64]:
    products *= gamma
    return np.exp(products, out=products)


def _series(products: NDArray[np.float64], *, coefficients: Sequence[float]) -> NDArray[np.float64]:
    """Evaluate the series by Horner's scheme; partial sums overflow only if the result does, up to cancellation."""
    total = np.full_like(products, coefficients[-1])
    for a in coefficients[-2::-1]:
        total *= products
        total += a
    return total


OF_INNER_PRODUCTS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "polynomial": _polynomial,
    "vovk_real": lambda products, *, degree: _series(products, coefficients=[1.0] * degree),
    "vovk_infinite": _vovk_infinite,
    "exponential_dot_product": _exponential,
    "maclaurin": _series,
}
"""What each kernel computes from the inner products of rows X and Y."""


def _without_overflow(block: NDArray[np.float64]) -> NDArray[np.float64]:
    _check_pairs(block, np.isfinite(block), "the kernel overflows float64: it is", "divide all rows by a common number")
    return block


def _check_pairs(values: NDArray[np.float64], valid: NDArray[np.bool_], problem: str, remedy: str) -> None:
    if not valid.all():
        i, j = np.unravel_index(valid.argmin(), valid.shape)
        raise InputError(
            f"{problem} {values[i, j]:g} for row {i:,} of the first block and row {j:,} of the second (counted from "
            f"0); {remedy}",
            row=int(i),
        )
