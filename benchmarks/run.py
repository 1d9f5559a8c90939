"""Run all benchmarks: each prints JSON lines and a table, with ratios to a peer that is measured in the same run.

python benchmarks/run.py [--quick] [NAME ...]
"""

import argparse
import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "gcws",
    "darts",
    "parser",
    "projections",
    "maclaurin",
    "descent",
    "training",
    "latency",
    "job",
    "sizing",
    "workers",
    "checks",
    "webspam",
    "neighbors",
    "duplicates",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones, of {', '.join(SCRIPTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small inputs: a check that they run, not a measurement")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(SCRIPTS))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    failed = []
    for name in args.names or SCRIPTS:
        print(f"== {name}", flush=True)
        script = Path(__file__).parent / f"{name}.py"
        command = [sys.executable, str(script), *(["--quick"] if args.quick else [])]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
