"""The module says what a run takes, and what sets of nodes cost."""

import re
from collections.abc import Iterable

from ..api.nodes import NodeChoice
from ..api.runs import TrainingRun
from . import words
from .sheet import Section, Sheet, Table

_MOST_NAMES = 4  # of nodes, in a row


def sheet(found: TrainingRun) -> Sheet:
    """Return what a run takes."""
    return Sheet("run", facts=tuple(facts(found)))


def facts(found: TrainingRun) -> list[tuple[str, str]]:
    """Return length, time, cost and energy of a run, or which field would tell."""
    gpus = f"{words.counted(found.gpus, 'GPU')} on {words.counted(found.nodes, 'node')}"
    missing = {
        field: ", ".join(name for name in found.missing if name.endswith(field))
        for field in ("usd_per_hour", "watts")
    }
    cost = f"unknown: set {missing['usd_per_hour']}"
    if found.usd is not None:
        cost = f"{words.number(found.usd)} USD for {gpus} (whole nodes)"
    energy = f"unknown: set {missing['watts']}"
    if found.kwh is not None:
        energy = f"at most {words.number(found.kwh)} kWh (TDP of {gpus})"
    return [
        ("run", f"{words.tokens(found.tokens)}, {found.iterations:,} iterations"),
        ("takes", words.duration(found.seconds)),
        ("run's cost", cost),
        ("run's energy", energy),
    ]


def sets(found: NodeChoice) -> list[Section]:
    """Return a row for each set of nodes, below the bound of all."""
    if found.best is None:
        return []
    rows = [
        (
            f"without {', '.join(runs_of(one.without))}"
            if one.without
            else "all nodes",
            words.amount(one.iteration_us, "us"),
            words.NONE if one.usd is None else words.number(float(one.usd)),
            "chosen" if one is found.best else "; ".join(one.reasons),
        )
        for one in found.sets
    ]
    headings = ("nodes", "iteration", "USD per iteration", "")
    bound = f"{words.number(float(found.bound.value))} USD ({found.bound.source})"
    note = f"Bound: {bound}; gap {words.share(found.gap)}"
    table = Table.of(headings, rows, texts=("nodes", ""))
    return [Section("With and without nodes", (note,), table=table)]


def runs_of(nodes: Iterable[str]) -> list[str]:
    """Names in order, consecutive numbers behind one word as `word1..3`."""
    found: list[tuple[str, str, str]] = []  # word, first number, last
    for name in nodes:
        match = re.fullmatch(r"(.*?)(0|[1-9][0-9]{0,8})", name)
        word, number = match.groups() if match else (name, "")
        before = found[-1] if found else ("", "", "")
        follows = number and before[2] and int(number) == int(before[2]) + 1
        if follows and before[0] == word:
            found[-1] = (word, before[1], number)
        else:
            found.append((word, number, number))
    texts = [
        f"{word}{first}" + (f"..{last}" if last != first else "")
        for word, first, last in found
    ]
    more = len(texts) - _MOST_NAMES
    return [*texts[:_MOST_NAMES], f"{more} more"] if more > 1 else texts
