"""What shells complete: commands, options, values, and paths."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from dkfeat.cli import cli


def completed(*words):
    *before, last = words
    items = ShellComplete(cli, {}, "dkfeat", "_DKFEAT_COMPLETE").get_completions(list(before), last)
    return [item.value if item.type == "plain" else item.type for item in items]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("fea",), ["featurize"]),
        (("featurize", "--n-comp"), ["--n-components"]),
        (("featurize", "--map", "l"), ["laplace"]),
        (("featurize", "--kernel", "rbf"), ["rbf_cosine", "rbf"]),
        (("featurize", "--projection", "al"), ["alternating_circulant"]),
        (("featurize", "--n-mixtures", "l"), ["log2"]),
        (("featurize", "--zero-based", ""), ["auto", "true", "false"]),
        (("featurize", "--scheduler", "sy"), ["synchronous"]),
        (("featurize", "--normalize", "l"), ["l1", "l2"]),
        (("featurize", ""), ["file"]),
        (("featurize", "a.svm", "--out", ""), ["file"]),
        (("featurize", "a.svm", "--cluster", ""), ["file"]),
        (("train", ""), ["file"]),
        (("train", "a", "--loss", "h"), ["hinge", "huber"]),
        (("predict", ""), ["file"]),
        (("predict", "model", ""), ["file"]),
        (("run", ""), ["file"]),
        (("featurise", "--n-comp"), []),
    ],
)
def test_completion__of(words, found):
    assert completed(*words) == found


@pytest.mark.parametrize("name", cli.commands)
def test_completion__knows_every_path(name):
    """An option or argument whose help shows a folder or a file is completed as one."""
    for parameter in cli.commands[name].params:
        metavar = parameter.metavar or str(parameter.name).upper()
        if metavar in ("DIR", "FILE", "MODEL", "SHARDS", "SOURCE", "TARGET"):
            assert parameter.type.shell_complete(None, parameter, "")[0].type in ("dir", "file"), parameter


def test_completion__in_bash(tmp_path):
    """The script as bash runs it when the key is pressed."""
    program = shutil.which("bash")
    if program is None:
        pytest.skip("bash is not installed")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "dkfeat"
    command.write_text(f"#!{sys.executable}\nfrom dkfeat.cli import main\nmain()\n")
    command.chmod(0o755)
    keys = (
        'eval "$(_DKFEAT_COMPLETE=bash_source dkfeat)"\n'
        "COMP_WORDS=(dkfeat featurize --ma)\nCOMP_CWORD=2\n_dkfeat_completion dkfeat\necho ${COMPREPLY[@]}\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([program, "-c", keys], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["--map", "--max-bad-rows"], done.stderr
