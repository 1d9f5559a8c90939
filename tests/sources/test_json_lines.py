"""JSON lines: the same rows as from Parquet for any split and compression, types of columns, bad rows by lines."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.errors import ConfigError, ParseError
from dkfeat.neighbors import drop_duplicates, duplicates
from dkfeat.sources.contents import compress, compression_of_name
from dkfeat.sources.formats import as_source
from tests.cli.test_commands import run

MAP = dkfeat.DartFeatures(64, random_state=0)
ROWS = [
    {
        "id": 2**60 + n,
        "y": n % 2,
        "a": n % 7 if n % 5 else None,
        "b": n / 3,
        "c": f"wörd {n % 4}",
        "tags": ["x"],
        "o": {"q": 1},
        "u": 2**60 + n % 4,
    }
    for n in range(400)
]
TYPES = ("id=int64", "u=int64", "y=int64", "a=float64", "b=float64", "c=string", "tags=list<string>", "o=object")


def text_of(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def written(path, *lines, rows=()):
    path.write_bytes(compress(b"".join(lines) + text_of(rows), compression_of_name(path.name)))
    return path


def features_of(source, target, encoder="auto"):
    dkfeat.featurize(source, target, MAP, encoder=encoder, progress=False)
    return dkfeat.open_shards(target)


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_rows__are_those_of_parquet(ending, tmp_path):
    first = [{name: value for name, value in row.items() if value is not None} for row in ROWS[:250]]  # members lacking
    written(tmp_path / f"1.jsonl{ending}", b"\xef\xbb\xbf", rows=first)
    written(
        tmp_path / f"2.jsonl{ending}",
        b"\r\n",
        text_of(ROWS[250:]).replace(b"\n", b"\r\n").rstrip() if not ending else text_of(ROWS[250:]),
    )
    table = pa.Table.from_pylist(ROWS).drop_columns(["o"])
    pq.write_table(table.set_column(2, "a", table["a"].cast(pa.float64())), tmp_path / "rows.parquet")
    roles = {"label": "y", "id": "id", "keep": "c", "features": ("a", "b", "c", "u")}
    roles["filters"], encoder = [("a", "<", 6), ("u", "!=", 2**60 + 1)], dkfeat.TableEncoder(categories=["u"])
    source = dkfeat.JsonLinesSource(str(tmp_path / f"*.jsonl{ending}"), blocksize="3KiB", **roles)
    found = features_of(source, tmp_path / "json", encoder)
    wanted = features_of(dkfeat.ParquetSource(str(tmp_path / "rows.parquet"), **roles), tmp_path / "parquet", encoder)
    assert found.n_shards > 8
    assert len({column.distinct for column in found.encoder.describe() if column.name == "u"} & {3}) == 1
    assert sorted(found.spec["input"]["types"]) == sorted(TYPES)
    tables = [pq.read_table(tmp_path / name / "data") for name in ("json", "parquet")]
    assert tables[0].equals(tables[1])
    assert 0 < tables[0].num_rows < 400
    assert as_source(str(tmp_path / f"*.jsonl{ending}")).kind == "jsonl"
    assert wanted.spec["encoder"]["encoder"] == "table"


def test_bad_rows__have_their_lines(tmp_path):
    lines = text_of(ROWS).splitlines(keepends=True)
    bad = {
        7: (b"oops\n", "expected one JSON object in the line"),
        120: (b'{"b": 1}{"b": 2}\n', "expected one JSON object in the line"),
        180: (b'{"y": 1, "b": 1, "c": "\\ud800"}\n', "no JSON: The surrogate pair in string is invalid"),
        190: (b'{"y": 1, "c": "1", "c": "2"}\n', r"""column c: the line has this key twice, as '"2"' at last"""),
        250: (b'{"y": 1, "b": "text"}\n', r"""column b: expected float64 by types, got '"text"'$"""),
        300: (b'{"y": null, "b": 1}\n', "column y: a null, but each row has a label"),
        399: (b'{"y": 1, "b"}\n', "no JSON: Expecting"),
    }
    good_lines = lines[:]
    for line, (text, _) in bad.items():
        lines[line - 1] = text
    path = written(tmp_path / "a.jsonl", *lines)
    options = {"label": "y", "id": "id", "types": TYPES, "features": ("a", "b", "c"), "blocksize": "6KiB"}
    source = dkfeat.JsonLinesSource(str(path), **options, on_bad_row="quarantine")
    found = features_of(source.replaced(max_bad_rows=7), tmp_path / "set-aside")
    rows = list(found.quarantine())
    assert [row.line for row in rows] == list(bad)
    for row, (_, wanted) in zip(rows, bad.values(), strict=True):
        assert re.search(wanted, row.message)
    assert found.n_shards > 3
    written(tmp_path / "good.jsonl", *[line for number, line in enumerate(lines, 1) if number not in bad])
    good = features_of(dkfeat.JsonLinesSource(str(tmp_path / "good.jsonl"), **options), tmp_path / "good")
    tables = [pq.read_table(tmp_path / name / "data") for name in ("set-aside", "good")]
    assert tables[0].equals(tables[1])
    assert good.n_rows == 393
    for line, (text, message) in bad.items():
        path.write_bytes(b"".join([*good_lines[: line - 1], text, *good_lines[line - 1 :]]))
        with pytest.raises(ParseError, match=rf"a.jsonl:{line}:1: {message}"):
            features_of(source.replaced(on_bad_row="raise"), tmp_path / f"no-{line}")


def test_types__are_settled_by_the_first_lines_or_given(tmp_path):
    first = {"x": 1, "k": 1, "s": "2026-01-01", "w": 2**60, "c": 1, "z": 1}
    path = written(tmp_path / "a.jsonl", rows=[first, {"x": 2.5, "k": 2, "n": None}])
    source = dkfeat.JsonLinesSource(str(path), label=None, keep="k", encoder=dkfeat.TableEncoder(categories=["c"]))
    assert source.inspect(source.files()).types == (
        "x=float64", "k=int64", "s=string", "w=int64", "c=int64", "z=float64", "n=null"
    )  # fmt: skip
    written(tmp_path / "b.jsonl", rows=[{"x": 1, "k": 1.5}])
    source = dkfeat.JsonLinesSource([str(path), str(tmp_path / "b.jsonl")], label=None, keep="k")
    with pytest.raises(ParseError, match=r"b.jsonl:1:1: column k: expected int64 by types, got '1.5'"):
        features_of(source, tmp_path / "no")
    features_of(source.replaced(types={"k": "float64", "x": "float64"}), tmp_path / "given")
    lacking = "n: there is no such column: .*, as in n=string; pass keep="
    for options, message in (({}, "n: is null, .* as in n=string$"), ({"types": ["x=float64"]}, lacking)):
        with pytest.raises(ParseError, match=message):
            features_of(source.replaced(keep="n", **options), tmp_path / "no")
    mixed = written(tmp_path / "c.jsonl", rows=[{"x": 1}, {"x": "one"}])
    with pytest.raises(ParseError, match=r"column x: has values of the types float64 and string.*types= with one"):
        features_of(dkfeat.JsonLinesSource(str(mixed), label=None), tmp_path / "no")
    for types, message in {
        "x": "'x', but .* list<string>$",
        5: "'5', but",
        ("a=int64", "a=string"): "'a' twice",
    }.items():
        with pytest.raises(ConfigError, match=f"types has {message}"):
            dkfeat.JsonLinesSource(str(mixed), types=types)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b'\n[{"a": 1},\n{"a": 2}]\n',
            r"""a.jsonl:2:1: expected one JSON object .* got '\[{"a":.*'; .* this writes""",
        ),
        (b'{"a": 1},\n{"a": 2},\n', r"a.jsonl:1:1: expected one JSON object in the line, got '{\"a\": 1},'"),
        ('{"a": "wörd"}\n'.encode("latin-1"), "a.jsonl:1:1: no JSON: 'utf-8' codec can't decode byte 0xf6"),
        (b"\n\n", r"a.jsonl: it has no columns; name them by types=, or add rows"),
        (b'{"": "x"}\n{"": "y"}\n', "a.jsonl: column '': a column without a name"),
    ],
)
def test_files_without_objects__show_their_first_line(text, message, tmp_path):
    path = written(tmp_path / "a.jsonl", text)
    with pytest.raises(ParseError, match=message):
        features_of(dkfeat.JsonLinesSource(str(path), label=None), tmp_path / "no")


def test_members_that_are_left_out_or_lacking__are_named(tmp_path, caplog):
    rows = [{"title": f"t{n % 3}", "n": n, "meta": {"q": 1}, "late": None, "body": None} for n in range(200)]
    written(tmp_path / "a.jsonl", rows=rows)
    written(tmp_path / "b.jsonl", rows=[{"title": "t", "n": 1}] * 9 + [{"body": "x"}])  # all are there
    source = dkfeat.JsonLinesSource(str(tmp_path / "*.jsonl"), label=None)
    texts = dkfeat.TableEncoder(text={"body": "word 1"})
    for night in (1, 2):
        found = features_of(source, tmp_path / "features", texts)
        told = "\n".join(caplog.messages)
        assert ("'meta' (binary and nested types have no encoding), 'late' (no values)" in told) == (night == 1)
        assert ("c.jsonl: its first lines have no member body, n, title, " in told) == (night == 2)
        assert ("2 columns that the encoder has not seen, such as caption, ignored" in told) == (night == 2)
        assert "its first lines have no" not in told.replace("c.jsonl: its first", "")
        caplog.clear()
        dkfeat.plan(source, tmp_path / "features")
        assert not caplog.messages  # of what is committed
        written(tmp_path / "c.jsonl", rows=[{"caption": "x", "zz": 1}])
    assert found.encoder.texts.keys() == {"body"}
    features_of(source.replaced(types={"missing": "string"}), tmp_path / "typo", dkfeat.Text("missing", "word 1"))
    assert "a.jsonl: its first lines have no member missing, " in caplog.text


def test_first_lines_of_few_files__are_looked_at(tmp_path, caplog):
    for number in range(250):
        written(tmp_path / f"{number:03}.jsonl", rows=[{"x": "x" * 70_000}, {"y": 1}][: 1 + (number == 3)])
    source = dkfeat.JsonLinesSource(str(tmp_path / "*.jsonl"), label=None, types=["x=string", "y=string"], keep="y")
    source.warn_of_columns(source.files(), None)
    assert "000.jsonl: its first lines have no member y, " in caplog.text
    assert caplog.text.endswith("(84 of 84 files)\n")


def test_copy_without_duplicates__has_the_lines_as_they_are(tmp_path):
    lines = [line.replace(b": ", b":   ") for line in text_of(ROWS[:100] + ROWS[:50]).splitlines(keepends=True)]
    lines[100:] = [line.replace(b":   ", b":") for line in lines[100:]]
    path = written(tmp_path / "docs.jsonl.zst", b" \n", *lines, b"[]\n")
    words = ("--label", "y", "--features", "b,c", "--filters", "b != 0", "--on-bad-row", "quarantine")
    run("featurize", path, *words, "--max-bad-rows", "1", "--map", "dart", "--out", tmp_path / "features")
    found = duplicates(tmp_path / "features", threshold=1, target=tmp_path / "duplicates", progress=False)
    run(
        "drop-duplicates", path, tmp_path / "duplicates", "--out", tmp_path / "clean", "--dropped", tmp_path / "dropped"
    )
    assert found.n_rows == 148
    for name, wanted in (("clean", lines[1:100]), ("dropped", lines[101:])):
        (made,) = (tmp_path / name).glob("part-*.jsonl.zst")
        assert made.read_bytes() == compress(b"".join(wanted), "zstd")
    assert pq.read_table(tmp_path / "dropped" / "data")["duplicate_group"].to_pylist() == list(range(49))
    assert drop_duplicates(str(path), found, tmp_path / "clean", progress=False).rows == 99
    assert np.count_nonzero(~found.kept) == 49
