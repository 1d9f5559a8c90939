import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dkfeat.blocks import RowBlock, SourceFile, Split

GROUP = (("a", None), ("b", None), ("c.gz", "gzip"))


def test_row_block__counts_rows_those_with_several_labels_by_their_offsets():
    assert RowBlock(X=csr_matrix((3, 5)), y=np.zeros(3), qid=np.arange(3)).n_rows == 3
    assert RowBlock(X=csr_matrix((3, 5)), y=np.arange(3), label_offsets=np.array([0, 2, 2, 3])).n_rows == 3


@pytest.mark.parametrize(
    ("columns", "length"),
    [
        ({"y": np.zeros(2)}, "label.: 2"),
        ({"y": np.zeros(3), "qid": np.arange(1)}, "qid.: 1"),
        (
            {"y": np.arange(3), "label_offsets": np.array([0, 2, 3])},
            "label.: 2",
        ),
    ],
)
def test_row_block__refuses_columns_for_another_number_of_rows(columns, length):
    with pytest.raises(ValueError, match=rf"3 rows has columns of other lengths: .*{length}"):
        RowBlock(X=csr_matrix((3, 5)), **columns)


def test_split__plain_values_leave_urls_out():
    file = SourceFile(name="a/b c.svm", url="s3://secret@host/a/b c.svm", size=10, mtime_ns=7)
    split = Split(number=3, file=file, start=2, stop=9)
    text = json.dumps(split.to_mapping())
    assert "secret" not in text
    assert json.loads(text)["files"][0]["name"] == "a/b c.svm"


def test_split__of_a_group_knows_its_files():
    files = [SourceFile(name=name, url=f"/x/{name}", size=5, compression=kind) for name, kind in GROUP]
    split = Split(number=0, file=files[0], start=0, stop=15, others=tuple(files[1:]))
    assert [file.name for file in split.files] == ["a", "b", "c.gz"]
    assert split.title == "a and 2 more"
    assert split.is_compressed
    moved = split.with_files({name: SourceFile(name=name, url=f"/y/{name}", size=5) for name, _ in GROUP})
    assert [file.url for file in moved.files] == ["/y/a", "/y/b", "/y/c.gz"]
    assert moved.number == 0


def test_source_file__identity_leaves_the_place_out():
    here = SourceFile(name="a", url="/x/a", size=1, mtime_ns=2)
    there = SourceFile(name="a", url="/y/a", size=1, mtime_ns=2)
    changed = SourceFile(name="a", url="/x/a", size=1, mtime_ns=3)
    assert here.identity == there.identity != changed.identity
