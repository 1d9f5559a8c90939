"""The import table of the architecture, held to account by reading every import with ast."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dkfeat"

BOTTOM = {"errors", "canonical", "config", "blocks", "validation"}
ENGINE_AND_BELOW = BOTTOM | {"compiled", "random_streams", "kernels", "projections", "maps", "io", "theory", "engine"}
ALL = ENGINE_AND_BELOW | {"learn", "neighbors", "report", "demo", "cli", "__init__"}

# layer: (parts of dkfeat it may import, packages from outside it may import)
TABLE = {
    "__init__": (set(), set()),
    **dict.fromkeys(BOTTOM, (BOTTOM, {"numpy", "scipy", "yaml"})),
    "compiled": ({"compiled"}, {"numpy", "numba", "llvmlite"}),
    "random_streams": ({"compiled"}, {"numpy"}),
    "kernels": ({"kernels", "compiled", "random_streams", "validation", "errors"}, {"numpy", "scipy"}),
    "projections": (
        {"projections", "kernels", "compiled", "random_streams", "validation", "errors"},
        {"numpy", "scipy"},
    ),
    "maps": (
        {"maps", "kernels", "projections", "compiled", "random_streams", *BOTTOM} - {"config"},
        {"numpy", "scipy", "sklearn"},
    ),
    "io": ({"io", *BOTTOM}, {"pyarrow", "fsspec", "numpy", "scipy", "zstandard"}),
    "theory": ({"theory"}, {"numpy", "scipy"}),
    "engine": (
        ENGINE_AND_BELOW,
        {"dask", "distributed", "numpy", "scipy", "sklearn", "pyarrow", "fsspec", "rich", "threadpoolctl"},
    ),
    "learn": (ENGINE_AND_BELOW | {"learn"}, {"sklearn", "dask", "numpy", "scipy", "pyarrow", "matplotlib"}),
    "demo": (ALL, {"click", "rich", "numpy", "scipy", "sklearn"}),
    "cli": (ALL, {"click", "rich", "dask", "numpy", "pyarrow"}),
}

# Single arrows that the table does not draw, each with the reason.
EXCEPTIONS = {
    ("io", "dkfeat.compiled.libsvm"),  # the byte parser is io's own loop
    ("maps", "dkfeat.engine.collections"),  # maps/_base.py hands a Dask collection over, by a late import
    ("__init__", "dkfeat"),  # the lazily resolved names, for type checkers only
}


def layer_of(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imported_modules(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "dkfeat" else [node.module]
            )
    return names


def violations(path: Path) -> list[str]:
    layer = layer_of(path)
    inside, outside = TABLE[layer]
    found = []
    for name in imported_modules(path):
        root, *rest = name.split(".")
        if any(layer == at and (name == module or name.startswith(module + ".")) for at, module in EXCEPTIONS):
            continue
        if root == "dkfeat":
            if rest and rest[0] not in inside:
                found.append(name)
        elif root not in outside and root not in STANDARD_LIBRARY:
            found.append(name)
    return found


STANDARD_LIBRARY = __import__("sys").stdlib_module_names


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports__follow_the_table(path):
    assert violations(path) == []


def test_table__is_not_vacuous(tmp_path):
    source = PACKAGE / "compiled" / "philox.py"
    assert source.exists()
    assert "numba" in {name.split(".")[0] for name in imported_modules(PACKAGE / "compiled" / "_jit.py")}
    assert {layer_of(path) for path in PACKAGE.rglob("*.py")} <= set(TABLE)
