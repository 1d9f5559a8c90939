"""Features on which linear learning matches kernel machines, block by block on Dask.

Names are loaded when first used: importing dkfeat loads neither Dask nor numba nor pyarrow. The file ``__init__.pyi``
lists them with their modules, for type checkers too.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from typing import Any

__version__ = "0.2.0"


def _read_modules() -> dict[str, str]:
    """Read from the stub file the module of each public name; the module of a public submodule is dkfeat."""
    stub = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")  # also if dkfeat is imported from a zip archive
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


_MODULES = _read_modules()
__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dkfeat' has no attribute {name!r}")
    module = _MODULES[name]
    if module == "dkfeat":
        value: Any = importlib.import_module(f"dkfeat.{name}")
    else:
        value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
