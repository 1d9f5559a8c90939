"""The page about runs, as a browser shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import dkfeat
from dkfeat.config import ExecutionConfig
from tests.conftest import libsvm_text
from tests.test_html import evaluation_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page about a data set of three batches, one of them resumed, with rows set aside and an awkward name."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    X = sparse.random(900, 40, density=0.5, random_state=0, format="csr") * 5
    text = libsvm_text(X, rng.integers(1, 4, size=900))
    (folder / "a<b>.svm").write_text(text + "1 1:<script>document.title='run'</script>\n")
    map_ = dkfeat.GCWSFeatures(n_components=128, random_state=0)

    def featurize(progress: object) -> None:
        source = dkfeat.LibsvmSource(folder / "*.svm", blocksize="32KiB", on_bad_row="quarantine")
        dkfeat.featurize(
            source, folder / "out", map_, progress=progress, client=ExecutionConfig(scheduler="synchronous")
        )

    def stop(state: object) -> None:
        if state.stage == "featurize" and state.tasks == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        featurize(stop)
    featurize(False)
    (folder / "b.svm").write_text("1\n" + text.splitlines()[0] + "\n")
    featurize(False)
    report = dkfeat.run_report(folder / "out")
    report.save(folder / "report.html")
    return report, folder / "report.html"


def browse(url: str, profile: Path, *flags: str) -> str:
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    done = subprocess.run([*words, *flags, url], capture_output=True, timeout=240, check=True)
    return done.stdout.decode()


def text_of(dom: str, name: str) -> str:
    [found] = re.findall(rf'id="{name}"[^>]*>([^<]*)<', dom)
    return unescape(found)


class Used(HTMLParser):
    """What a page uses, in order: its policy, styles, pictures, links, scripts and handlers of events."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if given.get("http-equiv"):
            self.found.append(("policy", given["content"]))
        elif tag in ("style", "script", "link", "iframe", "object", "embed", "base", "form"):
            self.found.append((tag, ""))
        for name, value in given.items():
            if name.rpartition(":")[2] in ("src", "href", "srcset", "action", "style") or name.startswith("on"):
                self.found.append((name, value))


@pytest.mark.fault("X-15")
def test_pages__have_a_policy_that_allows_what_they_use_and_no_more(page):
    needs = {"style": "style-src 'unsafe-inline'", "src": "img-src data:", "srcset": "img-src data:"}
    allowed = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    for text in (page[1].read_text(), evaluation_page("a")):
        (kind, policy), *used = Used(text).found
        assert (kind, policy) == ("policy", allowed)  # before all that it is for
        assert {name for name, _ in used} <= set(needs)
        assert all(needs[name] in policy for name, _ in used)
        assert all(value.startswith("data:image/png") for name, value in used if name in ("src", "srcset"))


@pytest.mark.slow
@needs_browser
def test_page__browser_shows_its_figures(page, tmp_path):
    report, file = page
    dom = browse(file.as_uri(), tmp_path, "--dump-dom")
    known = report.to_mapping()
    assert text_of(dom, "rows") == f"{known['rows']:,}" == "902"
    assert text_of(dom, "shards") == f"{known['shards']:,}"
    assert text_of(dom, "state") == "complete"
    assert float(text_of(dom, "error-of-an-estimate")) == pytest.approx(report.kernel.pairs.error, rel=0.01)
    assert re.search(r"<title>([^<]*)", dom)[1] == f"Report of {known['target']}"  # no script of the data ran
    assert "<script" not in dom
