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
        ({"y": np.arange(3), "label_offsets": np.array([0, 2, 3])}, "label.: 2"),
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
