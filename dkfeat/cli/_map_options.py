"""Options that say which feature map, with which parameters; named like the Python parameters they set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from dkfeat.cli._help import heading, together
from dkfeat.cli._values import Choice, Words
from dkfeat.cli.build import build_map
from dkfeat.wording import nearest

if TYPE_CHECKING:
    from dkfeat.maps import FeatureMap

__all__ = ["make_map", "map_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


class _Numbers(click.ParamType):
    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        try:
            return [float(item) for item in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0,1,0.5; functions are for Python only", param, ctx)


_NORMS = ("l1", "l2", "max", "true", "false")


class _Normalize(Words):
    name = "l1|l2|max|true|false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | bool:
        text = str(value).lower()
        if text not in _NORMS:
            self.fail(f"{value!r} is none of l1, l2 and max (a norm of rows), true and false", param, ctx)
        return text == "true" if text in ("true", "false") else text


class _Mixtures(Words):
    name = "number|log2"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        try:
            return "log2" if value == "log2" else int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor log2", param, ctx)


class _Inner(Words):
    name = "map|json"
    unbiased: Mapping[str, Mapping[str, Any]] = {"gcws": {}, "fourier": {"normalize": False}, "laplace": {}}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, Any]:
        if value in self.unbiased:
            return {"map": value, "params": dict(self.unbiased[value])}
        try:
            mapping = json.loads(value)
        except (ValueError, RecursionError):
            mapping = None
        if not isinstance(mapping, dict):
            example = '\'{"map": "laplace", "params": {"beta": 0.5}}\''
            self.fail(f"{value!r} is neither of {', '.join(self.unbiased)} nor a mapping such as {example}", param, ctx)
        return mapping


class _Setting(click.ParamType):
    name = "name=number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float | int | list[float]]:
        name, _, number = str(value).partition("=")
        try:
            if "," in number:
                return name, [float(item) for item in number.split(",")]
            return name, int(number) if number.lstrip("+-").isdigit() else float(number)
        except ValueError:
            self.fail(f"{value!r} is not a parameter such as gamma=0.5 or coefficients=1,0,2", param, ctx)


@dataclass(frozen=True, slots=True)
class _Flag:
    """One parameter of one or several maps. What is not given is left to the map's own default."""

    maps: str
    help: str
    kind: Any = float
    options: tuple[tuple[str, Any], ...] = ()
    whose: bool = True
    """Whether the help is to begin with the maps."""


_HEADING = "Feature map"
_DOT_PRODUCT = ("polynomial", "vovk_real", "vovk_infinite")
KERNELS = {
    "fourier": ("rbf_cosine", "rbf"),
    "laplace": ("exponential", "reciprocal"),
    "maclaurin": (*_DOT_PRODUCT, "exponential", "maclaurin"),
    "nystroem": (
        *("gmm", "egmm", "resemblance", "rbf", "rbf_cosine", "exponential_semigroup", "reciprocal_semigroup"),
        *(*_DOT_PRODUCT, "exponential_dot_product", "maclaurin"),
    ),
}
"""Kernels of each map: a copy, since help texts load no maps."""
PROJECTIONS = ("dense", "circulant", "alternating_circulant", "fastfood", "orthogonal")
"""Of fourier; laplace has the first three."""
_ALL = "gcws fourier laplace maclaurin nystroem"
_FLAGS = {
    "n_components": _Flag(_ALL, "Draws for each row; more is finer.", int),
    "i_bits": _Flag("gcws", "Bits kept of a draw, 1 to 16.", int),
    "t_bits": _Flag("gcws", "Bits kept of its level, 0 to 2.", int),
    "p": _Flag("gcws maclaurin", "Power of the pGMM kernel; base of the measure."),
    "center": _Flag("gcws", "Subtracted from every value, absent ones too."),
    "code": _Flag("gcws", "How a draw becomes bits: auto or lowest.", Choice(["auto", "lowest"])),
    "kernel": _Flag(
        "fourier laplace maclaurin nystroem",
        "; ".join(f"{name}: {', '.join(kernels)}" for name, kernels in KERNELS.items()) + ".",
        Words(*dict.fromkeys(kernel for kernels in KERNELS.values() for kernel in kernels)),
        whose=False,
    ),
    "gamma": _Flag("fourier maclaurin", "Width of the RBF kernel; rate of the exponential one."),
    "normalize": _Flag(
        "gcws fourier maclaurin", "Norm of input rows; fourier: unit rows of features?", _Normalize(*_NORMS)
    ),
    "projection": _Flag(
        "fourier laplace",
        "dense, circulant, alternating_circulant; fourier: fastfood, orthogonal too.",
        Words(*PROJECTIONS),
    ),
    "n_mixtures": _Flag("fourier laplace", "Matrices that alternating_circulant mixes.", _Mixtures("log2")),
    "beta": _Flag("laplace", "Scale of the exponential kernel."),
    "rate": _Flag("laplace", "Lambda of the reciprocal kernel."),
    "degree": _Flag("maclaurin", "Degree of polynomial and vovk_real.", int),
    "coef0": _Flag("maclaurin", "Constant of polynomial."),
    "alpha": _Flag("maclaurin", "Exponent of vovk_infinite."),
    "coefficients": _Flag("maclaurin", "Maclaurin coefficients, for --kernel maclaurin.", _Numbers()),
    "measure": _Flag("maclaurin", "How degrees are drawn.", Choice(["kernel", "proper"])),
    "scale": _Flag("maclaurin", "Rows are multiplied by it."),
    "radius": _Flag("maclaurin", "Largest norm of a scaled row."),
    "tolerance": _Flag("maclaurin", "Part of an infinite series that may be left out."),
    "h01": _Flag("maclaurin", "Constant and linear terms exactly.", None, (("is_flag", True),)),
    "inner": _Flag("maclaurin", "Map whose kernel is composed: gcws, fourier or laplace.", _Inner(*_Inner.unbiased)),
    "kernel_params": _Flag("nystroem", "Parameter of the kernel; may be repeated.", _Setting(), (("multiple", True),)),
    "rank_tolerance": _Flag("nystroem", "Share of the largest eigenvalue that is cut."),
    "seed": _Flag(_ALL, "Root of all random numbers.", int, (("default", 0), ("show_default", True))),
}
MAPS = {name: tuple(flag for flag, of in _FLAGS.items() if name in of.maps.split()) for name in _ALL.split()}
"""Parameters of each map that the command line offers."""


