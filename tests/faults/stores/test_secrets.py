"""Credentials are sent only to the store: the tests search all files and output of a run for a secret."""

from __future__ import annotations

import json
import logging
import pickle
import string
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import dask
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import dkfeat
from dkfeat.cli import cli
from dkfeat.engine.plan import plan
from dkfeat.engine.runners.connect import check_address
from dkfeat.engine.tasks.job import Job
from dkfeat.errors import ConfigError, DkfeatError, SourceNotFoundError
from dkfeat.messages import without_secrets
from dkfeat.store.storage import open_storage
from tests import programs
from tests.cli.test_commands import run
from tests.engine.helpers import featurized, gcws
from tests.faults.stores.bucket import KEY, SECRET
from tests.sources.web_server import web_server

BLOCK = 40_000
TOKEN = "planted-session-token"

pytestmark = pytest.mark.fault("X-09")


def assert_clean(*texts: object, secrets: Sequence[str] = (KEY, SECRET, TOKEN)) -> None:
    for text in texts:
        content = text if isinstance(text, bytes) else str(text).encode()
        for secret in secrets:
            assert secret.encode() not in content, content[:1000]


@pytest.fixture
def secret_options(options):
    return {**options, "token": TOKEN}


@pytest.fixture
def source(tiny_folder, bucket, secret_options):
    bucket.fill(tiny_folder)
    return dkfeat.LibsvmSource(bucket.url("in/*.svm"), blocksize=BLOCK, storage_options=secret_options)


@pytest.mark.cluster
def test_run__leaves_them_nowhere(source, bucket, secret_options, cluster_client, caplog, capfd, proxy, tmp_path):
    caplog.set_level(logging.DEBUG, "dkfeat")
    # at DEBUG, distributed logs messages with all their data
    caplog.set_level(logging.INFO, "distributed")
    proxy.add(503, method="PUT", times=4)
    featurized(source, bucket.url(), client=cluster_client, target_options=secret_options, progress=True)
    data = dkfeat.open_shards(bucket.url(), storage_options=secret_options)
    lazy, y = data.to_dask()
    cluster_client.compute(y).result()
    model = dkfeat.train(data, dkfeat.SGD(epochs=1), progress=False)
    model.save(tmp_path / "model")
    keys = bucket.keys("out/")
    assert_clean(*keys, *(bucket.get(key) for key in keys))
    assert_clean(*(path.read_bytes() for path in (tmp_path / "model").iterdir()))
    assert_clean(caplog.text, *capfd.readouterr())
    assert_clean(*cluster_client.run_on_scheduler(_scheduler_knows))
    folders = cluster_client.run(lambda dask_worker: (dask_worker.local_directory, str(list(dask_worker.state.log))))
    for folder, log in folders.values():
        assert_clean(log, *(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()))
    assert_clean(*lazy.__dask_keys__(), *lazy.dask.layers, repr(lazy), repr(data))


def _scheduler_knows(dask_scheduler) -> list[str]:
    return [str(list(dask_scheduler.transition_log)), *map(str, dask_scheduler.tasks), str(dask_scheduler.plugins)]


def test_reprs_and_plans__do_not_show_them(source, bucket, secret_options):
    storage = open_storage(bucket.url(), secret_options)
    job = Job(source=source, storage=storage, spec={}, spec_fp="", run_id="")
    made = plan(source, dkfeat.Target(bucket.url(), storage_options=secret_options), gcws())
    X, y = dkfeat.read_libsvm(
        bucket.url("in/*.svm"), n_features=300, zero_based=False, label_dtype="int64", storage_options=secret_options
    )
    assert_clean(repr(source), repr(storage), repr(job), made, made.describe(), source.to_mapping(), storage.url)
    assert_clean(repr(X), *X.dask, *map(repr, X.dask.values()), repr(y))


