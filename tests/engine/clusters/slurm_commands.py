"""Substitutes for SLURM's commands: jobs start at once, in the background, on this machine."""

from __future__ import annotations

from pathlib import Path

SBATCH = """#!/usr/bin/env bash
kept=$(mktemp "{folder}/kept-XXXXXX")
cp "$1" "$kept" # the script may be deleted as soon as this command ends
setsid bash "$kept" >"$kept.out" 2>&1 </dev/null &
cp "$kept" "{folder}/$!.script"
echo "Submitted batch job $!"
"""

SCANCEL = """#!/usr/bin/env bash
touch "{folder}/$1.cancelled"
kill -TERM -- "-$1"
"""

WAITING = """#!/usr/bin/env bash
echo "Submitted batch job 77"
"""

REFUSING = """#!/usr/bin/env bash
echo "sbatch: error: invalid partition specified: night" >&2
exit 1
"""


def write_commands(folder: Path, sbatch: str = SBATCH) -> Path:
    """Write the commands to a folder; they add each job's script, and an empty file for each cancelled job."""
    for name, text in (("sbatch", sbatch), ("scancel", SCANCEL)):
        path = folder / name
        path.write_text(text.replace("{folder}", str(folder)))
        path.chmod(0o755)
    return folder
