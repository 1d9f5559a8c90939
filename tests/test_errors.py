import pickle

import pytest

from dkfeat import errors
from dkfeat.errors import DkfeatError, ParquetError, ParseError

PLACED = ("ParseError", "ParquetError")
NAMES = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.DkfeatError)]
CLASSES = [getattr(errors, name) for name in NAMES if name not in ("DkfeatError", *PLACED)]


@pytest.mark.parametrize("cls", CLASSES)
def test_error__survives_pickling(cls):
    error = pickle.loads(pickle.dumps(cls("expected this, got that")))
    assert type(error) is cls
    assert str(error) == "expected this, got that"


@pytest.mark.parametrize(
    ("cls", "place", "text"),
    [
        (ParseError, {"path": "day 1.svm", "line": 20113, "column": 12, "offset": 1 << 20}, "day 1.svm:20113:12: no"),
        (
            ParquetError,
            {"path": "day 1.parquet", "row_group": 0, "row": 7, "column": "x"},
            "day 1.parquet: row group 0, row 7, column x: no",
        ),
    ],
)
def test_error__keeps_its_place_through_pickling(cls, place, text):
    error = pickle.loads(pickle.dumps(cls("no", **place)))
    assert str(error) == text
    assert {name: getattr(error, name) for name in place} == place


@pytest.mark.parametrize(
    ("name", "builtin", "exit_code"),
    [
        ("ConfigError", ValueError, 2),
        ("InputError", ValueError, 2),
        ("SourceError", OSError, 3),
        ("SourceNotFoundError", FileNotFoundError, 2),
        ("ParseError", ValueError, 2),
        ("ParquetError", ValueError, 2),
        ("ShardError", OSError, 3),
        ("CommitError", OSError, 3),
        ("CommitConflictError", OSError, 4),
        ("PlanError", ValueError, 2),
        ("SpecConflictError", ValueError, 4),
        ("ClusterError", RuntimeError, 5),
    ],
)
def test_error__has_a_builtin_parent_and_an_exit_code(name, builtin, exit_code):
    cls = getattr(errors, name)
    assert issubclass(cls, (DkfeatError,))
    assert issubclass(cls, builtin)
    assert cls.exit_code == exit_code


def test_tree__is_drawn_in_full():
    assert [name for name in NAMES if name not in errors.__doc__] == []
