"""Draws the figures of the pages of explanations: theory as lines, what the maps give as dots.

The times of "Which map" and the workers of "Sizing" are those in the tables of these pages; all other dots are
computed.

    python docs/explanation/figures.py              # all, into docs/explanation/images
    python docs/explanation/figures.py fourier      # one

Needs the extra `plot`. The same versions give the same files.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dkfeat import (
    DartFeatures,
    FourierFeatures,
    GCWSFeatures,
    LaplaceFeatures,
    MaclaurinFeatures,
    NystroemFeatures,
    kernels,
    plot,
)
from dkfeat.engine.runners.base import BATCHES_PER_SECOND
from dkfeat.theory import fourier

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "jobs"))

from map_costs import dart_us, gcws_us
from reproduction.experiment import Picture
from reproduction.pages.figures import DARK, LIGHT, draw
from reproduction.theory import circulant, maclaurin

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, RED, GREY = "C0", "C1", "C2", "C3", "C6"  # of the style
SEEDS = 1000
COMPONENTS = 2**16
SIZES = 2 ** np.arange(4, 11)


def gcws(figure: Any) -> None:
    """Mean squared error of the GMM kernel's estimate from codes, times k; and the 0-bit bias."""
    left, right = figure.subplots(2)
    at = np.linspace(0, 1, 200)
    pairs = _rows_that_share()
    similarity = np.array([kernels.gmm(pair)[0, 1] for pair in pairs])
    for bits, colour in ((1, RED), (2, ORANGE), (4, GREEN), (8, BLUE)):
        left.plot(at, fourier.gcws_variance(at, i_bits=bits), color=colour, label=f"b = {bits}")
        left.plot(similarity, _code_errors(pairs, similarity, GCWSFeatures(64, i_bits=bits)), "o", color=colour)
    left.plot(at, fourier.gcws_variance(at), "--", color=GREY, label="GMM (1 − GMM)")
    left.set(
        xlabel="GMM", ylabel="k × mean squared error", title="Lines: theory; dots: measured at k = 64", ylim=(0, None)
    )
    left.legend(title="i_bits")
    for t_bits, colour in ((0, BLUE), (1, ORANGE), (2, GREEN)):
        _draw_bias(right, GCWSFeatures(COMPONENTS, t_bits=t_bits), colour, f"t_bits = {t_bits}")
    right.set(xlabel="GMM", ylabel="bias", title="Bias, at its worst: 6 columns, heavy tails")
    right.legend()


def darts(figure: Any) -> None:
    """Mean squared error of the GMM kernel's estimate from darts, times k; and its bias, beside that of GCWS."""
    left, right = figure.subplots(2)
    at = np.linspace(0, 1, 200)
    pairs = _rows_that_share()
    similarity = np.array([kernels.gmm(pair)[0, 1] for pair in pairs])
    for bits, colour in ((1, RED), (2, ORANGE), (4, GREEN), (8, BLUE)):
        left.plot(at, fourier.gcws_variance(at, bits), color=colour, label=f"b = {bits}")
        left.plot(similarity, _code_errors(pairs, similarity, DartFeatures(64, bits=bits)), "o", color=colour)
    left.set(
        xlabel="GMM", ylabel="k × mean squared error", title="Lines: theory; dots: measured at k = 64", ylim=(0, None)
    )
    left.legend(title="bits")
    for name, features, colour in (
        ("GCWS, 8 bits", GCWSFeatures(COMPONENTS), GREY),
        ("darts, 8 bits", DartFeatures(COMPONENTS), BLUE),
    ):
        _draw_bias(right, features, colour, name)
    right.set(xlabel="GMM", ylabel="bias", title="Bias: 6 columns, heavy tails")
    right.legend()


def _draw_bias(axes: Any, unfitted: Any, colour: str, label: str) -> None:
    """Draw the bias of estimates from codes, for rows on which that of GCWS is large."""
    pairs = _narrow_rows()
    similarity = np.array([kernels.gmm(pair)[0, 1] for pair in pairs])
    features = unfitted.set_params(random_state=0).fit(pairs[0])
    estimates = [features.estimate_kernel(features.encode(pair))[0, 1] for pair in pairs]
    axes.plot(similarity, estimates - similarity, "o", color=colour, label=label)
    axes.axhline(0, color=GREY, lw=0.8)


