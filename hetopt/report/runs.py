"""For a terminal: what a run takes, what groups of nodes are worth, what is tight."""

import re
from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from ..api.nodes import NO_BETTER, NodeChoice, NodeGroup, NodeSet
from ..api.runs import TrainingRun
from . import words, writers

_MOST_NAMES = 4  # of nodes, in a row


def run(found: TrainingRun) -> Iterator[RenderableType]:
    """Length, time, cost and energy of a run, or which field would tell."""
    gpus = f"{found.gpus} GPUs on {found.nodes} node{'s' * (found.nodes != 1)}"
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
    pairs = [
        ("run", f"{words.tokens(found.tokens)}, {found.iterations:,} iterations"),
        ("takes", words.duration(found.seconds)),
        ("run's cost", cost),
        ("run's energy", energy),
    ]
    yield writers.facts(pairs)


def sets(found: NodeChoice) -> Iterator[RenderableType]:
    """A line a set of nodes, and what was asked for beside its bound.

    Nothing where no set has a plan: why is said of the plan.
    """
    if found.best is None:
        return
    yield Text("With and without nodes", style="bold")
    for one in found.sets:
        chosen = " (chosen)" if one is found.best and len(found.sets) > 1 else ""
        yield Text(words.plain(f"{set_line(found, one)}{chosen}"))
    if found.value is not None:
        bound = f"{words.number(float(found.bound.value))} USD ({found.bound.source})"
        yield writers.facts(
            [
                ("best found", f"{words.number(float(found.value))} USD per iteration"),
                ("bound", bound),
                ("gap", words.share(found.gap)),
            ]
        )


def set_line(found: NodeChoice, one: NodeSet) -> str:
    """Return a line such as `without rtx-1..3: 13.30 s, 6.00% slower`."""
    name = "all nodes"
    if one.without:
        name = f"without {names(one.without)}"
    if one.iteration_us is None:
        why = "; ".join(one.reasons) or "no plan was found in time"
        left_out = "not planned" if one.reasons == NO_BETTER else "no plan"
        return f"{name}: {left_out}, {why}"
    idle = f" (idle: {', '.join(runs_of(one.idle))})" if one.idle else ""
    told = [words.amount(one.iteration_us, "us") + idle]
    told += [f"{words.number(float(one.usd))} USD"] if one.usd is not None else []
    if one is not found.sets[0]:
        than = found.compared(one)
        told += _than(than["slower"], "slower", "faster")
        told += _than(than["cheaper"], "cheaper", "dearer")
    return f"{name}: {', '.join(told)}"


def _than(value: float | None, more: str, less: str) -> list[str]:
    if value is None:
        return []
    return [f"{abs(value):.1%} {more if value >= 0 else less}"]


def names(groups: Iterable[NodeGroup]) -> str:
    """Names of nodes, runs of numbers as `rtx-1..3`."""
    return ", ".join(runs_of([name for group in groups for name in group.nodes]))


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
