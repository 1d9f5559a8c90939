"""The import table of the architecture: layers, circles and the size of folders, read from every import with ast."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dkfeat"

BOTTOM = {"archives", "errors", "canonical", "config", "blocks", "html", "messages", "process_cache", "validation"}
ENGINE_AND_BELOW = BOTTOM | {"compiled", "encoders", "kernels", "projections", "maps", "theory"}
ENGINE_AND_BELOW |= {"filesystems", "sources", "store", "engine"}
ALL = ENGINE_AND_BELOW | {"learn", "neighbors", "plot", "report", "doctor", "cli", "__init__"}

# layer: (parts of dkfeat it may import, packages from outside it may import)
TABLE = {
    "__init__": (set(), set()),
    "__main__": ({"cli"}, set()),
    **dict.fromkeys(BOTTOM, (BOTTOM, {"numpy", "scipy", "yaml", "msgspec", "jinja2"})),
    "archives": (BOTTOM, {"numpy", "pyarrow"}),
    "compiled": ({"compiled"}, {"numpy", "numba", "llvmlite"}),
    "kernels": ({"kernels", "compiled", "validation", "errors"}, {"numpy", "scipy"}),
    "projections": ({"projections", "kernels", "compiled", "validation", "errors"}, {"numpy", "scipy"}),
    "maps": (
        {"maps", "kernels", "projections", "compiled", "theory", *BOTTOM} - {"config"},
        {"numpy", "scipy", "sklearn"},
    ),
    "encoders": (
        {"encoders", "maps", "kernels", "compiled", *BOTTOM} - {"config"},
        {"numpy", "scipy", "pyarrow", "sklearn"},
    ),
    "filesystems": ({"filesystems", *BOTTOM}, {"fsspec", "aiobotocore", "aiohttp"}),
    "sources": ({"sources", "filesystems", *BOTTOM}, {"pyarrow", "fsspec", "numpy", "scipy", "zstandard"}),
    "store": ({"store", "filesystems", *BOTTOM}, {"pyarrow", "fsspec", "numpy", "scipy"}),
    "theory": ({"theory", "validation", "errors"}, {"numpy", "scipy"}),
    "engine": (
        ENGINE_AND_BELOW,
        {"dask", "distributed", "numpy", "scipy", "sklearn", "pyarrow", "fsspec", "rich", "threadpoolctl"}
        | {"dask_jobqueue"},
    ),
    "plot": (ENGINE_AND_BELOW | {"plot"}, {"matplotlib", "numpy"}),
    "report": (ENGINE_AND_BELOW | {"learn", "neighbors", "report"}, {"numpy", "scipy", "jinja2"}),
    "learn": (ENGINE_AND_BELOW | {"learn", "plot"}, {"sklearn", "dask", "numpy", "scipy", "pyarrow", "matplotlib"}),
    "neighbors": (ENGINE_AND_BELOW | {"neighbors"}, {"sklearn", "dask", "numpy", "scipy", "pyarrow", "msgspec"}),
    "doctor": (ENGINE_AND_BELOW | {"doctor", "__init__"}, {"dask", "distributed", "llvmlite", "numba", "numpy"}),
    "cli": (ALL, {"click", "rich", "dask", "numpy", "scipy", "sklearn", "pyarrow"}),
}

# Single arrows that the table does not draw, each with the reason.
EXCEPTIONS = {
    ("sources", "dkfeat.compiled.libsvm"),  # the byte parser is the sources' own loop
    ("cli", "dkfeat.__version__"),  # a plain string
    ("doctor", "dkfeat.__version__"),
}

MOST_ENTRIES = 13
"""Files and folders in a folder of the package or its tests: about a dozen."""


def layer_of(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imported_modules(source: str, *, only_at_run_time: bool) -> list[str]:
    tree = ast.parse(source)
    if only_at_run_time:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def violations(layer: str, source: str) -> list[str]:
    inside, outside = TABLE[layer]
    found = []
    # the lazily resolved names stand in __init__ for type checkers alone
    for name in imported_modules(source, only_at_run_time=layer == "__init__"):
        root, *rest = name.split(".")
        if any(layer == at and (name == module or name.startswith(module + ".")) for at, module in EXCEPTIONS):
            continue
        if root == "dkfeat":
            if rest and rest[0] not in inside:
                found.append(name)
        elif root not in outside and root not in sys.stdlib_module_names:
            found.append(name)
    return found


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Modules and those that they import, at the top, late, or for types alone."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        graph[module] = set()
        for imported in imported_modules(source, only_at_run_time=module == "dkfeat"):
            name = imported
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module:
                graph[module].add(name)
    return graph


def circles(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Modules that import themselves, over whatever others."""
    reached = {module: set(imports) for module, imports in graph.items()}
    for through in graph:
        for reach in reached.values():
            if through in reach:
                reach |= reached[through]
    return sorted(module for module, reach in reached.items() if module in reach)


def package_sources() -> dict[str, str]:
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path.read_text() for path, name in names.items()}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports__follow_the_table(path):
    assert violations(layer_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("store", "from dkfeat.maps.gcws import GCWSFeatures"),
        ("store", "from dkfeat.sources.base import Source"),
        ("maps", "import dask"),
        ("compiled", "from dkfeat import errors"),
        ("kernels", "def f():\n    import pyarrow.parquet"),
        ("__init__", "import dkfeat.engine.plan"),
    ],
)
def test_violations__are_found(layer, source):
    assert len(violations(layer, source)) == 1


def test_modules__import_each_other_in_no_circle():
    assert circles(import_graph(package_sources())) == []


@pytest.mark.parametrize(
    "late", ["from dkfeat.b import x", "def f():\n    import dkfeat.b", "if TYPE_CHECKING:\n    from dkfeat import b"]
)
def test_circles__are_found_over_late_and_type_only_imports(late):
    sources = {"dkfeat.a": late, "dkfeat.b": "from dkfeat.c import y", "dkfeat.c": "import dkfeat.a", "dkfeat.d": ""}
    assert circles(import_graph(sources)) == ["dkfeat.a", "dkfeat.b", "dkfeat.c"]


@pytest.mark.parametrize("tree", ["dkfeat", "tests"])
def test_folders__hold_about_a_dozen_entries(tree):
    crowded = {}
    for folder in [ROOT / tree, *(path for path in (ROOT / tree).rglob("*") if path.is_dir())]:
        if folder.name == "__pycache__":
            continue
        name = folder.relative_to(ROOT).as_posix()
        paths = [path for path in folder.iterdir() if not path.name.startswith(("__pycache__", ".", "__init__"))]
        # a folder that git removed may hold compiled files still
        entries = [
            path.name for path in paths if path.is_file() or any(at.name != "__pycache__" for at in path.iterdir())
        ]
        if folder == ROOT / tree:  # its folders are the layers of the table, and conftest.py is pytest's
            entries = [name for name in entries if name.endswith(".py") and name != "conftest.py"]
        if len(entries) > MOST_ENTRIES and "/data" not in name:
            crowded[name] = len(entries)
    assert crowded == {}