def _rows_that_share(n_columns: int = 600) -> list[NDArray[np.float64]]:
    """Pairs of lognormal rows, from disjoint ones to nearly equal ones."""
    rng = np.random.default_rng(0)
    pairs = []
    for shared in np.linspace(0, 0.98, 9):
        pair = np.zeros((2, 2 * n_columns))
        pair[:, :n_columns] = rng.lognormal(size=n_columns)
        pair[1, n_columns:] = rng.lognormal(size=n_columns)
        kept = rng.random(n_columns) < shared
        pair[1] = np.where(np.concatenate([kept, ~kept]), pair[1], 0)
        pairs.append(pair)
    return pairs


def _narrow_rows() -> list[NDArray[np.float64]]:
    """Pairs of six values over several orders of magnitude, from unlike to nearly equal ones."""
    rng = np.random.default_rng(0)
    rows = rng.lognormal(sigma=3, size=(30, 1, 6))
    return list(rows * rng.lognormal(sigma=np.linspace(0, 4, 30)[:, None, None], size=(30, 2, 6)))


def _code_errors(pairs: list[NDArray[np.float64]], similarity: NDArray[np.float64], unfitted: Any) -> NDArray:
    """Give k times the mean squared error, over maps of many seeds."""
    X = np.vstack(pairs)
    error = np.empty((SEEDS, len(pairs)))
    for seed in range(SEEDS):
        features = unfitted.set_params(random_state=seed).fit(X)
        error[seed] = np.diag(features.estimate_kernel(features.encode(X)), 1)[::2] - similarity
    return unfitted.n_components * (error**2).mean(axis=0)


def fourier_features(figure: Any) -> None:
    """Variance of RFF and NRFF, and mean squared error of the structured projections."""
    left, right = figure.subplots(2)
    rho = np.linspace(-1, 1, 200)
    at = np.linspace(-0.9, 0.95, 11)
    for gamma, colour in ((1.0, BLUE), (5.0, ORANGE)):
        left.plot(rho, fourier.rff_variance(rho, gamma), "--", color=colour, label=f"RFF, γ = {gamma:g}")
        left.plot(rho, fourier.nrff_variance(rho, gamma), color=colour, label=f"NRFF, γ = {gamma:g}")
        for normalize, marker in ((False, "s"), (True, "o")):
            left.plot(at, _rbf_errors(at, gamma, normalize=normalize), marker, color=colour, mfc="none")
    left.set(xlabel="cosine ρ", ylabel="k × variance", title="Theorems 2 and 3; marks: measured at k = 64")
    left.legend()
    projections = ("dense", "circulant", "alternating_circulant", "fastfood", "orthogonal")
    for projection, colour in zip(projections, (BLUE, RED, ORANGE, GREEN, GREY), strict=True):
        right.plot(
            at, _rbf_errors(at, 1.0, normalize=False, projection=projection), "o-", color=colour, label=projection
        )
    right.set(
        xlabel="cosine ρ", ylabel="k × mean squared error", title="RFF by projection, γ = 1, 64 columns", ylim=(0, None)
    )
    right.legend()


def _rbf_errors(rho: NDArray[np.float64], gamma: float, *, k: int = 64, d: int = 64, **options: Any) -> NDArray:
    """Give k times the mean squared error for pairs of unit rows with these cosines, over maps of many seeds."""
    rows = np.linalg.qr(np.random.default_rng(1).normal(size=(d, 2)))[0].T
    X = np.vstack([rows[:1], np.outer(rho, rows[0]) + np.outer(np.sqrt(1 - rho**2), rows[1])])
    error = np.empty((SEEDS, len(rho)))
    for seed in range(SEEDS):
        features = FourierFeatures(k, gamma=gamma, random_state=seed, **options).fit(X).transform(X)
        error[seed] = features[1:] @ features[0] - np.exp(-gamma * (1 - rho))
    return k * (error**2).mean(axis=0)


