"""Options that select a feature map and set its parameters, named like the parameters in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dkfeat.cli.group import apply_options, heading
from dkfeat.cli.jobs import build_map
from dkfeat.cli.options.from_settings import Choice, Text, given_flags, numbers, words
from dkfeat.messages import nearest

if TYPE_CHECKING:
    from dkfeat.maps import FeatureMap


Command = TypeVar("Command", bound=Callable[..., Any])


def _inner(text: str) -> Mapping[str, Any]:
    """Read the name of a map with unbiased features, or any map as JSON."""
    if text in UNBIASED:
        return {"map": text, "params": dict(UNBIASED[text])}
    try:
        mapping = json.loads(text)
    except RecursionError:
        mapping = None
    if not isinstance(mapping, dict):
        raise ValueError(text)
    return mapping


def _kernel_parameter(text: str) -> tuple[str, float | list[float]]:
    name, _, number = text.partition("=")
    if "," in number:
        return name, [float(item) for item in number.split(",")]
    return name, int(number) if number.lstrip("+-").isdigit() else float(number)


UNBIASED: Mapping[str, Mapping[str, Any]] = {
    "gcws": {},
    "dart": {},
    "fourier": {"normalize": False},
    "laplace": {},
}
"""Maps that ``--inner`` takes by name, with the parameters that make them unbiased."""
_NORMALIZE = words(
    {"l1": "l1", "l2": "l2", "max": "max", "true": True, "false": False},
    "is none of l1, l2 and max (a norm of rows), true and false",
)
_MIXTURES = Text(
    "number|log2",
    lambda text: text if text == "log2" else int(text),
    "is neither a whole number nor log2",
    ["log2"],
)
_INNER = Text(
    "map|json",
    _inner,
    'is neither of gcws, dart, fourier, laplace nor a mapping such as \'{"map": "laplace", "params": {"beta": 0.5}}\'',
    UNBIASED,
)
_COEFFICIENTS = numbers(float, "0,1,0.5; functions are for Python only")
_KERNEL_PARAMETER = Text("name=number", _kernel_parameter, "is not a parameter such as gamma=0.5 or coefficients=1,0,2")


@dataclass(frozen=True, slots=True)
class _Flag:
    """One parameter of one or several maps. If it is not given, the map's own default holds."""

    maps: str
    help: str
    kind: Any = float
    options: tuple[tuple[str, Any], ...] = ()


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
"""Kernels of each map, copied here because help pages do not load the maps."""
PROJECTIONS = ("dense", "circulant", "alternating_circulant", "fastfood", "orthogonal")
"""Projections of fourier; laplace has the first three."""
_ALL = "gcws dart fourier laplace maclaurin nystroem"
_FLAGS = {
    "n_components": _Flag(_ALL, "Number of random draws for each row; more are more accurate.", int),
    "i_bits": _Flag("gcws", "Bits kept of the sampled coordinate, 1 to 16.", int),
    "t_bits": _Flag("gcws", "Bits kept of the level at that coordinate, 0 to 2.", int),
    "bits": _Flag("dart", "Bits kept of a sample, 1 to 16.", int),
    "p": _Flag(
        "gcws dart maclaurin",
        "Power of the pGMM kernel (gcws, dart); base p of the degree distribution with --measure proper (maclaurin).",
    ),
    "center": _Flag("gcws dart", "Number subtracted from every value, absent ones too."),
    "code": _Flag("gcws", "Coding of a coordinate in few bits.", Choice(["auto", "lowest"])),
    "kernel": _Flag(
        "fourier laplace maclaurin nystroem",
        "Kernel; " + "; ".join(f"{name}: {', '.join(kernels)}" for name, kernels in KERNELS.items()) + ".",
        Text("text", words=dict.fromkeys(kernel for kernels in KERNELS.values() for kernel in kernels)),
    ),
    "gamma": _Flag("fourier maclaurin", "Width of the RBF kernel (fourier); rate of the exponential one (maclaurin)."),
    "normalize": _Flag(
        "gcws dart fourier maclaurin",
        "Scale input rows to this norm; for fourier, true scales rows of features to unit length.",
        _NORMALIZE,
    ),
    "projection": _Flag(
        "fourier laplace",
        f"Projection; laplace: {', '.join(PROJECTIONS[:3])}; fourier: {', '.join(PROJECTIONS[3:])} too.",
        Text("text", words=PROJECTIONS),
    ),
    "n_mixtures": _Flag("fourier laplace", "Number of matrices that alternating_circulant mixes.", _MIXTURES),
    "beta": _Flag("laplace", "Scale of the exponential kernel."),
    "rate": _Flag("laplace", "Rate, lambda, of the reciprocal kernel."),
    "degree": _Flag("maclaurin", "Degree of the kernels polynomial and vovk_real.", int),
    "coef0": _Flag("maclaurin", "Constant term of the polynomial kernel."),
    "alpha": _Flag("maclaurin", "Exponent of the kernel vovk_infinite."),
    "coefficients": _Flag("maclaurin", "Maclaurin coefficients, for --kernel maclaurin.", _COEFFICIENTS),
    "measure": _Flag("maclaurin", "Measure that degrees are drawn from.", Choice(["kernel", "proper"])),
    "scale": _Flag("maclaurin", "Factor of input rows."),
    "radius": _Flag("maclaurin", "Largest norm of a scaled row."),
    "tolerance": _Flag("maclaurin", "Share of an infinite series that may be left out."),
    "h01": _Flag("maclaurin", "Keep constant and linear terms exact.", None, (("is_flag", True),)),
    "inner": _Flag("maclaurin", "Map whose kernel replaces the inner product: gcws, dart, fourier or laplace.", _INNER),
    "kernel_params": _Flag(
        "nystroem", "Parameter of the kernel. Repeatable.", _KERNEL_PARAMETER, (("multiple", True),)
    ),
    "rank_tolerance": _Flag("nystroem", "Share of the largest eigenvalue below which eigenvalues are cut."),
    "seed": _Flag(_ALL, "Seed of all random numbers.", int, (("default", 0), ("show_default", True))),
}
MAPS = {name: tuple(flag for flag, of in _FLAGS.items() if name in of.maps.split()) for name in _ALL.split()}
"""Parameters of each map that the command line offers."""


