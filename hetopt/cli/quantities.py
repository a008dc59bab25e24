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

    def read(text: object) -> object:
        """The number that a text says; defaults come as numbers, taken as such."""
        if not isinstance(text, str):
            return text
        try:  # a plain number, `inf` and `1e3` among them
            number: float = (int if whole else float)(text)
        except ValueError:
            try:
                number = units.whole(units.parse(text, kind))
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
        if isnan(number) or number < least or (most is not None and number > most):
            limits = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
            raise typer.BadParameter(f"found {text}, expected {limits}")
        if whole and not isinstance(number, int):
            raise typer.BadParameter(f"found {text}, expected a whole number")
        return number if whole else float(number)

    made: OptionInfo = typer.Option(*names, parser=read, metavar=value, help=help)
    return made


duration: Callable[..., OptionInfo] = partial(option, units.SECONDS)
length: Callable[..., OptionInfo] = partial(option, units.LENGTH, least=1, whole=True)
count: Callable[..., OptionInfo] = partial(option, units.COUNT, least=1, whole=True)
share: Callable[..., OptionInfo] = partial(option, units.SHARE)
memory: Callable[..., OptionInfo] = partial(option, units.MIB.of("GiB"), least=0.001)
usd: Callable[..., OptionInfo] = partial(option, units.USD)
rate: Callable[..., OptionInfo] = partial(option, units.GBYTES_PER_S)
