"""Pictures: what is drawn is what was given, on the axes that were given."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import entropy
from sklearn.datasets import load_digits

import dkfeat
from dkfeat import DartFeatures, FourierFeatures, GCWSFeatures, NystroemFeatures, plot
from dkfeat.errors import ConfigError
from dkfeat.theory import fourier
from tests.docs.pages import run_page
from tests.engine.helpers import featurized


@pytest.fixture
def axes():
    return Figure().add_subplot()


@pytest.fixture(scope="module")
def data(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plot") / "features"
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=3_000), folder)
    return dkfeat.open_shards(folder)


def labels_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_kernel_estimates__draw_each_pair_and_the_band(axes):
    exact = np.linspace(0, 1, 500)
    estimates, deviations = exact + 0.01, np.sqrt(fourier.gcws_variance(exact) / 256)
    assert plot.kernel_estimates(exact, estimates, deviations=deviations, ax=axes) is axes
    band, dots = axes.collections
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([exact, estimates]))
    assert labels_of(axes) == [
        "theory, \N{PLUS-MINUS SIGN} 2 standard errors",
        "500 pairs of rows,\nRMS error 0.01",
    ]
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


def test_variance_curves__of_maps(axes):
    maps = [GCWSFeatures(512, i_bits=16), FourierFeatures(512), FourierFeatures(512, normalize=False)]
    plot.variance_curves(maps, ax=axes)
    assert labels_of(axes) == [" ".join(repr(each).split()) for each in maps]
    at, drawn = axes.lines[0].get_data()
    np.testing.assert_allclose(drawn[1:-1], fourier.gcws_variance(at, 16)[1:-1] / 512)
    named = plot.variance_curves({"mine": maps[0], "map": maps[1]}, ax=Figure().add_subplot())
    assert labels_of(named) == ["mine", "map"]
    assert len(plot.variance_curves(maps[0], ax=Figure().add_subplot()).lines) == 1


def test_variance_curves__refuse_what_has_none(axes):
    with pytest.raises(ConfigError, match="no variance for NystroemFeatures"):
        plot.variance_curves(NystroemFeatures(), ax=axes)


def test_code_entropy__is_that_of_each_bit(data, axes):
    features = GCWSFeatures(4, i_bits=2, t_bits=1, random_state=0).fit(np.eye(5))
    X = np.vstack([np.eye(5), np.zeros((2, 5))])  # rows without features do not count
    plot.code_entropy(features.encode(X), features=features, ax=axes)
    bits = features.transform(X).toarray()[:5].reshape(5, 4, 8).argmax(axis=2)[..., None] >> [0, 1, 2] & 1
    expected = entropy([bits.mean(axis=0), 1 - bits.mean(axis=0)], base=2).mean(axis=0)
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], expected)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1", "t0"]
    assert axes.get_title().endswith(" of 3 bits a code, 5 rows")
    some = plot.code_entropy(data, max_rows=20, ax=Figure().add_subplot())
    assert 15 <= int(some.get_title().split()[-2]) <= 20
    darts = DartFeatures(4, bits=3, random_state=0).fit(np.eye(5))
    ticks = plot.code_entropy(darts.encode(np.eye(5)), features=darts, ax=Figure().add_subplot()).get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["0", "1", "2"]
    for map_ in (None, FourierFeatures(4, random_state=0).fit(np.eye(5))):
        with pytest.raises(ConfigError, match="need their map"):
            plot.code_entropy(features.encode(X), features=map_)
    with pytest.raises(ConfigError, match="no row has features"):
        plot.code_entropy(darts.encode(np.zeros((2, 5))), features=darts)


def test_a_new_figure__is_pyplots_and_leaves_its_settings_alone():
    before = dict(plt.rcParams)
    drawn = plot.kernel_estimates([0.2, 0.5], [0.3, 0.4])
    try:
        assert plt.gcf() is drawn.figure
        assert dict(plt.rcParams) == before
        assert not drawn.spines["top"].get_visible()  # dkfeat's style
    finally:
        plt.close(drawn.figure)


@pytest.mark.slow
def test_pictures_page__runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        names = run_page("how-to/pictures.md")
    finally:
        plt.close("all")
    assert "GMM: 2,016 pairs of rows, root mean squared error 0.0" in capsys.readouterr().out
    assert names["pairs"].share_within > 0.85
    assert {path.name for path in tmp_path.glob("*.png")} == {"estimates.png", "variances.png", "bits.png"}