def laplace_features(figure: Any) -> None:
    """Mean squared error of Laplace features by projection, for histograms of growing weight."""
    axes = figure.subplots(2)
    rng = np.random.default_rng(2)
    d = 64
    histograms = rng.dirichlet(np.full(d, 0.5), size=2)
    projections = (
        ("dense", 1, BLUE),
        ("alternating_circulant", 6, GREEN),
        ("alternating_circulant", 2, ORANGE),
        ("circulant", 1, RED),
    )
    for axis, kernel, factor, scales in (
        (axes[0], "exponential", circulant.exponential_log_factor, np.geomspace(0.001, 1, 9)),
        (axes[1], "reciprocal", circulant.reciprocal_log_factor, np.geomspace(0.02, 5, 9)),
    ):
        exact = np.array([math.exp(factor(z).sum()) for z in np.outer(scales, histograms.sum(axis=0))])
        for projection, mixtures, colour in projections:
            options = {"kernel": kernel, "projection": projection, "n_mixtures": mixtures}
            axis.plot(exact, _laplace_errors(histograms, scales, exact, **options), "o", color=colour)
            fine = np.geomspace(scales[0], scales[-1], 40)
            lines = [
                (math.exp(factor(z).sum()), _laplace_theory(z, factor, projection, mixtures))
                for z in np.outer(fine, histograms.sum(axis=0))
            ]
            name = projection.replace("_", " ") + (f", m = {mixtures}" if projection.startswith("alt") else "")
            axis.plot(*np.transpose(lines), color=colour, label=name)
        axis.set(
            xlabel="kernel", ylabel="k × mean squared error", title=f"{kernel} semigroup, k = d = 64", yscale="log"
        )
        axis.set_ylim(axis.get_ylim()[1] / 3e4)
    axes[0].legend()


def _laplace_theory(z: NDArray[np.float64], factor: circulant.LogFactor, projection: str, mixtures: int) -> float:
    """Give k times the variance that Theorems 1 to 3 give."""
    if projection == "dense":
        return circulant.laplace_variance(z, factor)
    covariances = [circulant.alternating_covariance(z, factor, mixtures, shift) for shift in range(len(z))]
    return len(z) * circulant.estimator_variance(covariances, len(z))


def _laplace_errors(
    histograms: NDArray[np.float64], scales: NDArray[np.float64], exact: NDArray[np.float64], **options: Any
) -> NDArray[np.float64]:
    """Give k times the mean squared error, over maps of many seeds."""
    X, Y = (np.outer(scales, histogram) for histogram in histograms)
    error = np.empty((SEEDS, len(scales)))
    for seed in range(SEEDS):
        features = LaplaceFeatures(X.shape[1], random_state=seed, **options).fit(X)
        error[seed] = (features.transform(X) * features.transform(Y)).sum(axis=1) - exact
    return X.shape[1] * (error**2).mean(axis=0)


def maclaurin_features(figure: Any) -> None:
    """Variance of Maclaurin features by the measure that degrees are drawn from."""
    left, right = figure.subplots(2)
    cosines = np.linspace(-1, 1, 81)
    at = np.linspace(-0.9, 1, 9)
    for axis, options, title in (
        (left, {"kernel": "polynomial", "degree": 7, "coef0": 1.0}, "(t + 1)⁷ / 2⁷, rows of length 1"),
        (right, {"kernel": "exponential"}, "exp(t) / e, rows of length 1"),
    ):
        for name, more, colour in (
            ("P = (p − 1) / pⁿ⁺¹, p = 2", {"measure": "proper"}, RED),
            ("P ∝ aₙ R²ⁿ", {}, BLUE),
            ("P ∝ aₙ R²ⁿ, H0/1", {"h01": True}, GREEN),
        ):
            axis.plot(at, _maclaurin_errors(at, **options, **more), "o", color=colour)
            axis.plot(cosines, _maclaurin_theory(cosines, options, more), color=colour, label=name)
        axis.set(xlabel="t", ylabel="k × variance / f(1)²", title=title, yscale="log", xticks=np.linspace(-1, 1, 5))
    left.legend()


def _unit_rows(cosines: NDArray[np.float64], d: int = 32) -> NDArray[np.float64]:
    """One row of length 1, then rows of length 1 at these cosines to it."""
    first, other = np.linalg.qr(np.random.default_rng(3).normal(size=(d, 2)))[0].T
    return np.vstack([first, np.outer(cosines, first) + np.outer(np.sqrt(1 - cosines**2), other)])


