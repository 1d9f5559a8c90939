"""The import table of the architecture, held to account by reading every import with ast."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dkfeat"

BOTTOM = {"archives", "errors", "canonical", "config", "blocks", "html", "validation", "wording"}
ENGINE_AND_BELOW = BOTTOM | {"compiled", "random_streams", "kernels", "projections", "maps", "io", "theory", "engine"}
ALL = ENGINE_AND_BELOW | {"learn", "neighbors", "plot", "report", "datasets", "demo", "doctor", "cli", "__init__"}

# layer: (parts of dkfeat it may import, packages from outside it may import)
TABLE = {
    "__init__": (set(), set()),
    "__main__": ({"cli"}, set()),
    **dict.fromkeys(BOTTOM, (BOTTOM, {"numpy", "scipy", "yaml"})),
    "compiled": ({"compiled"}, {"numpy", "numba", "llvmlite"}),
    "random_streams": ({"compiled"}, {"numpy"}),
    "kernels": ({"kernels", "compiled", "random_streams", "validation", "errors"}, {"numpy", "scipy"}),
    "projections": (
        {"projections", "kernels", "compiled", "random_streams", "validation", "errors"},
        {"numpy", "scipy"},
    ),
    "maps": (
        {"maps", "kernels", "projections", "compiled", "random_streams", "theory", *BOTTOM} - {"config"},
        {"numpy", "scipy", "sklearn"},
    ),
    "io": ({"io", *BOTTOM}, {"pyarrow", "fsspec", "numpy", "scipy", "zstandard"}),
    "theory": ({"theory"}, {"numpy", "scipy"}),
    "datasets": ({"datasets", "io", *BOTTOM}, set()),
    "engine": (
        ENGINE_AND_BELOW,
        {"IPython", "dask", "distributed", "numpy", "scipy", "sklearn", "pyarrow", "fsspec", "rich", "threadpoolctl"}
        | {"dask_jobqueue", "dask_kubernetes"},
    ),
    "plot": (ENGINE_AND_BELOW | {"learn", "plot"}, {"matplotlib", "numpy"}),
    "report": (ENGINE_AND_BELOW | {"learn", "plot", "report"}, {"matplotlib", "numpy"}),
    "learn": (ENGINE_AND_BELOW | {"learn"}, {"sklearn", "dask", "numpy", "scipy", "pyarrow", "matplotlib"}),
    "doctor": (
        ENGINE_AND_BELOW | {"doctor", "__init__"},
        {"dask", "distributed", "llvmlite", "numba", "numpy", "packaging", "psutil", "threadpoolctl"},
    ),
    "demo": (ALL, {"click", "rich", "numpy", "scipy", "sklearn"}),
    "cli": (ALL, {"click", "rich", "dask", "numpy", "pyarrow"}),
}

# Single arrows that the table does not draw, each with the reason.
EXCEPTIONS = {
    ("io", "dkfeat.compiled.libsvm"),  # the byte parser is io's own loop
    ("maps", "dkfeat.engine.collections"),  # maps/_base.py hands a Dask collection over, by a late import
    ("maps", "dkfeat.engine.dask_rows"),  # maps/nystroem.py draws its landmarks from one, as late
    ("learn", "dkfeat.report"),  # results draw themselves, by late imports
    ("cli", "dkfeat.__version__"),  # a plain string
    ("doctor", "dkfeat.__version__"),
}


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


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports__follow_the_table(path):
    assert violations(layer_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("io", "from dkfeat.maps.gcws import GCWSFeatures"),
        ("maps", "import dask"),
        ("compiled", "from dkfeat import errors"),
        ("kernels", "def f():\n    import pyarrow.parquet"),
        ("__init__", "import dkfeat.engine.plan"),
    ],
)
def test_violations__are_found(layer, source):
    assert len(violations(layer, source)) == 1
