"""The module says whether another machine pays off: a sentence and a table."""

from ..api.scaling import Scaling
from ..result import Result, Status
from . import words
from .sheet import Section, Sheet, Table

_COLUMNS = ("machines", "network", "iteration", "saves", "saves at most")


def answer(found: Scaling) -> str:
    """Return whether the other machines pay off, from which rate on, and times."""
    rates = [rate for rate in found.found if rate is not None]
    shown = dict.fromkeys((*({found.own_gbits_per_s} & {*rates}), *rates[-1:]))
    times = [
        f"{len(found.names)} take {_time(found.found[rate])} at {rate:g} Gbit/s"
        for rate in shown
        if rate is not None and found.found[rate].plan is not None
    ]
    alone = found.found.get(None)
    if times and alone is not None and alone.plan is not None:
        times.insert(0, f"one takes {_time(alone)} per iteration")
    said = f"{_pays(found, rates)}{': ' * bool(times)}{'; '.join(times)}."
    return said if found.complete else f"{said} Not all rates were tried in time."


def _pays(found: Scaling, rates: list[float]) -> str:
    count, alone = len(found.names), found.found.get(None)
    whole = "The second machine" if count == 2 else f"Using {count} machines"
    planned = [found.found[rate] for rate in rates]
    if planned and all(one.status is Status.INFEASIBLE for one in planned):
        many = "two" if count == 2 else count
        return f"The model does not fit on {many} machines (proved)"
    if all(one.plan is None for one in planned):
        return f"No plan on {count} machines was found in time"
    if alone is None or alone.plan is None:
        if alone is not None and alone.status is Status.INFEASIBLE:
            return f"{whole} is needed, as the model does not fit on one (proved)"
        return f"{whole} has a plan, and none on one was found in time"
    if pays := [rate for rate in rates if found.saves(rate)[0]]:
        return f"{whole} pays off from {pays[0]:g} Gbit/s on"
    most = max(found.saves(rate)[1] or 0 for rate in rates)
    if most == 0:
        return f"{whole} cannot pay off at any network rate tried (proved)"
    return (
        f"No plan was found in time with which {whole[0].lower()}{whole[1:]} pays off "
        f"(it saves at most {most:.0%}, proved)"
    )


def _time(result: Result) -> str:
    return words.amount(result.objective, "us")


def sheet(found: Scaling) -> Sheet:
    """Return the answer, and a row for one machine and for each rate."""
    rows = (
        (
            str(1 if rate is None else len(found.names)),
            words.NONE if rate is None else f"{rate:g} Gbit/s",
            _time(result),
            *map(words.share, found.saves(rate)),
        )
        for rate, result in found.found.items()
    )
    note = (
        "Saves: compared with one machine. At most: proved for every plan. Machines: "
        + ", ".join(found.names)
    )
    table = Table.of(_COLUMNS, rows, texts=())
    sections = (Section("Points", (note,), table=table),)
    kind = "does another machine pay off"
    return Sheet(found.instance, sections, kind, answer=answer(found))