class _MapName(Words):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value).lower()
        if name not in MAPS:
            self.fail(f"there is no map {value!r}; {nearest(name, list(MAPS), 'maps')}", param, ctx)
        return name


def map_options(command: Command) -> Command:
    """Which feature map, with which parameters."""
    known = ", ".join(MAPS)
    name_option = click.option(
        "--map", "map_name", type=_MapName(*MAPS), default="gcws", show_default=True, help=f"{known}."
    )
    sections: dict[str, list[Any]] = {_HEADING: [name_option]} | {f"{_HEADING} {name}": [] for name in MAPS}
    for name, flag in _FLAGS.items():
        given = {"type": flag.kind} if flag.kind is not None else {}
        whose = flag.maps.replace(" ", ", ") + ": " if flag.whose and " " in flag.maps and flag.maps != _ALL else ""
        option = click.option(_written(name), name, help=whose + flag.help, **given, **dict(flag.options))
        sections[_HEADING if " " in flag.maps else f"{_HEADING} {flag.maps}"].append(option)
    return together(command, *(part for title, options in sections.items() for part in (heading(title), *options)))


def make_map(
    ctx: click.Context, options: dict[str, Any], like: str | None, has_map: Callable[[], bool]
) -> FeatureMap | None:
    """Unfitted map from the options of `map_options`; None where `like`, or the target, brings the map.

    Parameters
    ----------
    ctx : click.Context
    options : dict
    like : str or None
    has_map : callable
        Whether the target has a map already; asked if no option of the map is given.

    Raises
    ------
    click.UsageError
        If a parameter of the map is given beside ``--like``, or is none of the map's.
    """
    given = [name for name in ("map_name", *_FLAGS) if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if like is not None:
        if given:
            flags = ", ".join(map(_written, given))
            message = f"--like {like} brings the feature map with all its parameters; leave out {flags}"
            raise click.UsageError(message, ctx)
        return None
    if not given and has_map():
        return None
    from dkfeat.config import MapConfig

    map_name = options["map_name"]
    foreign = [name for name in given if name not in ("map_name", *MAPS[map_name])]
    if foreign:
        flags, own = (", ".join(map(_written, names)) for names in (foreign, MAPS[map_name]))
        message = f"the map {map_name} has no parameter {flags}; it has {own}"
        raise click.UsageError(message, ctx)
    parameters = {name: options[name] for name in MAPS[map_name] if name in given}
    if "kernel_params" in parameters:
        parameters["kernel_params"] = dict(parameters["kernel_params"])
    parameters["random_state"] = options["seed"]
    parameters.pop("seed", None)
    return build_map(MapConfig(name=map_name, params=parameters))


def _written(name: str) -> str:
    special = {"map_name": "--map", "kernel_params": "--kernel-param"}
    return special.get(name, "--" + name.replace("_", "-"))
