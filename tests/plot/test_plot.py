"""Pictures: what is drawn is what was given, on the axes that were given."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from dkfeat import GCWSFeatures, NystroemFeatures, plot
from dkfeat.theory import fourier


@pytest.fixture
def axes():
    return Figure().add_subplot()


def labels_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_kernel_estimates__draw_each_pair_and_the_band(axes):
    exact = np.linspace(0, 1, 500)
    estimates, deviations = exact + 0.01, np.sqrt(fourier.gcws_variance(exact) / 256)
    assert plot.kernel_estimates(exact, estimates, deviations=deviations, ax=axes) is axes
    band, dots = axes.collections
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([exact, estimates]))
    assert labels_of(axes) == ["theory, \N{PLUS-MINUS SIGN} 2 standard errors", "500 pairs of rows,\nRMS error 0.01"]
    corners = band.get_paths()[0].vertices
    middle = corners[np.argsort(np.abs(corners[:, 0] - 0.5), kind="stable")[:2]]  # two standard errors on either side
    assert np.ptp(middle[:, 1]) == pytest.approx(4 * 0.5 / 16, rel=0.01)
    assert corners[:, 0].min() == 0
    assert corners[:, 0].max() == 1


def test_kernel_estimates__take_what_a_map_gives(axes):
    X = load_digits().data[:60]
    pairs = GCWSFeatures(128, random_state=0).fit(X).kernel_pairs(X, n_rows=30)
    plot.kernel_estimates(pairs, ax=axes)
    assert len(axes.collections[-1].get_offsets()) == len(pairs) == 435
    assert axes.get_xlabel() == "exact GMM"
    pairs = NystroemFeatures(20, random_state=0).fit(X).kernel_pairs(X, n_rows=30)
    assert len(plot.kernel_estimates(pairs, ax=Figure().add_subplot()).collections) == 1  # no band


@pytest.mark.parametrize(
    ("exact", "estimates", "message"),
    [([1.0], None, "estimates are missing"), ([1.0, 2.0], [1.0], "shapes"), ([], [], "at least one element")],
)
def test_kernel_estimates__refuse_what_is_no_pair(axes, exact, estimates, message):
    with pytest.raises(ValueError, match=message):
        plot.kernel_estimates(exact, estimates, ax=axes)


def test_a_new_figure__is_pyplots_and_leaves_its_settings_alone():
    before = dict(plt.rcParams)
    drawn = plot.kernel_estimates([0.2, 0.5], [0.3, 0.4])
    try:
        assert plt.gcf() is drawn.figure
        assert dict(plt.rcParams) == before
        assert not drawn.spines["top"].get_visible()  # dkfeat's style
    finally:
        plt.close(drawn.figure)
