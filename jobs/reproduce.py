"""Reproduce the papers' tables and figures: ``python jobs/reproduce.py --data DIR --out report``."""

from __future__ import annotations

import os
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click
from reproduction import NAMES, experiment
from reproduction.pages.html_report import minutes, write_html
from reproduction.pages.results_page import check_page, write_page
from reproduction.parts import Workers, check_data
from reproduction.runs import kept_results, run_experiment

from dkfeat.cli import DkfeatCommand
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.messages import nearest
from dkfeat.plot import check_plots
from dkfeat.store.outputs import check_folder


@click.command("reproduce", cls=DkfeatCommand)
@click.option("--data", metavar="DIR", help="Folder of data sets, as NAME/train.svm.xz and NAME/test.svm.xz.")
@click.option("--out", default="report", show_default=True, metavar="DIR", help="Folder of results.")
@click.option(
    "--mode", type=click.Choice(["quick", "full"]), default="quick", show_default=True, help="Size of the run."
)
@click.option("--only", multiple=True, metavar="NAME", help="Run this experiment only. Repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all experiments.")
@click.option("--jobs", type=click.IntRange(min=1), help="Number of processes. Left out: one for each core.")
@click.option("--docs", metavar="FILE", help="Also write the page of results, of full runs; sections of others stay.")
@click.option("--list", "listed", is_flag=True, help="List the experiments and end.")
def main(
    data: str | None,
    out: str,
    mode: str,
    only: tuple[str, ...],
    seed: int,
    jobs: int | None,
    docs: str | None,
    listed: bool,
) -> None:
    """Run the papers' experiments and write one page about them, OUT/report.html.

    Repeating the command continues an interrupted run. Experiments whose data
    DIR lacks are left out, and the report names them. Beside the page,
    OUT/NAME holds each experiment's result.json, and for each picture its PNG
    files and NAME.json with the numbers drawn.

    Quick mode takes minutes, full mode hours and up to 5 GiB per process:
      python jobs/reproduce.py --data data --out report
      python jobs/reproduce.py --data data --out report --mode full --docs docs/results.md
    """
    if listed:
        for name in NAMES:
            each = experiment(name)
            print(f"{name:16} {each.title} ({each.source})")
        return
    for name in only:
        if name not in NAMES:
            raise ConfigError(f"there is no experiment {name!r}; {nearest(name, NAMES, 'experiments')}")
    if data is not None and not Path(data).is_dir():
        raise ConfigError(
            f"--data {data}: there is no such folder; give the one that holds letter/train.svm.xz and others"
        )
    check_plots()
    target, began = check_folder(out, ["report.html"], overwrite=bool(kept_results(Path(out), NAMES))), time.monotonic()
    if docs is not None:
        check_page(docs)
    if data is not None:
        check_data(Path(data), target / "parts")

    def tell(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:7.1f} s] {text}", err=True)

    with Workers(jobs or _cores()) as workers:
        for name in only or NAMES:
            _run(name, data, target, mode, seed, workers, tell)
            write_html(target / "report.html", target, kept_results(target, NAMES))
    if docs is not None:
        write_page(Path(docs), target, kept_results(target, NAMES), NAMES)
        print(docs)
    print(target / "report.html")


def _run(name: str, data: str | None, out: Path, mode: Any, seed: int, workers: Workers, tell: Any) -> None:
    where = Path(data) if data is not None else Path(os.devnull)
    began = time.monotonic()
    tell(f"{name}: begins")
    try:
        result = run_experiment(
            experiment(name),
            data=where,
            out=out,
            mode=mode,
            seed=seed,
            workers=workers,
            tell=lambda text: tell(f"{name}: {text}"),
        )
    except BrokenProcessPool:
        raise ClusterError(
            f"a process of {name} was killed, probably because memory ran out; repeat the command with --jobs 1"
        ) from None
    tell(f"{name}: done, {minutes(time.monotonic() - began)}")
    for verdict in result["verdicts"]:
        print(f"{name}: {_WORDS[verdict['holds']]}: {verdict['sentence']}")


_WORDS = {True: "yes", False: "NO", None: "not measured"}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
