import json
import os
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dkfeat import __version__, errors
from dkfeat.cli import cli
from dkfeat.cli import group as _group
from tests import programs

COMMANDS = sorted(cli.commands)
COLOURS = (
    ("terminal", {"NO_COLOR": "", "TERM": "xterm"}),
    ("pipe", {"TERM": "xterm"}),
    ("NO_COLOR", {"NO_COLOR": "1", "TERM": "xterm"}),
    ("dumb terminal", {"NO_COLOR": "", "TERM": "dumb"}),
)
SMALL = ("--n-components", "32", "--i-bits", "4")


def run(*arguments, status=0):
    outcome = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dkfeat")
    assert outcome.exit_code == status, outcome.output
    if status and "--log-format" not in arguments and "--check" not in arguments:
        assert re.search(r"^dkfeat: error: \S+: \S", outcome.stderr, re.MULTILINE), outcome.stderr
        assert ("Traceback" in outcome.stderr) == (status == 1)
    return outcome


def stamps(folder):
    """Times of all shards and of all that is written at a commit: manifests too."""
    names = [*folder.rglob("*.parquet"), *folder.rglob("*.json"), *folder.rglob("_SUCCESS")]
    return {path: path.stat().st_mtime_ns for path in names}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Rows, shards and a model, made by the commands."""
    folder = tmp_path_factory.mktemp("job")
    for name, rows in (("train", 120), ("test", 40)):
        lines = [f"{1 + i % 2} {1 + i % 2}:{1 + i % 7} {3 + i % 5}:0.5\n" for i in range(rows)]
        (folder / f"{name}.svm").write_text("".join(lines))
    train = run("featurize", folder / "train.svm", *SMALL, "--out", folder / "train")
    test = run("featurize", folder / "test.svm", "--like", folder / "train", "--out", folder / "test")
    fit = run("train", folder / "train", "--test", folder / "test", "--epochs", 3, "--out", folder / "model")
    return folder, train, test, fit


def test_featurize__tells_what_it_made_and_again_is_done_at_once(job):
    folder, train, test, _ = job
    assert train.stdout.split("\n")[0].split() == ["rows", "120"]
    assert str(folder / "test") in test.stdout
    assert "featurize: done, 120 rows" in train.stderr
    assert (folder / "train" / "_SUCCESS").exists()
    before = stamps(folder / "train")
    assert {"parquet", "json"} <= {path.suffix.removeprefix(".") for path in before}
    run("featurize", folder / "train.svm", *SMALL, "--out", folder / "train")
    assert stamps(folder / "train") == before


def test_featurize__relative_targets_get_their_parents(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("featurize", job[0] / "train.svm", *SMALL, "--out", "new/folder")
    assert (tmp_path / "new" / "folder" / "_SUCCESS").exists()
    absolute = tmp_path / "missing" / "folder"  # perhaps on a disk that is not mounted
    run("featurize", job[0] / "train.svm", *SMALL, "--no-progress", "--out", absolute, status=3)


def test_featurize__a_missing_source_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("featurize", "none.svm", *SMALL, "--out", "new/folder", status=2)
    assert list(tmp_path.iterdir()) == []


def test_train__tells_the_accuracy_and_progress(job):
    *_, fit = job
    assert re.search(r"^test accuracy +100\.00%$", fit.stdout, re.MULTILINE)
    assert re.search(r"train: epoch 3 of 3, loss \S+, penalty \S+, test accuracy 100\.00%", fit.stderr)


def test_train__several_alphas_and_losses(job):
    options = ("--alpha", 1e-6, "--alpha", 1e-2, "--loss", "hinge", "--loss", "log_loss", "--class-weight", "balanced")
    fit = run("train", job[0] / "train", *options, "--epochs", 2, "--patience", 1)
    assert re.search(r"^chosen +(hinge|log_loss), alpha 0\.01$", fit.stdout, re.MULTILINE)  # ties go to the larger
    assert re.search(r"^validation accuracy +100\.00%$", fit.stdout, re.MULTILINE)
    assert "not saved" in fit.stdout


def test_train__regression(job):
    options = ("--task", "regression", "--loss", "huber", "--test", job[0] / "test", "--epochs", 3)
    fit = run("train", job[0] / "train", *options, "--class-weight", "1=2", status=2)
    assert "--class-weight" in fit.stderr
    fit = run("train", job[0] / "train", *options)
    assert re.search(r"^test r2 +0\.\d{4}$", fit.stdout, re.MULTILINE)
    assert "test R² 0." in fit.stderr


def test_train__a_checkpoint_of_other_settings(job, tmp_path):
    options = ("--checkpoint", tmp_path / "state", "--epochs", 1)
    run("train", job[0] / "train", *options)
    outcome = run("train", job[0] / "train", *options, "--seed", 5, status=4)
    assert "--seed 0, now 5" in outcome.stderr
    run("train", job[0] / "train", *options, "--seed", 5, "--no-resume")
    run("train", job[0] / "test", *options, "--seed", 5, status=4)


def test_train__a_target_that_cannot_hold_a_model_is_told_before_any_work(job, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("dkfeat.learn.train.train", None)  # calling it would be an internal error
    assert "not a dkfeat model" in run("train", job[0] / "train", "--out", tmp_path, status=2).stderr
    below = tmp_path / "notes.txt" / "model"
    assert "cannot be written" in run("train", job[0] / "train", "--out", below, status=3).stderr


@pytest.mark.parametrize("out", [(), ("--out", "-")])
def test_predict__labels_on_stdout_accuracy_on_stderr(job, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    outcome = run("predict", job[0] / "model", job[0] / "test.svm", *out)
    assert outcome.stdout.splitlines() == [str(1 + i % 2) for i in range(40)]
    assert "accuracy 100.00% on the 40" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_predict__into_a_file_takes_no_options_of_folders(job, tmp_path):
    words = ("predict", job[0] / "model", job[0] / "test.svm", "--out", tmp_path / "labels.txt")
    told = run(*words, "--n-workers", 2, "--on-bad-row", "quarantine", "--target-option", "a=b", status=2).stderr
    assert "only predictions in a folder take --target-option, --on-bad-row, --n-workers; give --out DIR" in told
    told = run(*words, "--format", "parquet", "--id", "name", "--keep", "day", status=2).stderr
    assert "only predictions in a folder take --id, --keep; give --out DIR" in told
    assert not (tmp_path / "labels.txt").exists()
    run(*words, "--no-progress")


def test_plan__writes_nothing(job, tmp_path):
    outcome = run("plan", job[0] / "train.svm", *SMALL, "--out", tmp_path / "planned", "--scan")
    assert re.search(r"rows +120", outcome.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["train", "model"])
def test_inspect__text_and_json_tell_the_map(job, kind):
    target = job[0] / kind
    text, known = run("inspect", target).stdout, json.loads(run("inspect", target, "--json").stdout)
    assert known["kind"] == ("model" if kind == "model" else "shards")
    assert known["labels"] == [1, 2]
    assert known["map"]["params"]["n_components"] == 32
    assert "gcws version 1: n_features=7, n_components=32, i_bits=4" in text
    if kind == "train":
        assert known["rows"] == 120
        assert "bytes a row" in text


@pytest.mark.fault("S-05")
def test_verify__whole_and_damaged(job, tmp_path):
    target = tmp_path / "shards"
    run("featurize", job[0] / "train.svm", *SMALL, "--out", target)
    assert run("verify", target, job[0] / "train").stdout.count("all as committed") == 2
    shard = next((target / "data").iterdir())
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    outcome = run("verify", target, status=3)
    assert re.search(rf"^problem: .*{shard.name}", outcome.stdout, re.MULTILINE)
    assert "delete the shards named there and repeat the run" in outcome.stderr
    (problem,) = json.loads(run("verify", target, "--json", status=3).stdout)["problems"]
    assert shard.name in problem
    run("train", target, status=3)
    shard.unlink()
    run("featurize", job[0] / "train.svm", *SMALL, "--out", target)
    assert "all as committed" in run("verify", target).stdout


def test_verify__a_model_whole_and_damaged(job, tmp_path):
    target = tmp_path / "model"
    run("train", job[0] / "train", "--epochs", 1, "--out", target)
    assert "model of 2 classes and 512 features, all as saved" in run("verify", target).stdout
    facts = (target / "model.json").read_text()
    (target / "model.json").write_text(facts.replace('"n_components":32', '"n_components":31'))
    assert "model.json: it was changed after it was written" in run("verify", target, status=3).stderr
    (target / "model.json").write_text(facts)
    weights = next(target.glob("coef-*.npy"))
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "SHA-256" in run("verify", target, status=3).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("featurise",), "did you mean 'featurize'?"),
        (("quux",), "the commands are abort, break-lock, clean"),
        (("featurize", "a.svm"), "--out must be given"),
        (("featurize", "a.svm", "--out", "b", "--map", "gcsw"), "did you mean 'gcws'?"),
        (("featurize", "a.svm", "--out", "b", "--zero-based", "maybe"), "none of auto, true and false"),
        (("featurize", "a.svm", "--out", "b", "--labels", "x"), "labels holds 'x', but labels are finite numbers"),
        (("featurize", "a.svm", "--out", "b", "--like", "c", "--i-bits", "4"), "leave out --i-bits"),
        (("featurize", "none.svm", "--out", "b"), "none.svm"),
        (("featurize", "rows.svm", "--out", "b", "--no-progress", "--n-components", "0"), "--n-components=0"),
        (("featurize", "none.svm", "--out", "b", "--blocksize", "big"), "blocksize"),
        (("train", "x", "--loss", "squared"), "there is no 'squared'; did you mean 'squared_hinge'?"),
        (("train", "x", "--seed", "-1"), "--seed=-1"),
        (("featurize", "training.svm", "--out", "b"), "no file matches training.svm\n"),
        (("featurize", "label=1/a.svm", "--out", "b"), "no file matches label=1/a.svm\n"),
        (("featurize",), "featurize: SOURCE must be given"),
        (("train", "x", "-o", "m"), "there is no option '-o'; did you mean '--out'?"),
        (("train", "x", "-x"), "there is no option '-x'\n"),
        (("train", "x", "--epochs"), "train: option '--epochs' requires an argument\n"),
        (("train", "x", "--epochs", "0"), "train: --epochs: 0 is not in the range x>=1\n"),
        (("train", "x", "--epoch", "3"), "there is no option '--epoch'; did you mean '--epochs'?"),
        (("train", "x", "--alpha", "nan"), "alpha=nan"),
        (("train", "x", "--class-weight", "balanced", "--class-weight", "1=2"), "LABEL=WEIGHT"),
        (("train", "x", "--class-weight", "1=2", "--class-weight", "1=3"), "the label 1 twice"),
        (("train", "x", "--validation-fraction", "1"), "--validation-fraction=1"),
        (("predict", "none", "x.svm"), "holds no model"),
        (("demo", "--seed", "-1"), "seed=-1"),
        (("demo", "--out", "rows.svm"), "demo: --out: Directory 'rows.svm' is a file\n"),
        (("report", "none", "--out", "."), "report: --out: File '.' is a directory\n"),
        (("report", "none", "--out", "s3://bucket/a.html"), "report: --out: 's3://bucket/a.html' is a URL"),
    ],
)
def test_mistakes__exit_2_without_a_traceback(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n")
    assert words in run(*arguments, status=2).stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,label\n1,2,0\n", "'a,b,label'; dkfeat reads Parquet, JSON lines and LIBSVM text; this writes a CSV"),
        ('{"a":1,"b":2}\n', """'{"a":1,"b":2}'; JSON lines are read by --format jsonl\n"""),
        ("spam 1:1\n", "'spam'; words can be labels in Parquet and JSON lines\n"),
        ("1,2 1:1\n", "'1,2'; lists of labels are read with --multilabel\n"),
        ("Once upon a time\n", "'Once'; dkfeat reads Parquet, JSON lines and LIBSVM text, whose lines are such as"),
    ],
)
def test_other_text__is_named_as_what_it_may_be(text, words, tmp_path):
    (tmp_path / "rows.txt").write_text(text)
    outcome = run("featurize", tmp_path / "rows.txt", "--out", tmp_path / "out", status=2)
    assert f"rows.txt:1:1: expected a number as label, got {words}" in outcome.stderr
    assert "quarantine" not in outcome.stderr


def test_csv__is_answered_by_the_command_that_converts_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("x,label\n" + "1.5,0\n2.5,1\n" * 20)
    command = run("plan", "rows.csv", status=2).stderr.splitlines()[-1]
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True)
    run("featurize", "rows.parquet", "--out", "features", "--n-components", "8")


@pytest.mark.parametrize("command", ["abort", "clean", "inspect", "quarantine", "report", "status", "train", "verify"])
def test_file_in_place_of_shards__is_said_to_be_one(command, tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n")
    outcome = run(command, tmp_path / "rows.svm", status=3)
    expected = "rows.svm is not a folder of shards written by `dkfeat featurize ROWS --out FOLDER`: it is a file\n"
    assert outcome.stderr.endswith(expected)


def test_conflicts__exit_4(job, tmp_path):
    folder = job[0]
    run("featurize", folder / "train.svm", *SMALL, "--seed", 9, "--out", folder / "train", status=4)
    run("featurize", folder / "test.svm", *SMALL, "--seed", 9, "--out", tmp_path / "other")
    outcome = run("train", folder / "train", "--test", tmp_path / "other", status=4)
    assert "the test shards: made by another map" in outcome.stderr


def test_train__lists_of_labels(tmp_path):
    (tmp_path / "rows.svm").write_text("1,2 1:1\n2 2:1\n" * 20)
    run("featurize", tmp_path / "rows.svm", *SMALL, "--multilabel", "--out", tmp_path / "out")
    fit = run("train", tmp_path / "out", "--test", tmp_path / "out", "--epochs", 20)
    assert re.search(r"^task +multilabel$", fit.stdout, re.MULTILINE)
    assert re.search(r"^test accuracy +100\.00%$", fit.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ConfigError("x"), 2),
        (errors.ParseError("x", path="a.svm", line=1), 2),
        (errors.ShardError("x"), 3),
        (PermissionError(13, "Permission denied", "a"), 3),
        (errors.CommitConflictError("x"), 4),
        (errors.ClusterError("x"), 5),
        (KeyboardInterrupt(), 130),
        (_group._Terminated(), 143),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_exit_status__of_each_error(error, status, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("dkfeat.engine.dataset.dataset.open_shards", fail)
    outcome = run("verify", "somewhere", status=status)
    assert ("please report it" in outcome.stderr) == (status == 1)


def test_traceback__is_shown_on_request():
    outcome = CliRunner().invoke(cli, ["--traceback", "predict", "none", "x.svm"])
    assert outcome.exit_code == 2
    assert "Traceback" in outcome.stderr


@pytest.mark.fault("X-10")
def test_names_with_control_characters__are_escaped(tmp_path):
    folder = tmp_path / "\a1\x1b[2J"
    folder.mkdir()
    (folder / "a\a\nx\x1b[31m.svm").write_text("1 1:1\n-1 2:1\nspam\n")
    (folder / "b\a\x1b[31m.svm").write_text("1 1:1\n")
    target = folder / "out\a\x1b[7m"
    words = (folder / "a*.svm", "--out", target, "--on-bad-row", "quarantine")
    model = folder / "model\a\x1b[8m"
    outcomes = [
        run("plan", *words),
        run("featurize", *words, "--max-bad-rows", "1", "--no-progress", "--scheduler", "synchronous"),
        run("train", target, "--out", model, "--epochs", "1", "--no-progress"),
        *(run("inspect", folder) for folder in (target, model)),
        run("status", target),
        run("quarantine", target),
        run("verify", target, "--inputs", folder / "a*.svm"),
        run("report", target, "--out", folder / "report\a\x1b[9m.html", "--pair-rows", "0"),
        run("predict", model, folder / "b*.svm", "--out", folder / "labels\a\x1b[1m.csv"),
    ]
    for outcome in outcomes:
        text = outcome.stdout + outcome.stderr
        assert "\a" not in text, text  # click removes colours where there is no terminal, but not other characters
        assert not any(line.startswith("x") for line in text.splitlines()), text


@pytest.mark.fault("X-10")
def test_errors__cannot_steer_the_terminal(tmp_path):
    outcome = run("predict", tmp_path / "\x1b[2Jmodel", "x.svm", status=2)
    assert "\x1b" not in outcome.stderr
    assert "\\x1b[2Jmodel" in outcome.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help__has_an_example_that_fits_80_columns(command):
    text = run(command, "--help").stdout
    assert f"  dkfeat {command} " in text or command == "demo"
    assert all(len(line) <= 80 for line in text.splitlines())
    assert ",," not in text


def test_help__lists_all_commands_and_the_version():
    text = run("--help").stdout
    assert sorted(re.findall(r"^  ([a-z][a-z-]+) {2,}[A-Z]", text, re.MULTILINE)) == COMMANDS
    assert run("--version").stdout == f"dkfeat {__version__}\n"


def test_help__options_stand_under_headings():
    text = run("featurize", "--help-all").stdout
    headings = re.findall(r"^([A-Z].*):$", text, re.MULTILINE)
    assert headings[:3] == ["Target", "Feature map", "Feature map gcws"]
    assert headings[-1] == "Output"
    assert "Options" not in headings
    assert re.search(r"^Feature map laplace:\n  --beta .*\n +.*\n  --rate ", text, re.MULTILINE)


def test_help__fits_two_screens_and_all_options_are_asked_for():
    text = CliRunner().invoke(cli, ["featurize", "--help"], terminal_width=100).stdout
    assert len(text.splitlines()) <= 2 * 48
    assert "--help-all" in text
    assert "--beta" not in text
    every = run("featurize", "--help-all").stdout
    assert {*re.findall(r"^  --[a-z-]+", text, re.MULTILINE)} < {*re.findall(r"^  --[a-z-]+", every, re.MULTILINE)}


def test_help__has_colours_on_terminals_alone():
    """Click's runner strips them unless it is told that it writes to a terminal."""
    shown = {name: CliRunner().invoke(cli, ["--help"], color=name != "pipe", env=env).output for name, env in COLOURS}
    assert "\x1b[1mModels:" in shown["terminal"]
    assert "\x1b" not in shown["pipe"] + shown["NO_COLOR"] + shown["dumb terminal"]