def _maclaurin_errors(cosines: NDArray[np.float64], **options: Any) -> NDArray[np.float64]:
    """Give k times the mean squared error over maps of many seeds, in units of f(1)^2."""
    rows = _unit_rows(cosines)
    exact = (cosines + 1) ** 7 if options["kernel"] == "polynomial" else np.exp(cosines)
    top = 2.0**7 if options["kernel"] == "polynomial" else math.e
    k = 64
    found = np.empty((4 * SEEDS, len(cosines)))
    for seed in range(len(found)):
        Z = MaclaurinFeatures(k, random_state=seed, radius=1.001, **options).fit_transform(rows)
        found[seed] = Z[1:] @ Z[0]
    return k * ((found - exact) ** 2).mean(axis=0) / top**2


def _maclaurin_theory(cosines: NDArray[np.float64], options: dict[str, Any], more: dict[str, Any]) -> list[float]:
    rows = _unit_rows(cosines)
    if options["kernel"] == "polynomial":
        series = np.array([math.comb(7, n) for n in range(8)], float)
    else:
        series = np.array([1 / math.factorial(n) for n in range(20)])
    kept = np.where(np.arange(len(series)) < 2, 0.0, series) if more.get("h01") else series
    probabilities = kept / kept.sum() if "measure" not in more else 2.0 ** -np.arange(1, len(series) + 1)
    top = series.sum() ** 2
    return [maclaurin.component_variance(kept, probabilities, rows[0], row) / top for row in rows[1:]]


def nystroem_features(figure: Any) -> None:
    """Errors of Gram matrices of digits by number of components: Nyström beside random features."""
    axes = figure.subplots(2)
    X = load_digits(return_X_y=True)[0][::4]
    gamma = 5.0
    for axis, exact, title, maps in (
        (
            axes[0],
            kernels.gmm(X),
            "GMM kernel, 450 digits",
            {
                "Nyström": lambda k, seed: NystroemFeatures(k, random_state=seed),
                "GCWS, 8 bits": lambda k, seed: GCWSFeatures(k, random_state=seed),
            },
        ),
        (
            axes[1],
            kernels.rbf_cosine(X, gamma=gamma),
            f"RBF of the cosine, γ = {gamma:g}",
            {
                "Nyström": lambda k, seed: NystroemFeatures(
                    k, kernel="rbf_cosine", kernel_params={"gamma": gamma}, random_state=seed
                ),
                "NRFF": lambda k, seed: FourierFeatures(k, gamma=gamma, random_state=seed),
                "RFF": lambda k, seed: FourierFeatures(k, gamma=gamma, normalize=False, random_state=seed),
            },
        ),
    ):
        for (name, make), colour in zip(maps.items(), (BLUE, ORANGE, GREY), strict=False):
            errors = [
                np.mean([_gram_error(make(int(k), seed), X, exact) for seed in range(min(5, SEEDS))]) for k in SIZES
            ]
            drawn = len(X) > SIZES if name == "Nyström" else SIZES > 0  # all rows as landmarks: no error is left
            axis.plot(SIZES[drawn], np.array(errors)[drawn], "o-", color=colour, label=name)
        axis.set(xlabel="k", ylabel="root mean squared error", title=title, xscale="log", yscale="log", xticks=SIZES)
        axis.set_xticklabels(SIZES)
        axis.minorticks_off()
        axis.legend()


