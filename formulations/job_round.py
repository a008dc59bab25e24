"""A scheduling round by counts: jobs of one class are interchangeable.

Given   classes c of n[c] jobs with cost u[c] when unserved, configurations f of c with
        a type, a power of two g[f] of GPUs and a cost a[f]; slots S[type, s].
Choose  integers x[c,f], the jobs of c that get f.
Minimise  sum_c u[c] n[c] + sum (a[f] - u[c]) x[c,f], subject to
    served   sum_f x[c,f] <= n[c]                                        each c
    slots    sum of g[f] x[c,f] over f of the type with g[f] >= s <= S   each type, s
Configurations that cost no less than none are left out: taking none is as good.
"""

from collections.abc import Mapping
from typing import Any

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Round, Served
from hetopt.problems.job_round import Configuration, Data

problem = "job_round"
backends = ("cpsat", "scip", "pulp")


def useful(data: Data) -> list[tuple[str, int, int, Configuration]]:
    """(class, its jobs, saving, configuration) where the saving is above 0."""
    return [
        (c.name, c.jobs, c.unserved - configuration.cost, configuration)
        for c in data.classes
        for configuration in c.configurations
        if configuration.cost < c.unserved
    ]


def build(data: Data, model: Model) -> ReadPlan:
    """State the round on `model`; return what reads the plan back."""
    rows = useful(data)
    x = [
        model.integer(_name(name, f), 0, min(jobs, _room(data, f)))
        for name, jobs, _, f in rows
    ]
    by_class: dict[str, list[Any]] = {}
    for (name, _, _, _), variable in zip(rows, x, strict=True):
        by_class.setdefault(name, []).append(variable)
    for c in data.classes:
        if c.name in by_class:
            model.add("served", c.name, model.total(by_class[c.name]) <= c.jobs)
    for slots in data.slots:
        held = [
            f.gpus * variable
            for (_, _, _, f), variable in zip(rows, x, strict=True)
            if f.gpu == slots.gpu and f.gpus >= slots.size
        ]
        if held:
            model.add("slots", (slots.gpu, slots.size), model.total(held) <= slots.gpus)
    nobody = sum(c.jobs * c.unserved for c in data.classes)
    saved = [-saving * v for (_, _, saving, _), v in zip(rows, x, strict=True)]
    model.minimise(model.total(saved) + nobody)

    def read(value: Any) -> Round:
        found = [
            Served(job_class=name, gpu=f.gpu, gpus=f.gpus, jobs=round(value(variable)))
            for (name, _, _, f), variable in zip(rows, x, strict=True)
            if round(value(variable)) > 0
        ]
        return Round(served=tuple(found))

    return read


def hint(data: Data, plan: Round) -> Mapping[str, int]:
    """Values of the variables, by name."""
    given = {(row.job_class, row.gpu, row.gpus): row.jobs for row in plan.served}
    return {
        _name(name, f): given.get((name, f.gpu, f.gpus), 0)
        for name, _, _, f in useful(data)
    }


def _name(job_class: str, f: Configuration) -> str:
    return f"x[{job_class},{f.gpus},{f.gpu}]"


def _room(data: Data, f: Configuration) -> int:
    """Jobs of this configuration that the slots have room for."""
    rooms = [s.gpus for s in data.slots if s.gpu == f.gpu and s.size <= f.gpus]
    return min(rooms, default=0) // f.gpus