TROUBLES = ["403", "expired", "500", "drop before", "no bucket", "no endpoint", "no source", "wrong option"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_errors__do_not_show_them(source, bucket, secret_options, proxy, trouble, caplog):
    caplog.set_level(logging.DEBUG, "dkfeat")
    options, target = {**secret_options, "retry_seconds": 0.1}, bucket.url()
    if trouble == "no bucket":
        target = "s3://there-is-none/out"
    elif trouble == "no endpoint":
        options["endpoint_url"] = "http://127.0.0.1:9"
    elif trouble == "wrong option":
        options |= {"username": SECRET, "key": SECRET}
    elif trouble == "no source":
        source = dkfeat.LibsvmSource(bucket.url("gone/*.svm"), storage_options=options)
    else:
        proxy.add(trouble, method="PUT")
    with pytest.raises(DkfeatError) as fault:
        featurized(source, target, target_options=options)
    assert isinstance(fault.value, SourceNotFoundError) == (trouble == "no source")
    assert_clean(fault.value, repr(fault.value), *traceback.format_exception(fault.value), caplog.text)


PASSWORD, SIGNATURE = "planted+pass:word", "planted/signa%2Bture"
HARMLESS = (
    "s3://bucket/a@b:c.svm",
    "s3://bucket/day=?/part-*.parquet",
    "s3://arn:aws:s3:eu-west-1:1:accesspoint/x",
    "abfs://box@account.dfs.core.windows.net/day-?.svm",
    "az://box/a?year=2020",
    "tcp://127.0.0.1:8786->tcp://[fe80::1]:8786",
    "'http://host:8080/a@b/c:d'",
    "https://host: 's3://bucket':",
    r"`tcp://host:8786`, '\"s3://bucket:\" http://host:\n'",
    "file:///data/me@here file:/me@here",
    "/data:/a:b/a@b:c.svm, me@host, token=1",
)
CARRIERS = (
    "http://user:{0}@host:1/a.svm",
    "https://{0}@host/a.svm",
    "s3://key:{0}@bucket/a.svm",
    "s3a://key:/{0}",
    "abfs://key:{0}@host/a.svm",
    "tcp://user:{0}@[::1]:8786",
    "memory://user:{0}@host/a.svm",
    "simplecache::ftp://user:{0}@host/a.svm",
    "https://host/a.svm?{0}",
    "https://host/a.svm?x=1&token={0}",
    "abfs://box@host/a.svm?sv=1&sig={0}&se=2",
    "az://box/a.svm#access_token={0}",
    "host/a.svm?X-Amz-Signature={0}",
)
WEAVES = (str, repr, json.dumps, Path, "({})".format, "no file matches {}: try another".format, "1{}".format)


@given(st.lists(st.sampled_from(HARMLESS) | st.text(st.characters(exclude_characters="@:=?")), max_size=5))
def test_texts__without_credentials_stay_as_they_are(texts):
    text = " ".join(texts)
    assert without_secrets(text) == text


@pytest.mark.fault("X-14")
@given(st.text(string.ascii_letters + string.digits + "-._~!$()*+,;:%", min_size=6), st.data())
def test_texts__with_credentials_lose_them(secret, data):
    secret = f"x{secret}x"
    carrier, weave = data.draw(st.sampled_from(CARRIERS)), data.draw(st.sampled_from(WEAVES))
    text = without_secrets(str(weave(carrier.format(secret))))
    assert secret not in text
    assert without_secrets(text) == text


@pytest.mark.fault("X-14")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_texts__that_were_cut_show_no_part_of_a_secret(carrier):
    assume_host = carrier == "https://{0}@host/a.svm"  # which part of the user was cut off cannot be seen
    text = carrier.format("planted-secret")
    for end in range(len(text) + 1):
        assert assume_host or "plan" not in without_secrets(text[:end])


@pytest.mark.parametrize(
    "piece", ["http://", ":/", "s3://", "://[", "https://?", "?'", "&sig", "a:", "x", "s3:/:'", "?a="]
)
def test_texts__that_are_hostile_take_linear_time(piece):
    for begin in ("", "https://", "https://h?", "s3://", "tcp://", "?sig="):
        start = time.process_time()
        without_secrets(begin + piece * (30_000 // len(piece)))
        assert time.process_time() - start < 2  # seconds; much more if it were quadratic


@pytest.mark.fault("X-14")
def test_errors__in_python_hide_them_in_notes_and_causes():
    url = f"https://user:{PASSWORD}@host/x?sig={SIGNATURE}"
    with pytest.raises(ConfigError, match="https://host/x is wrong") as caught:
        _fail(url)
    shown = [repr(pickle.loads(pickle.dumps(caught.value))), *traceback.format_exception(caught.value)]
    assert all(f"{word} https:/" in "".join(shown) for word in ("see", "no"))
    assert_clean(*shown, secrets=(PASSWORD, SIGNATURE))


@dataclass(frozen=True)
class Frozen(Exception):
    """Error that refuses to be changed."""

    text: str


@pytest.mark.parametrize("cause", [OSError(2, "gone", Path("a")), Frozen("https://user:secret@host")])
def test_errors__leave_others_that_are_handled_as_they_are(cause):
    before = dict(vars(cause)), cause.args, getattr(cause, "filename", None)
    with pytest.raises(ConfigError, match="wrong"):
        _fail_while(cause)
    assert (dict(vars(cause)), cause.args, getattr(cause, "filename", None)) == before


def _fail_while(cause: Exception) -> None:
    try:
        raise cause
    finally:
        raise ConfigError("wrong")


def test_log_lines__keep_quotes_after_a_url():
    done = CliRunner().invoke(cli, ["--log-format=json", "inspect", 'none http://host:"'])
    assert json.loads(done.stderr)["message"].endswith('host:": there is no such folder')


def _fail(url: str) -> None:
    try:
        try:
            raise FileNotFoundError(2, f"no {url}", Path(url))
        except OSError:
            raise ValueError(url, 1)  # noqa: B904 - the context is what is tested
    except ValueError as fault:
        error = ConfigError(f"{url} is wrong")
        error.add_note(f"see {url}")
        raise error from fault


ARGUMENTS = {
    "source": "x.svm",
    "shards": "shards",
    "queries": "shards",
    "target": "shards",
    "run": "shards",
    "model": "model",
    "duplicates": "duplicates",
    "conf": "job.yaml",
    "files": "job.yaml",
}


def _commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from _commands(one, *path, name)
    else:
        yield path, command


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder of rows and what commands make of them."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "x.svm").write_bytes(b"1 1:1 4:1\n2 2:1 3:1\n" * 30)
    (folder / "job.yaml").write_text("featurize: []\n")
    run("featurize", folder / "x.svm", "--n-components", 8, "--i-bits", 4, "--out", folder / "shards")
    run("train", folder / "shards", "--epochs", 1, "--out", folder / "model")
    run("duplicates", folder / "shards", "--out", folder / "duplicates")
    return folder


def _name(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else ""


@pytest.mark.fault("X-14")
@pytest.mark.slow
@pytest.mark.parametrize(("path", "command"), list(_commands(cli)), ids=_name)
def test_commands__with_secrets_in_any_parameter__do_not_show_them(path, command, made, monkeypatch):
    monkeypatch.chdir(made)
    secrets = ("planted-password", "planted-signature")
    user, query = f"user:{secrets[0]}", f"X-Amz-Signature={secrets[1]}&token={secrets[1]}"
    before = set(made.rglob("*"))
    with (
        web_server({"/x.svm": (made / "x.svm").read_bytes()}, ETag='"1"') as web,
        dask.config.set({"distributed.comm.timeouts.connect": "100ms", "dkfeat.scheduler": "synchronous"}),
    ):
        urls = [web.url("/x.svm", query, user), web.url("/none.svm", query, user)]
        urls += [f"s3://key:{secrets[0]}/x@bucket/x.svm", f"abfs://box@host/x.svm?sv=1&sig={secrets[1]}"]
        urls += [f"{kind}://{user}@127.0.0.1:9/x?token={secrets[1]}" for kind in ("tcp", "memory", "filecache::memory")]
        tested = [each for each in command.params if not getattr(each, "is_flag", False)]
        pairs = [
            (one, url)
            for at, one in enumerate(tested)
            for url in (urls if isinstance(one, click.Argument) else [urls[at % len(urls)]])
        ]
        for number, (one, url) in enumerate(pairs):
            words = ["--traceback", f"--log-format={('text', 'json')[number % 2]}", *path]
            words += ["--json"] * (number % 3 == 0)
            for parameter in command.params:
                if parameter is one:
                    value = f"endpoint_url={url}" if parameter.metavar == "KEY=VALUE" else url
                elif parameter.required:
                    value = ARGUMENTS.get(parameter.name, "other")
                else:
                    continue
                words += [value] if isinstance(parameter, click.Argument) else [max(parameter.opts, key=len), value]
            done = CliRunner().invoke(cli, words, prog_name="dkfeat")
            assert done.exit_code != 1, done.output
            assert_clean(done.stdout, done.stderr, secrets=secrets)
    assert_clean(*(path.read_bytes() for path in set(made.rglob("*")) - before if path.is_file()), secrets=secrets)


@pytest.mark.fault("X-14")
@pytest.mark.slow
def test_libraries__that_log_urls__do_not_show_them(tmp_path):
    code = "import logging; logging.basicConfig(level=logging.DEBUG); " + programs.COMMAND
    user, query = f"user:{TOKEN}", f"X-Amz-Signature={TOKEN}"
    with web_server({"/x.svm": b"1 1:1\n"}, ETag='"1"') as web:
        web.faults += [500, 503]
        words = ["featurize", web.url("/x.svm", query, user), "--out", str(tmp_path / "out")]
        ended = programs.run([sys.executable, "-c", code, *words], DASK_DKFEAT__SCHEDULER="synchronous")
    assert ended.status == 0, ended.err
    assert "DEBUG:fsspec" in ended.err
    assert TOKEN in str(web.requests)
    assert_clean(ended.out, ended.err)


@pytest.mark.fault("X-14")
@pytest.mark.parametrize("address", [f"tcp://user:{TOKEN}@127.0.0.1:8786", f"user:{TOKEN}@host:8786"])
def test_schedulers__with_a_password__are_refused_without_showing_it(address):
    with pytest.raises(ConfigError, match="holds a user or a password") as caught:
        check_address(address)
    assert_clean(*traceback.format_exception(caught.value))


def test_loggers__of_all_modules_leave_them_out():
    modules = [path.read_text() for path in Path(dkfeat.__file__).parent.rglob("*.py")]
    assert not [text for text in modules if "getLogger(__name__)" in text]
