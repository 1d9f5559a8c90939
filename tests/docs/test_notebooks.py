"""The notebooks run from top to bottom as they are, and git holds them without outputs."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import tempfile

import pytest

from tests import programs
from tests.programs import ROOT

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
by_name = pytest.mark.parametrize("name", NOTEBOOKS)


def read(name):
    return json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))


def run_for_the_site(name):
    """A notebook with its outputs, if `make docs` ran it with this state of the package; else None."""
    folder = ROOT / "docs" / "_build" / "notebooks"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted((ROOT / "dkfeat").rglob("*.py"))))
    mark = folder / "package.sha256"
    if not mark.exists() or mark.read_text(encoding="ascii") != digest.hexdigest():
        return None
    nbformat, jupyter_cache = pytest.importorskip("nbformat"), pytest.importorskip("jupyter_cache")
    try:
        _, notebook = jupyter_cache.get_cache(folder).merge_match_into_notebook(nbformat.read(NOTEBOOKS[name], 4))
    except KeyError:
        return None
    return json.loads(nbformat.writes(notebook))


def sources(notebook, kind):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.fixture
def execute(tmp_path):
    """Run a notebook by name, in a kernel of its own and an empty folder; gives it back with its outputs.

    One that the site has with its outputs does not run again.
    """
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason=f"notebooks are run with {package}")

    def run(name):
        if (notebook := run_for_the_site(name)) is None:
            notebook = run_here(name)
        shown = json.dumps([cell["outputs"] for cell in notebook["cells"] if "outputs" in cell])
        assert tempfile.gettempdir() not in shown  # no paths of the machine
        return notebook

    def run_here(name):
        folders = {
            key: tmp_path / key for key in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "TMPDIR", "work")
        }
        for folder in folders.values():
            folder.mkdir()
        work, out = folders.pop("work"), tmp_path / "out.ipynb"
        words = [sys.executable, "-m", "tests.docs.run_notebook", str(NOTEBOOKS[name]), str(work), str(out)]
        ended = programs.run(words, cwd=ROOT, **{key: str(folder) for key, folder in folders.items()})
        assert ended.status == 0, ended.err
        assert list(work.iterdir()) == []  # what a notebook writes goes to a folder of its own
        return json.loads(out.read_text(encoding="utf-8"))

    return run


def outputs(notebook, *kinds):
    """Outputs of these types, in order."""
    found = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [output for output in found if output["output_type"] in kinds]


def printed(notebook, stream):
    return "".join("".join(output["text"]) for output in outputs(notebook, "stream") if output["name"] == stream)


def displayed(notebook, kind):
    """Displays and results of a MIME type."""
    found = [output["data"] for output in outputs(notebook, "display_data", "execute_result")]
    return ["".join(data[kind]) for data in found if kind in data]


def told(notebook):
    """Lines of progress and notes, which are all that is on standard error."""
    text = printed(notebook, "stderr")
    assert not re.search("Traceback|Error|Warning", text)
    return text.splitlines()


def test_notebooks__are_there():
    assert list(NOTEBOOKS) == ["01_quickstart", "02_choose_a_map", "03_cluster_run", "04_neighbors", "05_corpus"]


def test_quickstart__runs_and_tells_progress(execute):
    notebook = execute("01_quickstart")
    stages = ["scan", "encoder", "encoder", "featurize", "featurize", "train", "predict", "evaluate"]
    ends = ("done, 15,000", "done, 10,000", "done, 5,000", "7 columns", "epoch 20 of 20")
    lines = [line for line in told(notebook) if any(end in line for end in ends)]
    assert len(lines) == len(stages)
    assert all(stage in line for stage, line in zip(stages, lines, strict=True))
    shown = "\n".join(displayed(notebook, "text/plain"))
    assert all(word in shown for word in ("Plan(", "Manifest(", "LinearModel("))
    assert len(displayed(notebook, "image/png")) == 3


def test_choose_a_map__runs_and_draws(execute):
    notebook = execute("02_choose_a_map")
    pictures = displayed(notebook, "image/png")
    assert len(pictures) == 4
    assert all(len(picture) > 10_000 for picture in pictures)
    assert told(notebook)[-1].startswith("compare: exact rbf_cosine: ")


@pytest.mark.cluster
def test_cluster_run__survives_two_deaths(execute):
    out = printed(execute("03_cluster_run"), "stdout")
    assert re.search(r"tasks are done; process \d+ is killed", out)
    assert re.search(r"unfinished: \d+ of \d+ splits of the new batch are done", out)


@pytest.mark.parametrize(("name", "count"), {"04_neighbors": 6, "05_corpus": 3}.items())
def test_notebook__runs_and_draws(execute, name, count):
    notebook = execute(name)
    assert told(notebook)
    assert [len(picture) > 10_000 for picture in displayed(notebook, "image/png")] == [True] * count


@by_name
def test_notebook__is_kept_without_outputs(name):
    notebook = read(name)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in code] == [[]] * len(code), "run: nbstripout --keep-id notebooks/*.ipynb"
    assert {cell["execution_count"] for cell in code} == {None}
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * len(notebook["cells"])
    assert notebook["metadata"].keys() <= {"kernelspec", "language_info"}
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


@by_name
def test_notebook__checks_what_it_says(name):
    cells = [ast.parse(source.replace("%config", "# %config")) for source in sources(read(name), "code")]
    checks = [node for cell in cells for node in ast.walk(cell) if isinstance(node, ast.Assert)]
    assert len(checks) >= 5