def _map_name(text: str) -> str:
    name = text.lower()
    if name not in MAPS:
        raise click.BadParameter(f"there is no map {text!r}; {nearest(name, list(MAPS), 'maps')}")
    return name


def map_options(command: Command) -> Command:
    """Give a command the options of the feature map and its parameters; `make_map` takes them."""
    name_option = click.option(
        "--map",
        "map_name",
        type=Text("name", _map_name, words=MAPS),
        default="gcws",
        show_default=True,
        help=f"Feature map: {', '.join(MAPS)}.",
    )
    sections: dict[str, list[Any]] = {_HEADING: [name_option]} | {f"{_HEADING} {name}": [] for name in MAPS}
    for name, flag in _FLAGS.items():
        given = {"type": flag.kind} if flag.kind is not None else {}
        shared = " " in flag.maps and flag.maps != _ALL and ": " not in flag.help and "(" not in flag.help
        text = f"{flag.help.removesuffix('.')} ({flag.maps.replace(' ', ', ')})." if shared else flag.help
        option = click.option(_flag_of(name), name, help=text, **given, **dict(flag.options))
        sections[_HEADING if " " in flag.maps else f"{_HEADING} {flag.maps}"].append(option)
    return apply_options(command, *(part for title, options in sections.items() for part in (heading(title), *options)))


def make_map(
    ctx: click.Context, options: dict[str, Any], like: str | None, has_map: Callable[[], bool]
) -> FeatureMap | None:
    """Make an unfitted map from the options of `map_options`; None if the map comes from `like` or the target.

    Parameters
    ----------
    ctx : click.Context
    options : dict
    like : str or None
    has_map : callable
        Returns True if the target has a map already; called if no option of the map is given.

    Raises
    ------
    click.UsageError
        If an option of the map is given together with ``--like``, or the map has no such parameter.
    """
    given = given_flags(ctx, ("map_name", *_FLAGS))
    if like is not None and given:
        raise click.UsageError(
            f"the feature map with all parameters comes from --like {like}; leave out {', '.join(given.values())}", ctx
        )
    if like is not None or (not given and has_map()):
        return None
    from dkfeat.config import MapConfig

    map_name = options["map_name"]
    foreign = ", ".join(flag for name, flag in given.items() if name not in ("map_name", *MAPS[map_name]))
    if foreign:
        known = ", ".join(map(_flag_of, MAPS[map_name]))
        raise click.UsageError(f"the map {map_name} has no parameter {foreign}; it has {known}", ctx)
    parameters = {name: options[name] for name in MAPS[map_name] if name in given}
    if "kernel_params" in parameters:
        parameters["kernel_params"] = dict(parameters["kernel_params"])
    if "coefficients" in parameters:
        parameters["coefficients"] = list(parameters["coefficients"])
    parameters.pop("seed", None)
    return build_map(MapConfig(name=map_name, params=parameters | {"random_state": options["seed"]}))


def _flag_of(name: str) -> str:
    return "--kernel-param" if name == "kernel_params" else "--" + name.replace("_", "-")
