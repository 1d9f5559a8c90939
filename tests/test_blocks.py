import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dkfeat.blocks import RowBlock, SourceFile, Split


def test_row_block__counts_rows():
    block = RowBlock(X=csr_matrix((3, 5)), y=np.zeros(3), qid=np.arange(3))
    assert block.n_rows == 3


def test_row_block__refuses_labels_for_another_number_of_rows():
    with pytest.raises(ValueError, match="3 rows came with labels for 2 rows and no query ids"):
        RowBlock(X=csr_matrix((3, 5)), y=np.zeros(2))


def test_row_block__refuses_query_ids_for_another_number_of_rows():
    with pytest.raises(ValueError, match="3 rows came with labels for 3 rows and 1 query ids"):
        RowBlock(X=csr_matrix((3, 5)), y=np.zeros(3), qid=np.arange(1))


def test_row_block__counts_multi_label_rows_by_their_offsets():
    offsets = np.array([0, 2, 2, 3])
    assert RowBlock(X=csr_matrix((3, 5)), y=np.arange(3), label_offsets=offsets).n_rows == 3
    with pytest.raises(ValueError, match="4 rows came with labels for 3 rows"):
        RowBlock(X=csr_matrix((4, 5)), y=np.arange(3), label_offsets=offsets)


def test_split__round_trips_through_json_without_its_url():
    file = SourceFile(name="a/b c.svm", url="s3://secret@host/a/b c.svm", size=10, mtime_ns=7)
    split = Split(number=3, file=file, start=2, stop=9)
    text = json.dumps(split.to_mapping())
    assert "secret" not in text
    assert Split.from_mapping(json.loads(text), url=file.url) == split


def test_source_file__identity_leaves_the_place_out():
    here = SourceFile(name="a", url="/x/a", size=1, mtime_ns=2)
    there = SourceFile(name="a", url="/y/a", size=1, mtime_ns=2)
    changed = SourceFile(name="a", url="/x/a", size=1, mtime_ns=3)
    assert here.identity == there.identity != changed.identity
