import json
import runpy
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dkfeat.cli import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def letter(tmp_path_factory):
    """The Letter job with a few rows in place of Letter's."""
    folder = tmp_path_factory.mktemp("job")
    settings = yaml.safe_load((ROOT / "conf" / "letter.yaml").read_text())
    for part, rows in zip(settings["featurize"], (60, 30), strict=True):
        path = folder / part["source"]["urlpath"].removesuffix(".xz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{1 + i % 2} {1 + i % 2}:{1 + i % 5}\n" for i in range(rows)))
        part["source"]["urlpath"] = str(path)
    settings["train"]["epochs"] = 2
    (folder / "conf.yaml").write_text(yaml.safe_dump(settings))
    return folder


def test_run__of_all_sections_and_of_some(letter, monkeypatch):
    monkeypatch.chdir(letter)
    made = CliRunner().invoke(cli, ["run", "conf.yaml"])
    assert made.exit_code == 0, made.output
    assert [line.partition(":")[0] for line in made.stdout.splitlines()] == [
        "features/letter-train",
        "features/letter-test",
        "models/letter",
        "test accuracy 100.00%",
        "predictions/letter-test",
        "models/letter",
    ]
    again = CliRunner().invoke(cli, ["run", "conf.yaml", "--only", "predict"])
    assert again.stdout == "predictions/letter-test: predictions for 30 rows\n"
    assert "nothing to do" in again.stderr
    again = CliRunner().invoke(cli, ["run", "conf.yaml", "--only", "predict", "--json"])
    assert json.loads(again.stdout) == {"predict": "predictions/letter-test", "rows": 30}
    quiet = CliRunner().invoke(cli, ["run", "conf.yaml", "--only", "train", "--only", "evaluate", "--quiet"])
    assert (quiet.exit_code, quiet.output) == (0, "")
    (letter / "more.yaml").write_text((letter / "conf.yaml").read_text().replace("epochs: 2", "epochs: 3"))
    refused = CliRunner().invoke(cli, ["run", "more.yaml", "--only", "train"])
    assert "pass overwrite: true, or" in refused.stderr
    logged = CliRunner().invoke(cli, ["--log-format", "json", "run", "conf.yaml", "--only", "train"])
    assert {json.loads(line)["event"] for line in logged.stderr.splitlines()} == {"epoch"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "train"], "lists nothing under `train`"),
        (["--dry-run"], "lists nothing under `featurize, train, predict, evaluate`"),
        (["--nightly", "--only", "train"], "leave out --only"),
        (["--nightly"], "lists nothing under `featurize`"),
    ],
)
def test_run__mistakes_exit_2(tmp_path, words, message):
    (tmp_path / "conf.yaml").write_text("run: {}")
    outcome = CliRunner().invoke(cli, ["run", str(tmp_path / "conf.yaml"), *words])
    assert outcome.exit_code == 2
    assert message in outcome.output


@pytest.mark.parametrize(
    ("script", "text", "words"),
    [
        ("train", "train: {{shards: none, out: '{folder}'}}", "not a dkfeat model"),
        ("evaluate", "evaluate: []", "lists nothing under `evaluate`"),
        ("predict", "predict: [{{model: none, source: {{urlpath: a}}, out: b}}]", "none holds no model"),
    ],
)
def test_jobs__mistakes_exit_2_before_any_work(tmp_path, script, text, words):
    (tmp_path / "conf.yaml").write_text(text.format(folder=tmp_path))
    main = runpy.run_path(str(ROOT / "jobs" / f"{script}.py"))["main"]
    outcome = CliRunner().invoke(main, [str(tmp_path / "conf.yaml")])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"dkfeat: error: {script}: ")
    assert words in outcome.stderr
