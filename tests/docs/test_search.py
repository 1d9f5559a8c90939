"""First hits of the site's search: the built index and the real scores, in a browser."""

import functools
import http.server
import json
import re
import subprocess
import sys
import threading

import pytest

from tests.docs.pages import DOCS
from tests.report.test_run_page import browse, needs_browser

PLACES = {
    "getting-started": ["install"],
    "notebooks": ["jupyter"],
    "how-to/parquet": ["csv", "categorical", "missing values", "nan", "string labels", "text", "read my csv file"],
    "how-to/libsvm": ["libsvm", "scale columns"],
    "how-to/in-memory": ["pandas"],
    "how-to/s3": ["s3"],
    "how-to/train": ["svm", "regression", "multiclass", "predict_proba"],
    "how-to/explain": ["feature importance", "explain"],
    "how-to/neighbors": ["duplicates"],
    "how-to/clean": ["near duplicates"],
    "how-to/read-shards": ["delta lake"],
    "how-to/dask-ml": ["dask"],
    "explanation/choosing": ["n_components", "kernel"],
    "explanation/boosting": ["random forest", "xgboost"],
    "explanation/minhash": ["minhash"],
    "explanation/reliability": ["kill", "resume"],
    "explanation/sizing": ["out of memory", "memory", "the worker runs out of memory"],
    "explanation/limits": ["gpu"],
    "reference/generated/dkfeat.featurize": ["featurize"],
}
EXPECTED = {query: page for page, queries in PLACES.items() for query in queries}
ASK = """<!doctype html><body><script>
(async () => {
  const hits = {}, soon = () => new Promise((done) => setTimeout(done, 5));
  for (const query of QUERIES) {
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.src = "search.html?q=" + encodeURIComponent(query);
    await new Promise((done) => (frame.onload = done));
    const shown = frame.contentDocument;
    while (!/found|did not/.test(shown.querySelector(".search-summary")?.innerText)) await soon();
    hits[query] = [...shown.querySelectorAll("#search-results li > a")].map((link) => link.getAttribute("href"));
    frame.remove();
  }
  document.body.textContent = JSON.stringify(hits);
})();
</script>"""


@needs_browser
def test_search__finds_the_right_page_first(tmp_path):
    """Guides are found by the words of people, not by those of dkfeat; decisions are not found."""
    pytest.importorskip("sphinx", reason="Sphinx is of the extra docs")
    options = ["-q", "-W", "-D", "nb_execution_mode=off", "-D", "plot_gallery=0", "-d", str(tmp_path / "doctrees")]
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(DOCS), str(site)], check=True, timeout=600)
    (site / "ask.html").write_text(ASK.replace("QUERIES", json.dumps([*EXPECTED])), encoding="utf-8")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/ask.html"
        shown = browse(url, tmp_path / "profile", "--virtual-time-budget=600000", "--dump-dom")
        server.shutdown()
    hits = json.loads(re.search("<body>(.*)</body>", shown, re.DOTALL)[1])
    assert {query: found[0].partition(".html")[0] for query, found in hits.items()} == EXPECTED
    assert not [link for found in hits.values() for link in found if link.startswith("decisions/")]
