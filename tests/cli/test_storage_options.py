"""Storage options of command lines and job files: read as what they mean, and credentials only by a variable's name."""

from __future__ import annotations

import pytest

from dkfeat.cli.options import parse_options, resolve_options
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import hider, identifying, is_secret, is_url
from tests.faults.stores.bucket import KEY, SECRET


def test_parse__values_are_what_they_look_like():
    items = ["anon=false", "retry_seconds=2.5", "endpoint_url=http://h:1/?a=b", "x.y.z=1", "x.y.w=007", "none=null"]
    assert parse_options(items, "--storage-option") == {
        "anon": False,
        "retry_seconds": 2.5,
        "endpoint_url": "http://h:1/?a=b",
        "x": {"y": {"z": 1, "w": "007"}},
        "none": None,
    }
    assert parse_options([], "--storage-option") is None


def test_credentials__come_from_variables(monkeypatch):
    monkeypatch.setenv("MY_SECRET", SECRET)
    assert parse_options(["secret=env:MY_SECRET"], "--storage-option") == {"secret": SECRET}
    assert resolve_options({"a": {"token": "env:MY_SECRET"}}, "x") == {"a": {"token": SECRET}}


@pytest.mark.fault("X-09")
@pytest.mark.parametrize("item", [f"secret={SECRET}", f"key={KEY}", f"client_kwargs.aws_session_token={SECRET}"])
def test_credentials__given_by_value__are_refused_without_showing_them(item):
    with pytest.raises(ConfigError, match="env:NAME") as fault:
        parse_options([item], "--storage-option")
    assert SECRET not in str(fault.value)
    assert KEY not in str(fault.value)


def test_credentials__of_a_variable_that_is_not_set__are_named():
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE, which is not set"):
        resolve_options({"secret": "env:NO_SUCH_VARIABLE"}, "storage_options")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["a.b=1", "a.b=2"], r"--storage-option a\.b is given twice"),
        (["a.b=1", "a=2"], "--storage-option a is given twice"),
        (["a=1", "a.b=2"], "as a value and as a mapping"),
        (["a"], "'a' is not of the form key=value"),
    ],
)
def test_parse__contradictions_and_other_forms_are_refused(items, words):
    with pytest.raises(ConfigError, match=words):
        parse_options(items, "--storage-option")


@pytest.mark.parametrize(
    "name", ["key", "secret", "token", "password", "account_key", "aws_session_token", "sas_token"]
)
def test_names__of_credentials__are_known(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["endpoint_url", "anon", "region_name", "profile", "retry_seconds", "use_ssl"])
def test_names__of_other_settings__are_not_taken_for_credentials(name):
    assert not is_secret(name)


@pytest.mark.fault("X-09")
def test_hider__leaves_out_options_and_variables(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "planted-token")
    hide = hider({"key": KEY, "nested": {"secret": SECRET}, "client_kwargs": {"aws_secret_access_key": "another"}})
    text = hide(f"{KEY} / {SECRET} / another / planted-token / s3://u:p/w@bucket/x http://u:p@host/?sig=1")
    assert text == "… / … / … / … / s3://... http://host/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/x", True),
        ("simplecache::s3://bucket/x", True),
        ("/data/a::b", False),
        ("/data/s3://x", False),
        ("rows.svm", False),
        ("a b://c", False),
    ],
)
def test_urls__are_told_from_paths(text, expected):
    assert is_url(text) is expected


def test_shown__what_is_no_credential_stays():
    for url in ("s3://bucket/a@b:c.svm", "s3://arn:aws:s3:eu:1:accesspoint/x", "/data/a@b", "abfs://box@host/x"):
        assert identifying(url).rpartition("/")[2] == url.rpartition("/")[2]
