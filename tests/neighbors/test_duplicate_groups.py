"""Groups of rows: those of one union-find, whatever number of rows is in memory at a time."""

from unittest import mock

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dkfeat.neighbors.deduplication import groups
from dkfeat.neighbors.deduplication.groups import Groups
from dkfeat.neighbors.deduplication.work_files import FoundPairs, PairFiles, WorkFolder, pair_keys
from tests.conftest import peak_bytes

N_ROWS = 150


def written(work, left, right, n_files=3):
    pairs = PairFiles(work, tuple(f"near-{number}" for number in range(n_files)))
    for number, name in enumerate(pairs.names):
        keys = np.unique(pair_keys(left[number::n_files], right[number::n_files]))
        pairs.write(name, FoundPairs(keys, np.ones(len(keys))))
    return pairs


@pytest.mark.parametrize("range_rows", [4, 64, N_ROWS])
@pytest.mark.parametrize("n_pairs", [60, 90, 400])
def test_groups__are_those_of_all_pairs_at_once(range_rows, n_pairs, tmp_path):
    rng = np.random.default_rng(n_pairs)
    left, right = rng.integers(0, N_ROWS, (2, n_pairs))
    left, right = left[left != right], right[left != right]
    components = connected_components(coo_array((np.ones(len(left)), (left, right)), (N_ROWS, N_ROWS)))[1]
    first = np.unique(components, return_index=True)[1]
    sizes = np.bincount(components)
    work = WorkFolder.of(tmp_path, durable=False)
    found = Groups(work, N_ROWS)
    with mock.patch.multiple(groups, RANGE_ROWS=range_rows, MAX_PIECE_PAIRS=20):
        numbers, _ = found.find(written(work, left, right))
    assert np.array_equal(found.of(0, N_ROWS), first[components])
    assert numbers == {"n_groups": (sizes > 1).sum(), "n_kept": len(sizes), "largest_group": sizes.max()}


def test_groups__take_memory_for_a_range_of_rows(tmp_path, monkeypatch):
    n_rows = 1 << 20
    monkeypatch.setattr(groups, "RANGE_ROWS", 1 << 14)
    work = WorkFolder.of(tmp_path, durable=False)
    left = np.arange(0, n_rows - 30_000, 50)
    pairs = written(work, left, left + 29_999)
    found = Groups(work, n_rows)
    found.find(pairs)  # compiles
    assert peak_bytes(lambda: (found.mark_copies(pairs), found.find(pairs))) < 2 * n_rows