def _gram_error(unfitted: Any, X: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    features = unfitted.fit(X)
    found = features.estimate_kernel(features.encode(X))
    return float(np.sqrt(np.mean((found - exact) ** 2)))


def pictures(figure: Any) -> None:
    """Show what `dkfeat.plot` draws of digits: estimates and theory."""
    axes = figure.subplots(2)
    X = load_digits(return_X_y=True)[0]
    features = GCWSFeatures(256, random_state=0).fit(X)
    plot.kernel_estimates(features.kernel_pairs(X), ax=axes[0])
    maps = {f"GCWS, k = {k:,}": GCWSFeatures(k) for k in (128, 512, 2048)}
    values = np.linspace(1 / 257, 1 - 1 / 257, 256)
    for name, each in {**maps, "NRFF, k = 512": FourierFeatures(512)}.items():
        axes[1].semilogy(values, each.expected_error_at(values) ** 2, label=name)
    axes[1].set(xlabel="kernel", ylabel="variance of an estimate")
    axes[1].legend(fontsize=9)


def choosing(figure: Any) -> None:
    """Time of a row under GCWS and darts by nonzeros, and the nonzeros at which both take as long."""
    left, right = figure.subplots(2)
    text = (Path(__file__).parent / "choosing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d,]+) \|(.*)\|$", text, re.MULTILINE)
    nonzeros = np.array([float(first.replace(",", "")) for first, _ in rows])
    *gcws_times, dart_times = np.array([[float(x.replace(",", "")) for x in rest.split("|")] for _, rest in rows]).T
    fine = np.geomspace(nonzeros[0], nonzeros[-1], 50)
    for uses, times, colour in zip((1, 4, 100), gcws_times, (RED, ORANGE, BLUE), strict=True):
        left.plot(nonzeros, times, "o", color=colour)
        label = f"gcws, {uses} use{'s' * (uses > 1)}"
        left.plot(fine, [gcws_us(n, uses, 512) for n in fine], color=colour, label=label)
    left.plot(nonzeros, dart_times, "s", color=GREEN)
    left.plot(fine, [dart_us(n, 512) for n in fine], color=GREEN, lw=2.5, label="dart")
    left.set(xscale="log", yscale="log", xlabel="nonzeros of a row", ylabel="µs a row")
    left.set_title("Time at k = 512; dots: measured, lines: estimated")
    left.legend()
    at = np.geomspace(1, 1000, 200)
    for k, colour in ((64, BLUE), (128, ORANGE), (512, GREEN)):
        right.plot(at, [_equal_costs(uses, k) for uses in at], color=colour, label=f"k = {k}")
    right.set(xscale="log", yscale="log", xlabel="uses of a column in a block of rows", ylabel="nonzeros of a row")
    right.set(ylim=(10, 30_000), title="Above its line dart is faster, below it gcws")
    right.legend()


def _equal_costs(uses: float, k: int) -> float:
    """Give the nonzeros at which a row takes as long under GCWS as under darts; NaN if GCWS is always faster."""
    slope = (gcws_us(1e9, uses, k) - dart_us(1e9, k)) / 1e9
    return dart_us(0, k) / slope if slope > 0 else math.nan


def workers(figure: Any) -> None:
    """Share of time that workers are busy, measured, and how many of them one driver feeds."""
    left, right = figure.subplots(2)
    text = (Path(__file__).parent / "sizing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    counts, _, busy, milliseconds = np.array(rows, dtype=float).T
    left.plot(counts, busy, "o-", color=BLUE)
    left.set(xlabel="workers of one thread", ylabel="share of time that they are busy", ylim=(0, 1.05))
    left.set(xlim=(0, None), title="Tasks of 0.5 to 1 s; dots: measured")
    seconds = np.geomspace(0.05, 10, 100)
    rate = 1000 / milliseconds[-1]
    right.plot(seconds, rate * seconds, color=ORANGE, label=f"one core of the driver: {rate:,.0f} tasks/s")
    right.plot(seconds, 2 * BATCHES_PER_SECOND * seconds, color=GREEN, label="beyond this line tasks are joined")
    right.plot(np.full(len(counts), 0.75), counts, "o", color=BLUE, label="measured")
    right.set(xscale="log", yscale="log", xlabel="seconds of a task", ylabel="workers of one thread")
    right.set_title("Workers that one driver feeds")
    right.legend()


FIGURES: dict[str, Callable[[Any], None]] = {
    "choosing": choosing,
    "gcws": gcws,
    "darts": darts,
    "fourier": fourier_features,
    "laplace": laplace_features,
    "maclaurin": maclaurin_features,
    "nystroem": nystroem_features,
    "pictures": pictures,
    "workers": workers,
}


def main(names: list[str]) -> None:
    """Draw the figures of these names, or all, for light and for dark pages."""
    IMAGES.mkdir(exist_ok=True)
    for name in names or FIGURES:
        picture = Picture(name, name, lambda figure, _, paint=FIGURES[name]: paint(figure), {}, name, height=6.2)
        for style in (LIGHT, DARK):
            path = IMAGES / f"{name}-{style.name}.png"
            path.write_bytes(draw(picture, style))
            print(path, f"{path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
