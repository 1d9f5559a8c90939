"""What a notebook shows of feature maps."""

import re

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dkfeat import FourierFeatures, GCWSFeatures, LaplaceFeatures, MaclaurinFeatures, NystroemFeatures
from dkfeat.maps import FEATURE_MAPS
from tests.maps.small import has, small_map

ROWS = np.random.default_rng(0).random((6, 5)) / 5


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_card__tells_kernel_cost_and_error(name):
    features, cls = small_map(name, n_components=16, random_state=7), FEATURE_MAPS[name]
    for title in ("not fitted", "fitted to 5 columns" + (", seed 7" if has(cls, "random_state") else "")):
        html = features._repr_html_()
        told = text_of(html)
        assert f"{cls.__name__} {title} kernel " in told
        assert ("components k 16 " in told) == has(cls, "n_components")
        assert "error of an estimate" in told
        assert "<script" not in html
        assert features._repr_mimebundle_() == {"text/plain": repr(features), "text/html": html}
        features.fit(ROWS)


def test_card__has_the_figures():
    told = text_of(GCWSFeatures(512)._repr_html_())
    assert "131,072, 512 of them 1" in told
    assert "512 as stored codes; as features 4.0 KiB sparse, 512.0 KiB dense" in told
    assert "0.0222 (one standard error) where the kernel is 0.5" in told
    assert "4,096, stored and in memory" in text_of(FourierFeatures()._repr_html_())
    assert "at least 0.00902" in text_of(LaplaceFeatures(kernel="reciprocal", projection="circulant")._repr_html_())
    assert "1,025 and 1 for each column of the input" in text_of(MaclaurinFeatures(h01=True)._repr_html_())
    assert "at most 1,024, stored" in text_of(NystroemFeatures()._repr_html_())
    wide = FourierFeatures(2**21)  # more components than the stand-in for an unknown width
    assert "2,097,152" in text_of(wide._repr_html_())


def test_card__tells_of_the_fitted_map_not_of_later_parameters():
    features = FourierFeatures(16, random_state=0).fit(ROWS).set_params(n_components=32)
    assert "components k 16 " in text_of(features._repr_html_())


def test_card__of_wrong_parameters_says_what_is_wrong():
    told = text_of(GCWSFeatures(0)._repr_html_())
    assert "not usable n_components=0" in told
    html = GCWSFeatures(normalize="<b>bold</b>")._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html


def test_card__leaves_scikit_learns_display_alone():
    pipeline = make_pipeline(GCWSFeatures(64, i_bits=4), LogisticRegression())
    html = pipeline._repr_html_()
    assert "sk-container" in html
    assert "GCWSFeatures" in html
    assert "dkfeat-card" not in html
    with config_context(display="text"):
        features = GCWSFeatures()
        assert not hasattr(features, "_repr_html_")
        assert list(features._repr_mimebundle_()) == ["text/plain"]
