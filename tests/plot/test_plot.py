"""Pictures: what is drawn is what was given, on the axes that were given."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
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


def test_variance_curves__of_maps_and_of_arrays(axes):
    maps = [GCWSFeatures(512, i_bits=16), FourierFeatures(512), FourierFeatures(512, normalize=False)]
    plot.variance_curves(maps, ax=axes)
    assert labels_of(axes) == [" ".join(repr(each).split()) for each in maps]
    at, drawn = axes.lines[0].get_data()
    np.testing.assert_allclose(drawn[1:-1], fourier.gcws_variance(at, 16)[1:-1] / 512)
    named = plot.variance_curves({"mine": ([0.1, 0.5], [1.0, 2.0]), "map": maps[1]}, ax=Figure().add_subplot())
    assert labels_of(named) == ["mine", "map"]
    assert named.lines[0].get_ydata().tolist() == [1.0, 2.0]
    assert len(plot.variance_curves(maps[0], ax=Figure().add_subplot()).lines) == 1


def test_variance_curves__refuse_what_has_none(axes):
    with pytest.raises(ConfigError, match="no variance for NystroemFeatures"):
        plot.variance_curves(NystroemFeatures(), ax=axes)
    with pytest.raises(ConfigError, match="mine: kernel values"):
        plot.variance_curves({"mine": ([0.1, 0.5], [1.0])}, ax=axes)


def test_code_histogram__counts_codes(axes):
    codes = np.array([[0, 1], [0, 3], [2, 1]])
    plot.code_histogram(codes, ax=axes)
    assert [round(bar.get_height() * 6) for bar in axes.patches] == [2, 2, 1, 1]
    one = plot.code_histogram(codes, component=0, bits=3, ax=Figure().add_subplot())
    assert [round(bar.get_height() * 3) for bar in one.patches] == [2, 0, 1, 0, 0, 0, 0, 0]
    wide = plot.code_histogram(np.array([[2**16 - 1]]), ax=Figure().add_subplot())
    assert len(wide.patches) == 256
    assert wide.patches[-1].get_height() == 1


def test_code_entropy__is_that_of_each_bit(axes):
    codes = np.array([[0, 3], [1, 3], [2, 3], [3, 3]])  # two even bits; two bits that all rows share
    plot.code_entropy(codes, ax=axes)
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0.5]
    assert axes.get_title() == "1.00 of 2 bits a code, 4 rows"
    uneven = plot.code_entropy(np.array([[0], [0], [0], [1]]), ax=Figure().add_subplot())
    assert uneven.patches[0].get_height() == pytest.approx(0.8112781)


def test_codes__of_a_data_set_are_those_of_its_map(data, axes):
    encoded, features = data.codes(), data.map
    mine = plot.code_histogram(encoded, features=features, ax=axes)
    theirs = plot.code_histogram(data, ax=Figure().add_subplot())
    assert [bar.get_height() for bar in mine.patches] == [bar.get_height() for bar in theirs.patches]
    some = plot.code_entropy(data, max_rows=20, ax=Figure().add_subplot())
    assert 15 <= int(some.get_title().split()[-2]) <= 20
    levels = GCWSFeatures(4, i_bits=3, t_bits=1, random_state=0).fit(np.eye(5))
    ticks = plot.code_entropy(levels.encode(np.eye(5)), features=levels, ax=Figure().add_subplot()).get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["0", "1", "2", "t0"]
    darts = DartFeatures(4, bits=3, random_state=0).fit(np.eye(5))
    ticks = plot.code_entropy(darts.encode(np.eye(5)), features=darts, ax=Figure().add_subplot()).get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["0", "1", "2"]
    with pytest.raises(ConfigError, match="need their map"):
        plot.code_histogram(encoded, features=FourierFeatures(4, random_state=0).fit(np.eye(5)))
    with pytest.raises(ConfigError, match="no row has features"):
        plot.code_histogram(darts.encode(np.zeros((2, 5))), features=darts, ax=axes)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.ones((2, 2)), "must be integers from 0"),
        (np.array([[-1]]), "must be integers from 0"),
        (np.empty((0, 3), int), "must be integers from 0"),
        (GCWSFeatures(4, random_state=0).fit(np.eye(2)).encode(np.eye(2)), "need their map"),
    ],
)
def test_codes__refuse_what_holds_none(axes, codes, message):
    with pytest.raises(ConfigError, match=message):
        plot.code_histogram(codes, ax=axes)


def test_shard_sizes__of_a_data_set_a_manifest_and_numbers(data, axes):
    rows = [entry.rows for entry in data.manifest.shards]
    for shards in (data, data.manifest, rows):
        drawn = plot.shard_sizes(shards, ax=Figure().add_subplot())
        assert [bar.get_height() for bar in drawn.patches] == rows
    plot.shard_sizes(data, unit="bytes", ax=axes)
    assert axes.get_ylabel() == "KiB"
    assert axes.patches[0].get_height() == data.manifest.shards[0].size / 1024
    assert plot.shard_sizes([3 << 20], unit="bytes", ax=Figure().add_subplot()).get_ylabel() == "MiB"
    assert len(plot.shard_sizes([7] * 1000, ax=Figure().add_subplot()).patches) == 1  # one outline for many
    assert plot.shard_sizes([], ax=Figure().add_subplot()).get_legend() is None
    with pytest.raises(ConfigError, match="unit='files'"):
        plot.shard_sizes(data, unit="files", ax=axes)


def test_a_new_figure__is_pyplots_and_leaves_its_settings_alone():
    before = dict(plt.rcParams)
    drawn = plot.shard_sizes([1, 2])
    try:
        assert plt.gcf() is drawn.figure
        assert dict(plt.rcParams) == before
        assert drawn.patches[0].get_facecolor() == to_rgba("#1f5fa8")
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
    assert {path.name for path in tmp_path.glob("*.png")} == {"estimates.png", "variances.png", "shards.png"}
