"""The module says whether another machine pays off: a sentence and a table."""

from ..api.scaling import Point, Scaling
from ..result import Result, Status
from . import words
from .sheet import Section, Sheet, Table

_COLUMNS = ("machines", "network", "iteration", "saves", "saves at most")


def answer(found: Scaling) -> str:
    """Return whether the other machines pay off, from which rate on, and times."""
    shown = [one for one in found.points if one.gbits_per_s == found.own_gbits_per_s]
    shown += [one for one in found.points[-1:] if one not in shown]
    times = [
        f"at {_gbits(one)} {one.machines} take {_time(one.result)}"
        for one in shown
        if one.result.plan is not None
    ]
    if times and found.alone.result.plan is not None:
        times.insert(0, f"one takes {_time(found.alone.result)} per iteration")
    said = f"{_pays(found)}{': ' * bool(times)}{'; '.join(times)}."
    return said + words.unfinished((), complete=found.complete)


def _pays(found: Scaling) -> str:
    count, alone = len(found.names), found.alone.result
    whole = "The second machine" if count == 2 else f"Using {count} machines"
    planned = [one.result for one in found.points]
    if planned and all(one.status is Status.INFEASIBLE for one in planned):
        many = "two" if count == 2 else count
        return f"The model does not fit on {many} machines (proved)"
    if all(one.plan is None for one in planned):
        return f"No plan on {count} machines was found in time"
    if alone.plan is None:
        if alone.status is Status.INFEASIBLE:
            return f"{whole} is needed, as the model does not fit on one (proved)"
        return f"{whole} has a plan, and none on one was found in time"
    saved = {one.gbits_per_s: found.saves(one) for one in found.points}
    if pays := [one for one in found.points if saved[one.gbits_per_s][0]]:
        return f"{whole} pays off from {_gbits(pays[0])} on"
    most = max(most or 0 for _, most in saved.values())
    if most == 0:
        return f"{whole} cannot pay off at any network rate tried (proved)"
    return (
        f"No plan was found in time with which {whole[0].lower()}{whole[1:]} pays off "
        f"(it saves at most {most:.0%}, proved)"
    )


def _gbits(point: Point) -> str:
    return words.NONE if point.gbits_per_s is None else f"{point.gbits_per_s:g} Gbit/s"


def _time(result: Result) -> str:
    return words.amount(result.objective, "us")


def _table(found: Scaling) -> Table:
    rows = (
        (
            str(point.machines),
            _gbits(point),
            _time(point.result),
            *map(words.share, found.saves(point)),
        )
        for point in (found.alone, *found.points)
    )
    return Table.of(_COLUMNS, rows, texts=())


def sheet(found: Scaling) -> Sheet:
    """Return the answer, and a row for each point."""
    note = (
        "Saves: compared with one machine. At most: proved for every plan. Machines: "
        + ", ".join(found.names)
    )
    sections = (Section("Points", (note,), table=_table(found)),)
    kind = "does another machine pay off"
    return Sheet(found.instance, sections, kind, answer=answer(found))