def test_help__loads_nothing_heavy():
    program = (
        "import sys\nfrom dkfeat.cli import cli\n"
        "for words in (['--help'], *([name, '--help'] for name in cli.commands)):\n"
        "    cli.main(words, standalone_mode=False)\n"
        "heavy = {'dask', 'distributed', 'numba', 'numpy', 'pyarrow', 'scipy', 'sklearn', 'yaml'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_dask_entry_point__is_the_group():
    from importlib.metadata import entry_points

    (point,) = (point for point in entry_points(group="dask_cli") if point.name == "dkfeat")
    assert point.load() is cli
    assert cli.name == "dkfeat"  # what Dask calls it


@pytest.mark.slow
def test_demo__twice_with_the_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run("demo", "--n-components", 64)
    shards = stamps(tmp_path / "demo" / "digits" / "k64-b8" / "train")
    second = run("demo", "--n-components", 64)
    assert stamps(tmp_path / "demo" / "digits" / "k64-b8" / "train") == shards
    for text in (first.stdout, second.stdout):
        assert text.count("\n$ dkfeat ") == 3
        accuracies = [float(value) for value in re.findall(r"test accuracy, .* (\d+\.\d+)%", text)]
        assert len(accuracies) == 2
        assert min(accuracies) > 90
        assert re.search(r"bytes per row in the shards +\d+\.\d", text)
        assert "\x1b" not in text
    assert max(len(line) for line in first.stdout.splitlines() if not line.startswith("train: ")) <= 80
    commands = re.sub(r" \\\n +", " ", first.stdout).split("\n$ ")
    assert commands[2].startswith(
        "dkfeat featurize demo/digits/test.svm --like demo/digits/k64-b8/train --out demo/digits/k64-b8/test\n"
    )


def test_demo__stops_at_the_first_error(tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "train.svm").write_text("1 1:x\n")
    outcome = run("demo", "--out", tmp_path, status=2)
    assert outcome.stdout.count("\n$ dkfeat ") == 1
    assert outcome.stderr.count("dkfeat: error:") == 1


@pytest.mark.slow
@pytest.mark.fault("P-05")
@pytest.mark.parametrize(
    ("number", "status", "where"),
    [
        (signal.SIGINT, 130, ("--scheduler", "synchronous")),
        (signal.SIGTERM, 143, ("--scheduler", "synchronous")),
        pytest.param(signal.SIGINT, 130, ("--n-workers", "2"), marks=[pytest.mark.cluster, pytest.mark.slow]),
    ],
)
def test_process__interrupted_then_resumed(tmp_path, number, status, where):
    source, target = tmp_path / "rows.svm", tmp_path / "out"
    with source.open("w") as file:
        for i in range(200_000):
            file.write(f"{1 + i % 2} {1 + i % 5}:1 {10 + i % 7}:2 {30 + i % 11}:0.5\n")
    options = ("featurize", source, *SMALL, "--blocksize", "32KiB", "--out", target)
    if "synchronous" in where:
        done = programs.start_until("after_publish:10", programs.command(*options, *where))
    else:  # workers, which cannot be stopped that way, publish the shards
        done = programs.start(programs.command(*options, *where))
        programs.wait_until(lambda: list(target.glob("data/*.parquet")), done)
    os.killpg(done.pid, number)  # as a terminal does: workers get it too
    os.killpg(done.pid, signal.SIGCONT)
    _, err = done.communicate(timeout=240)
    assert done.returncode == status, err
    assert "Traceback" not in err
    assert not (target / "_SUCCESS").exists()
    assert run(*options).stdout.split()[:2] == ["rows", "200,000"]


def test_featurize__a_target_that_is_a_loop_of_symbolic_links(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    outcome = run("featurize", tmp_path / "rows.svm", *SMALL, "--out", tmp_path / "loop", status=3)
    assert f"{tmp_path / 'loop'} cannot be read: Too many levels of symbolic links" in outcome.stderr
