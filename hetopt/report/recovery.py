"""A recovery: what was lost, which plans were weighed, busy links, the new plan."""

from collections.abc import Iterator

from ..api import margins
from ..api.recovering import Recovered
from ..result import Method, Result, Status, Stop
from . import plans, results, words
from .sheet import Section, Sheet, Table


def sheet(found: Recovered) -> Sheet:
    """Return what is lost, plans considered, what is moved, and the new plan."""
    sections = []
    if found.candidates:
        sections.append(Section("Plans considered", table=_candidates(found)))
    if (made := found.chosen) is not None:
        by, state = Method(made.name, "given"), (Status.FEASIBLE, Stop.FINISHED)
        new = Result("training_plan", found.change.new, by, *state, made.plan)
        assert new.evaluation is not None
        warned = margins.warnings(new.data, new.evaluation)
        title = "The new training plan"
        sections.append(
            Section(
                title,
                (f"Made by {made.name}. {plans.NOTE}", *warned),
                tuple(f"{a}: {b}" for a, b in results.totals(new.parts)),
                results.table(new.data, made.plan, new.parts),
                (plans.figure(new, title),),
            )
        )
    if found.result.plan is not None:
        note = "How long each link is busy; the busiest says when all states arrive."
        moved = results.table(found.result.data, found.result.plan, found.result.parts)
        sections.append(Section("What is moved", (note,), table=moved))
    title = f"{found.change.new.name}: recovery"
    facts = (*_changes(found), *_facts(found))
    return Sheet(title, tuple(sections), "recovery", facts)


def _changes(found: Recovered) -> list[tuple[str, str]]:
    change = found.change
    told = (
        ("lost", ", ".join(change.lost_nodes)),
        ("lost GPUs", ", ".join(sorted(change.wounded))),
        ("new", ", ".join(change.new_nodes)),
    )
    return [(heading, text) for heading, text in told if text]


def _candidates(found: Recovered) -> Table:
    rows = (
        [
            candidate.name,
            words.amount(candidate.iteration_us, "us"),
            words.amount(candidate.recovery_us, "us"),
            "yes" if candidate is found.chosen else "",
        ]
        for candidate in found.candidates
    )
    columns = ("plan", "iteration", "recovery", "chosen")
    return Table.of(columns, rows, texts=("plan", "chosen"))


def _facts(found: Recovered) -> Iterator[tuple[str, str]]:
    if found.chosen is None:
        yield "new plan", f"none: {found.result.status.value}"
        yield from (("reason", why) for why in found.result.reasons)
        return
    proved = found.result.stop is Stop.PROVED and found.result.status is Status.OPTIMAL
    moved = words.amount(found.result.objective, "us")
    yield "states arrive within", moved + ", proved minimal" * proved
    yield "time per iteration afterwards", words.amount(found.chosen.iteration_us, "us")
    if busiest := found.result.parts.get("busiest"):
        yield "busiest link", str(busiest)
    totals = results.totals(found.result.parts)
    yield from (pair for pair in totals if pair[0] == "bytes")
