"""Run all benchmarks: each prints JSON lines and its marks, with ratios to a peer that is measured in the same run.

    python benchmarks/run.py [--quick] [--avx2] [--save] [NAME ...]

The processor, the width of its vectors and the versions stand at the head, the marks of all benchmarks at the end.
"""

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from machine import AVX2
from marks import print_marks

SCRIPTS = (
    "gcws",
    "darts",
    "minhash",
    "parser",
    "projections",
    "maclaurin",
    "descent",
    "training",
    "latency",
    "explain",
    "job",
    "sizing",
    "workers",
    "checks",
    "webspam",
    "neighbors",
    "duplicates",
    "corpus",
    "tables",
    "ngrams",
)
HERE = Path(__file__).parent
RESULTS = HERE / "results"
"""Folder of the marks that were saved: a file for each width of vectors, from which the documentation makes a page."""


def machine_of(environment):
    """Ask a process for the processor and what is in use of it."""
    command = [sys.executable, str(HERE / "machine.py")]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def run(name, options, environment):
    """Run a benchmark, show what it prints, and return its exit status and its marks."""
    command, marks = [sys.executable, str(HERE / f"{name}.py"), *options], []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("{") and (record := json.loads(line))["what"] == "mark":
                marks.append(record)
    return process.returncode, marks


def save(machine, name, marks):
    """Write the marks of a benchmark to the file of the vectors' width; results of another machine are dropped."""
    path = RESULTS / f"{machine['vector_bits']}-bits.json"
    saved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = saved["benchmarks"] if saved.get("machine") == machine else {}
    kept[name] = {"date": datetime.now(UTC).date().isoformat(), "marks": marks}
    benchmarks = {script: kept[script] for script in SCRIPTS if script in kept}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine, "benchmarks": benchmarks}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones, of {', '.join(SCRIPTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small inputs: a check that they run, not a measurement")
    parser.add_argument("--avx2", action="store_true", help="code for AVX2 alone, of dkfeat, NumPy and OpenBLAS")
    parser.add_argument("--save", action="store_true", help=f"save the marks in {RESULTS}, for the documentation")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(SCRIPTS))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    if args.save and args.quick:
        parser.error("--quick measures nothing that is worth to be saved; leave out --save")
    # without --avx2, all that the processor has, whatever the environment says
    environment = {name: value for name, value in os.environ.items() if name not in AVX2}
    environment |= {"PYTHONUNBUFFERED": "1", **(AVX2 if args.avx2 else {})}
    machine = machine_of(environment)
    if args.avx2 and machine["vector_bits"] != 256:
        parser.error(f"--avx2 needs a processor with AVX2, but loops use vectors of {machine['vector_bits']} bits here")
    print(json.dumps(machine))
    failed, marks = [], []
    for name in args.names or SCRIPTS:
        print(f"== {name}", flush=True)
        status, found = run(name, ["--quick"] if args.quick else [], environment)
        marks += found
        if status and all(mark["holds"] for mark in found):
            failed.append(name)
        elif found and args.save:
            save(machine, name, found)
    print(f"== marks on {machine['processor']}, vectors of {machine['vector_bits']} bits, {machine['blas']}")
    print_marks(marks)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed) or (not args.quick and not all(mark["holds"] for mark in marks)))


if __name__ == "__main__":
    sys.exit(main())
