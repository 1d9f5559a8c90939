"""Reproduce the papers' tables and figures: ``python jobs/reproduce.py --data DIR --out report``."""

from __future__ import annotations

import os
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click
from reproduction import NAMES, experiment
from reproduction.html_report import minutes, write_html
from reproduction.parts import Workers
from reproduction.results_page import write_page
from reproduction.runs import kept_results, run_experiment

from dkfeat.cli import DkfeatCommand
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.report.figures import check_plots
from dkfeat.wording import nearest


@click.command("reproduce", cls=DkfeatCommand)
@click.option("--data", metavar="DIR", help="Folder of data sets, NAME/train.svm.xz and test.svm.xz.")
@click.option("--out", default="report", show_default=True, metavar="DIR", help="Folder of results.")
@click.option("--mode", type=click.Choice(["quick", "full"]), default="quick", show_default=True)
@click.option("--only", multiple=True, metavar="NAME", help="An experiment; may be given several times.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: one for each core.")
@click.option("--docs", metavar="FILE", help="Write the page of results too, of full runs of all experiments.")
@click.option("--list", "listed", is_flag=True, help="Name the experiments and end.")
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
    r"""Run the papers' experiments; the end is one page, OUT/report.html.

    A run that was stopped goes on where it was if it is started again. What
    needs data that DIR does not have is left out, and the report says so.
    Beside the page, OUT/NAME holds each experiment's result.json, and for each
    picture its PNG files and NAME.json with the numbers drawn.

    \b
    Quick mode takes minutes, full mode hours and up to 5 GiB a process:
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
            message = f"there is no experiment {name!r}; {nearest(name, NAMES, 'experiments')}"
            raise ConfigError(message)
    if data is not None and not Path(data).is_dir():
        message = f"--data {data}: there is no such folder; give the one that holds letter/train.svm.xz and others"
        raise ConfigError(message)
    check_plots()
    target, began = Path(out), time.monotonic()

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
        message = f"a process of {name} was killed, most often for want of memory; give --jobs 1, and it goes on"
        raise ClusterError(message) from None
    tell(f"{name}: done, {minutes(time.monotonic() - began)}")
    for verdict in result["verdicts"]:
        print(f"{name}: {_WORDS[verdict['holds']]}: {verdict['sentence']}")


_WORDS = {True: "yes", False: "NO", None: "not measured"}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
