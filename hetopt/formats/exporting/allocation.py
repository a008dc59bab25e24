"""Exporters of schedulers share this: machines to ask for, and the plan beside them.

A scheduler is asked for machines: so many of a GPU type, with so many GPUs. It knows
neither layers nor pipelines, so the plan itself travels as `plan.json`, a plan file of
ours, and on every machine `PROGRAM plan.json NODE` is started (`programs`): it learns
what to run from the plan, and which of the plan's nodes it is. The k-th GPU that the
plan uses on a node is the k-th that the scheduler grants.

Every feature of a plan can be carried so. What differs between schedulers is a table of
options, `Word` by name, and the function that asks for `Machines`: `exporter` makes the
`export` of a module of them.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import InstanceError, quoted
from ...plans import TrainingPlan
from ...schema import Instance, Node
from ...text.documents import Document
from .programs import Program, program

PLAN = "plan.json"
LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


class Share(NamedTuple):
    """Nodes of one GPU type that take part with as many GPUs each.

    `called` is what the scheduler calls their GPUs, where `shares` was told.
    """

    gpu: str
    gpus: int
    nodes: tuple[str, ...]
    called: str | None = None

    @property
    def label(self) -> str:
        """Return a name for files and jobs."""
        return f"{self.gpu.lower()}-{self.gpus}".replace(".", "-").replace("_", "-")


def shares(
    data: Instance,
    plan: TrainingPlan,
    called: Callable[[Node], str | None] = lambda node: None,
) -> list[Share]:
    """Return the machines of a plan by type and number of GPUs, in the cluster's order.

    Nodes whose GPUs a scheduler calls differently are shares of their own.
    """
    used = plan.gpus_by_node
    found: dict[tuple[str, int, str | None], list[str]] = {}
    for node in data.planned_cluster.nodes:
        if node.name in used:
            kind = node.gpu, used[node.name], called(node)
            found.setdefault(kind, []).append(node.name)
    return [
        Share(gpu, gpus, tuple(names), name)
        for (gpu, gpus, name), names in found.items()
    ]


class Word(NamedTuple):
    """An option of a scheduler: its type, the pattern of its text, and what that is."""

    kind: Any
    pattern: str
    expected: str


class Machines(NamedTuple):
    """A request to a scheduler names the machines of a plan, and what they start."""

    data: Instance
    plan: TrainingPlan
    program: Program
    files: dict[str, str]


_TRAIN = {"train": Word(str, r"[A-Za-z0-9_./+@-]{1,200}", "the path of a program")}


def options(words: dict[str, Word]) -> Document:
    """Return the options of a scheduler by their types, with the one that all have."""
    return {name: word.kind for name, word in (_TRAIN | words).items()}


def exporter(
    ask: Callable[..., dict[str, str]], words: dict[str, Word]
) -> Callable[..., dict[str, str]]:
    """Return the `export` of a scheduler.

    `ask(machines, **options)` are the texts that ask for machines; the plan and the
    program stand beside them. `words` are its options.
    """

    def export(
        data: Instance, plan: TrainingPlan, *, train: str | None = None, **asked: object
    ) -> dict[str, str]:
        """Return all texts; `InstanceError` for an option that is none of its words."""
        told = asked if train is None else {"train": train, **asked}
        for name, value in told.items():
            word = (_TRAIN | words)[name]
            if not re.fullmatch(word.pattern, str(value)):
                raise InstanceError(
                    f"option {name}: found {quoted(str(value))}, expected "
                    f"{word.expected}"
                )
        started = program(data, plan, train)
        files = {PLAN: plan_text(data, plan), **started.files}
        return {**ask(Machines(data, plan, started, files), **asked), **files}

    return export


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """GPU types with names that no scheduler takes."""
    types = sorted({share.gpu for share in shares(data, plan)})
    labels = [share.label for share in shares(data, plan)]
    found = [
        f"the name of GPU type {name!r} is not a valid label: rename it in cluster.gpus"
        for name in types
        if not re.fullmatch(LABEL, name)
    ]
    if len(set(labels)) < len(labels):
        found.append(f"GPU types {', '.join(types)} differ only in case or dots")
    return found


def plan_text(data: Instance, plan: TrainingPlan) -> str:
    """`plan.json`: the plan with its whole instance."""
    whole = {
        "instance": data.model_dump(mode="json", exclude_none=True),
        "plan": plan.model_dump(mode="json"),
    }
    return json.dumps(whole, indent=1) + "\n"
