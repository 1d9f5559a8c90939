"""The way of a source through the package: the modules that a run hands it to, and the calls back to earlier steps."""

from __future__ import annotations

import inspect
import sys
import threading
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import dkfeat
from tests.engine.helpers import gcws

PACKAGE = Path(dkfeat.__file__).parent
STEPS = ("featurize", "open", "resolve", "plan", "run")
MOST_MODULES, MOST_CLIMBS = 12, 1
PAGE = PACKAGE.parent / "docs" / "explanation" / "how-it-works.md"


def module_of(code: Any) -> str | None:
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).with_suffix("").as_posix() if path.is_relative_to(PACKAGE) else None


def holds(value: Any, kind: type, depth: int = 3) -> bool:
    """Return True if a value is a source, or holds one in its fields or items, or is a method or partial of one."""
    if isinstance(value, kind):
        return True
    if not depth:
        return False
    if isinstance(value, tuple | list) and len(value) < 10:
        inner = list(value)
    elif isinstance(value, dict) and len(value) < 20:
        inner = list(value.values())
    elif type(value).__module__.startswith("dkfeat."):
        inner = [getattr(value, name) for name in fields_of(value)]
    elif isinstance(value, MethodType):
        inner = [value.__self__]
    elif isinstance(value, partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    else:
        inner = []
    return any(holds(each, kind, depth - 1) for each in inner)


def fields_of(value: Any) -> list[str]:
    """Names of what an object stores, without calling its properties."""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(value, "__dict__", ()), *(name for name in slots if name.isidentifier() and hasattr(value, name))]


def trace(run: Any, kind: type) -> tuple[list[str], list[tuple[str, str]]]:
    """Modules whose functions receive a source in this thread, in order, and calls of a step by a later one."""
    modules: list[str] = []
    climbs: list[tuple[str, str]] = []
    thread = threading.get_ident()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event != "call" or threading.get_ident() != thread:
            return
        module = module_of(frame.f_code)
        if module is None or frame.f_code.co_name.startswith("<"):
            return
        code = frame.f_code
        n_arguments = code.co_argcount + code.co_kwonlyargcount
        n_arguments += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        names = code.co_varnames[:n_arguments]
        if module not in modules and any(holds(frame.f_locals.get(name), kind) for name in names):
            modules.append(module)
        caller = frame.f_back
        while caller is not None and module_of(caller.f_code) in (None, module):
            if module_of(caller.f_code) == module:
                return
            caller = caller.f_back
        if caller is not None:
            before = module_of(caller.f_code)
            if is_earlier(module, str(before)):
                climbs.append((str(before), module))

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return modules, climbs


def is_earlier(module: str, caller: str) -> bool:
    """Return True if a module is an earlier step than the one that calls it."""
    places = [
        STEPS.index(name.removeprefix("engine/")) for name in (module, caller) if name.removeprefix("engine/") in STEPS
    ]
    return len(places) == 2 and places[0] < places[1]


def test_route__of_a_source_is_short(tmp_path):
    (tmp_path / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "rows.svm"))
    dkfeat.featurize(source, tmp_path / "warm", gcws(), progress=False)
    modules, climbs = trace(
        lambda: dkfeat.featurize(source, tmp_path / "out", gcws(), progress=False), dkfeat.LibsvmSource
    )
    assert {f"engine/{step}" for step in STEPS} <= set(modules)
    assert len(modules) <= MOST_MODULES, modules
    assert len(climbs) <= MOST_CLIMBS, climbs
    page = PAGE.read_text()
    assert [name for name in modules if f"dkfeat.{name.replace('/', '.')}" not in page] == []
