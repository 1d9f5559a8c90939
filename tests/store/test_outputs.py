"""No result replaces an input, a part of a data set or a model, or a file of others."""

from __future__ import annotations

import os

import pytest

from dkfeat.errors import CommitError, ConfigError
from dkfeat.html import render
from dkfeat.store.outputs import check_folder, check_outputs, check_outside, write_output


@pytest.fixture
def places(tmp_path):
    """A folder with the parts of a data set, a model, and a file of another program's model."""
    (tmp_path / "shards" / "_dkfeat").mkdir(parents=True)
    (tmp_path / "shards" / "_dkfeat" / "spec.json").write_text("{}")
    (tmp_path / "shards" / "data").mkdir()
    (tmp_path / "shards" / "data" / "part.parquet").write_text("rows")
    for name in ("model", "foreign"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.json").write_text("{}")
    (tmp_path / "model" / "coef-0123456789ab.npy").touch()
    (tmp_path / "rows.svm").write_text("1 1:1\n")
    return tmp_path


def test_outputs__a_new_file(places):
    assert check_outputs([places / "a" / "b.csv", f"file://{places}/foreign/c.csv"]) == [
        places / "a" / "b.csv",
        places / "foreign" / "c.csv",
    ]
    assert not (places / "a").exists()


@pytest.mark.fault("S-19")
@pytest.mark.parametrize(
    "name",
    [
        "shards/a.csv",
        "shards/data/part.parquet",
        "shards/_dkfeat/spec.json",
        "shards/new/a.csv",
        "model/a.csv",
        "model/model.json",
        "link/part.parquet",
        "linked.parquet",
    ],
)
def test_outputs__in_a_data_set_or_a_model_are_refused(places, name):
    (places / "link").symlink_to("shards/data")
    (places / "linked.parquet").symlink_to("shards/data/part.parquet")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"which holds a (data set|model) and may hold no other files"):
            check_outputs([places / name], overwrite=overwrite)


@pytest.mark.fault("S-19")
@pytest.mark.parametrize("given", ["rows.svm", "./rows.svm", "*.svm", "**/*.svm", "file://{}/rows.svm"])
@pytest.mark.parametrize("out", ["rows.svm", "x/../rows.svm", "link.svm", "hard.svm", "file://{}/rows.svm"])
def test_outputs__an_input_is_never_replaced(places, monkeypatch, given, out):
    monkeypatch.chdir(places)
    (places / "x").mkdir()
    (places / "link.svm").symlink_to("rows.svm")
    os.link("rows.svm", "hard.svm")
    inputs = ["s3://bucket/rows.svm", given.format(places)]
    with pytest.raises(ConfigError, match="is an input of this command"):
        check_outputs([out.format(places)], inputs=inputs, overwrite=True)


@pytest.mark.fault("S-19")
def test_outputs__a_file_of_others_is_replaced_on_request_alone(places):
    with pytest.raises(ConfigError, match=r"rows\.svm exists.*overwrite=True"):
        check_outputs([places / "new.html", places / "rows.svm"])
    assert check_outputs([places / "rows.svm"], overwrite=True) == [places / "rows.svm"]


def test_outputs__an_earlier_page_is_replaced_with_all_files_beside_it(places):
    write_output(places / "report" / "page.html", render("page.html", title="Title"))
    write_output(places / "report" / "page.json", b"{}")
    assert check_folder(f"file://{places}/report", ["page.html", "page.json"]) == places / "report"
    with pytest.raises(ConfigError, match=r"page\.json exists"):
        check_outputs([places / "report" / "page.json"])


@pytest.mark.parametrize("name", ["s3://bucket/a.csv", "-", "", "a/", "shards", "pipe", "a\0b"])
def test_outputs__what_is_no_file_of_this_machine_is_refused(places, monkeypatch, name):
    monkeypatch.chdir(places)
    os.mkfifo("pipe")
    with pytest.raises(ConfigError, match=r"this machine only|is not the name of a file|not a regular file"):
        check_outputs([name], overwrite=True)


def test_outputs__below_a_file(places):
    with pytest.raises(CommitError, match="is not a writable folder"):
        check_outputs([places / "rows.svm" / "a.csv"])


def test_write_output__follows_a_link_and_keeps_other_names_of_the_former_file(places):
    (places / "link.svm").symlink_to("rows.svm")
    os.link(places / "rows.svm", places / "hard.svm")
    write_output(places / "link.svm", "new")
    assert (places / "link.svm").is_symlink()
    assert [(places / name).read_text() for name in ("rows.svm", "hard.svm")] == ["new", "1 1:1\n"]


def test_place__may_be_of_its_own_kind(places):
    check_outside(str(places / "shards"), kind="features")
    check_outside(str(places / "model"), kind="a model")
    check_outside(str(places / "foreign" / "model"), kind="a model")
    (places / "model" / "checkpoint").mkdir()  # what is no file tells nothing
    for name, kind in (
        ("model", "features"),
        ("shards", "a model"),
        ("shards/data", "features"),
        ("model/m", "a model"),
    ):
        with pytest.raises(ConfigError, match=r"choose another (place|folder)"):
            check_outside(str(places / name), kind=kind)


def test_place__in_an_object_store():
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe_file("/outputs/shards/_dkfeat/spec.json", b"{}")
    store.pipe_file("/outputs/model/model.json", b"{}")
    store.pipe_file("/outputs/model/coef-0123456789ab.npy", b"")
    check_outside("memory://outputs/shards", kind="features")
    for name in ("shards/data", "shards/a/b"):
        with pytest.raises(ConfigError, match="memory://outputs/shards, which holds a data set"):
            check_outside(f"memory://outputs/{name}", kind="features")
    for name, kind in (("shards", "a model"), ("model", "features")):
        with pytest.raises(ConfigError, match=rf"holds a .* but the output of this command is {kind}"):
            check_outside(f"memory://outputs/{name}", kind=kind)


@pytest.mark.fault("S-19")
def test_outputs__of_a_folder_only_parquet_files_are_inputs(tmp_path):
    """A folder as a source is read for Parquet files only, so a result beside them can be replaced."""
    inputs = tmp_path / "days"
    (inputs / "more").mkdir(parents=True)
    for name in ("more/labels.csv", "more/day.parquet"):
        (inputs / name).touch()
    check_outputs([inputs / "more/labels.csv"], inputs=[str(inputs)], overwrite=True)
    with pytest.raises(ConfigError, match="is an input of this command"):
        check_outputs([inputs / "more/day.parquet"], inputs=[str(inputs)], overwrite=True)
