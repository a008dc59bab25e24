"""Values of options that are quantities: plain numbers as ever, or with a unit."""

from collections.abc import Callable
from functools import partial
from math import isnan

import typer
from typer.models import OptionInfo

from ..text import units


def option(
    kind: units.Quantity,
    value: str,
    help: str,
    *names: str,
    least: float = 0,
    most: float | None = None,
    whole: bool = False,
) -> OptionInfo:
    """An option of that kind from `least` to `most`; `whole` where it is an int."""

    def reader(text: object) -> object:
        return _read(text, kind, least, most, whole=whole)

    made: OptionInfo = typer.Option(*names, parser=reader, metavar=value, help=help)
    return made


def _read(
    value: object,
    kind: units.Quantity,
    least: float,
    most: float | None,
    *,
    whole: bool,
) -> object:
    """The number that a text says; defaults come as numbers, and are taken as such."""
    if not isinstance(value, str):
        return value
    number = _plain(value, int if whole else float)
    if number is None:
        try:
            number = units.whole(units.parse(value, kind))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    if isnan(number) or number < least or (most is not None and number > most):
        limits = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
        raise typer.BadParameter(f"found {value}, expected {limits}")
    if whole and not isinstance(number, int):
        raise typer.BadParameter(f"found {value}, expected a whole number")
    return number if whole else float(number)


def _plain(text: str, kind: type[int] | type[float]) -> int | float | None:
    """A number as the options have always had it, `inf` and `1e3` among them."""
    try:
        return kind(text)
    except ValueError:
        return None


duration: Callable[..., OptionInfo] = partial(option, units.SECONDS)
length: Callable[..., OptionInfo] = partial(option, units.LENGTH, least=1, whole=True)
count: Callable[..., OptionInfo] = partial(option, units.COUNT, least=1, whole=True)
share: Callable[..., OptionInfo] = partial(option, units.SHARE)
memory: Callable[..., OptionInfo] = partial(option, units.MIB.of("GiB"), least=0.001)
usd: Callable[..., OptionInfo] = partial(option, units.USD)
rate: Callable[..., OptionInfo] = partial(option, units.GBYTES_PER_S)
