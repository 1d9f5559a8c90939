"""Options that several commands share, named like the Python parameters they set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from dkfeat.cli._storage import parse_options
from dkfeat.cli.build import build_map
from dkfeat.wording import nearest

if TYPE_CHECKING:
    from dkfeat.io.libsvm import LibsvmSource
    from dkfeat.maps import FeatureMap

__all__ = ["make_map", "make_source", "map_options", "run_options", "source_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

MAPS = {
    "gcws": ("n_components", "i_bits", "t_bits", "p", "center", "normalize", "code", "seed"),
    "fourier": ("n_components", "gamma", "kernel", "projection", "seed"),
}
"""Parameters of each map that the command line offers."""
MAP_PARAMETERS = tuple(dict.fromkeys(name for names in MAPS.values() for name in names))
SOURCE_PARAMETERS = (
    "n_features",
    "zero_based",
    "blocksize",
    "dtype",
    "multilabel",
    "query_id",
    "labels",
    "label_dtype",
    "max_line_bytes",
)


class _MapName(click.ParamType):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value).lower()
        if name not in MAPS:
            self.fail(f"there is no map {value!r}; {nearest(name, list(MAPS), 'maps')}", param, ctx)
        return name


class _Labels(click.ParamType):
    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(item) for item in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as -1,1", param, ctx)


class _Auto(click.ParamType):
    name = "auto|true|false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return {"auto": "auto", "true": True, "false": False}[str(value).lower()]
        except KeyError:
            self.fail(f"{value!r} is neither auto nor true nor false", param, ctx)


def source_options(command: Command) -> Command:
    """How LIBSVM text is read."""
    return _together(
        command,
        click.option("--n-features", type=click.IntRange(min=1), help="Columns. Left out: settled by a scan."),
        click.option("--zero-based", type=_Auto(), default="auto", show_default=True, help="Is the first column 0?"),
        click.option("--blocksize", default="64MiB", show_default=True, help="Text that a task reads at a time."),
        click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True),
        click.option("--multilabel", is_flag=True, help="Labels are lists: 1,5,7."),
        click.option("--query-id", is_flag=True, help="Keep qid:n."),
        click.option("--labels", type=_Labels(), help="Allowed labels, as in -1,1; any other is an error."),
        click.option(
            "--label-dtype", type=click.Choice(["auto", "int64", "float64"]), default="auto", show_default=True
        ),
        click.option("--max-line-bytes", default="256MiB", help="Bytes of the longest row.", hidden=True),
    )


def map_options(command: Command) -> Command:
    """Which feature map, with which parameters."""
    return _together(
        command,
        click.option("--map", "map_name", type=_MapName(), default="gcws", show_default=True, help="gcws or fourier."),
        click.option(
            "--n-components", type=int, default=256, show_default=True, help="Draws for each row; more is finer."
        ),
        click.option("--i-bits", type=int, default=8, show_default=True, help="gcws: bits kept of a draw, 1 to 16."),
        click.option("--t-bits", type=int, default=0, show_default=True, help="gcws: bits kept of its level, 0 to 2."),
        click.option("--p", type=float, default=1.0, show_default=True, help="gcws: power of the pGMM kernel."),
        click.option("--center", type=float, help="gcws: subtracted from every value, absent ones too."),
        click.option("--normalize", type=click.Choice(["l1", "l2", "max"]), help="gcws: norm that rows get first."),
        click.option("--gamma", type=float, default=1.0, show_default=True, help="fourier: width of the RBF kernel."),
        click.option(
            "--kernel",
            type=click.Choice(["rbf_cosine", "rbf"]),
            default="rbf_cosine",
            show_default=True,
            help="fourier: RBF of the angle, or of the distance.",
        ),
        click.option(
            "--projection",
            type=click.Choice(["dense", "circulant", "alternating_circulant", "fastfood", "orthogonal"]),
            default="dense",
            show_default=True,
            help="fourier: how the random weights are made.",
        ),
        click.option("--code", type=click.Choice(["auto", "lowest"]), default="auto", show_default=True, hidden=True),
        click.option("--seed", type=int, default=0, show_default=True, help="Root of all random numbers."),
    )


def run_options(command: Command) -> Command:
    """Where tasks run; nothing here changes a byte of the result."""
    return _together(
        command,
        click.option(
            "--scheduler",
            help="threads, processes, synchronous, cluster or an address. Left out: worker processes if --n-workers "
            "or --memory-limit is given, else threads of this process.",
        ),
        click.option("--n-workers", type=click.IntRange(min=1), help="Workers. Default: one for each core."),
        click.option("--threads-per-worker", type=click.IntRange(min=1), help="Threads in each worker process."),
        click.option("--memory-limit", help="Memory of a worker process, as in 4GiB."),
        click.option("--in-flight", type=click.IntRange(min=1), hidden=True, help="Tasks submitted at a time."),
        click.option("--resume/--no-resume", default=True, show_default=True, help="Go on with an interrupted run."),
        click.option("--break-lock", metavar="RUN_ID", help="Take over the lock of this run of another host."),
        click.option("--progress/--no-progress", default=True, help="Report progress on standard error."),
    )


def make_source(urlpath: tuple[str, ...], options: dict[str, Any]) -> LibsvmSource:
    """Source of the paths given, from the options of `source_options`."""
    from dkfeat.io.libsvm import LibsvmSource

    given = {name: options[name] for name in SOURCE_PARAMETERS if options.get(name) is not None}
    given["storage_options"] = parse_options(options.get("storage_options", ()), "--storage-option")
    return LibsvmSource(urlpath, **given)


def make_map(ctx: click.Context, options: dict[str, Any], like: str | None) -> FeatureMap | None:
    """Unfitted map from the options of `map_options`; None where `like` brings the map.

    Raises
    ------
    click.UsageError
        If a parameter of the map is given beside ``--like``, or is none of the map's.
    """
    given = [
        name for name in ("map_name", *MAP_PARAMETERS) if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    flags = ", ".join("--map" if name == "map_name" else "--" + name.replace("_", "-") for name in given)
    if like is not None:
        if given:
            message = f"--like {like} brings the feature map with all its parameters; leave out {flags}"
            raise click.UsageError(message, ctx)
        return None
    from dkfeat.config import MapConfig

    name = options["map_name"]
    foreign = sorted(set(given) - {"map_name", *MAPS[name]})
    if foreign:
        message = f"the map {name} has no parameter {', '.join(foreign)}; it has {', '.join(MAPS[name])}"
        raise click.UsageError(message, ctx)
    parameters = {("random_state" if key == "seed" else key): options[key] for key in MAPS[name]}
    return build_map(MapConfig(name=name, params=parameters))


def _together(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
