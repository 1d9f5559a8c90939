"""Benchmarks of features: microseconds per row of dkfeat and of a peer, in pairs of processor time."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from marks import Report
from threadpoolctl import threadpool_limits

COLUMNS = ("what", "ours_us", "peer_us", "ratio", "low", "high", "target")


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def compare(
    name: str, ours: Callable[[], Any], peer: Callable[[], Any], rows: int, repeats: int, target: float
) -> dict:
    """Measure the median of the ratios of some pairs.

    A pair is one call of the peer, with calls of dkfeat that take about as long in total, half of them before it and
    half after it. Temporary load on the machine then affects both sides equally.
    """
    ours()
    peer()
    around = max(1, min(64, round(cpu_seconds(peer) / cpu_seconds(ours) / 2)))
    pairs = []
    for _ in range(repeats):
        before = [cpu_seconds(ours) for _ in range(around)]
        theirs = cpu_seconds(peer)
        after = [cpu_seconds(ours) for _ in range(around)]
        pairs.append((statistics.mean(before + after), theirs))
    ratios = [p / o for o, p in pairs]
    low, ratio, high = statistics.quantiles(ratios, n=4) if repeats > 1 else ratios * 3
    return {
        "what": name,
        "rows": rows,
        "ours_us": round(statistics.median(o for o, _ in pairs) / rows * 1e6, 3),
        "peer_us": round(statistics.median(p for _, p in pairs) / rows * 1e6, 3),
        "ratio": round(ratio, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "target": target,
    }


def run(benchmark: str, description: str, parts: Iterable[Callable[[bool], Iterable[dict]]], *, name_width: int) -> int:
    """Print each record of all parts, a table, and the marks of ratios; return 1 if one is missed."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small inputs: a check that it runs, not a measurement")
    quick = parser.parse_args().quick
    report, records = Report(benchmark), []
    with threadpool_limits(1):
        for part in parts:
            for compared in part(quick):
                records.append(report.emit(**compared))
                if compared["target"]:
                    report.mark(compared["what"], compared["ratio"], least=compared["target"])
    print(f"\n{'microseconds a row':<{name_width}}{'ours':>9}{'peer':>9}{'ratio':>8}{'quartiles':>16}{'target':>7}")
    for record in records:
        name, ours, peer, ratio, low, high, target = (record[column] for column in COLUMNS)
        quartiles = f"{low:.2f} - {high:.2f}"
        print(f"{name:<{name_width}}{ours:>9.2f}{peer:>9.2f}{ratio:>8.2f}{quartiles:>16}{target or '':>7}")
    return report.end(quick=quick)
