"""Nothing that dkfeat reads from disk can run code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSAFE = re.compile(
    r"\b(pickle|cloudpickle|joblib|marshal|shelve|dill)\b.*\bimport\b|\bimport\b.*\b(pickle|cloudpickle|joblib|marshal|shelve|dill)\b"
    r"|yaml\.(load|unsafe_load|full_load)\b|allow_pickle\s*=\s*True|(?<![\w.])(eval|exec)\("
)


@pytest.mark.fault("X-07")
@pytest.mark.parametrize("folder", ["dkfeat", "jobs"])
def test_sources__load_nothing_that_can_run(folder):
    sources = sorted((ROOT / folder).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNSAFE.search(line)
    ]
    assert sources
    assert found == []
