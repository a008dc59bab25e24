"""A scheduling round by counts: jobs of one class are interchangeable.

Classes c of n[c] jobs with cost u[c] when unserved, configurations f of c with a type,
a power of two g[f] of GPUs and a cost a[f]; slots S[type, s] for GPUs of a type in
configurations of at least s. x[c,f] jobs of class c get configuration f.

Minimise sum_c u[c] n[c] + sum (a[f] - u[c]) x[c,f], subject to
    served   no more jobs of a class are served than there are
    slots    configurations of at least s GPUs of a type hold no more than their slots
Configurations that cost no less than none are left out: taking none is as good.
"""

from collections.abc import Callable, Mapping

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Round, Served
from hetopt.problems.job_round import Data

problem = "job_round"
backends = ("cpsat", "scip", "pulp")

Index = tuple[str, int, str]  # class, GPUs, type


def _savings(data: Data) -> dict[Index, int]:
    """Return what a job of the class saves in a configuration, where it is above 0."""
    return {
        (c.name, f.gpus, f.gpu): c.unserved - f.cost
        for c in data.classes
        for f in c.configurations
        if f.cost < c.unserved
    }


def build(data: Data, model: Model) -> ReadPlan:
    """State the round on `model`; return what reads the plan back."""
    saving, total = _savings(data), model.total
    n = {c.name: c.jobs for c in data.classes if any(c.name == name for name, _, _ in saving)}
    x = model.integers("x", {(c, g, t): min(n[c], _room(data, g, t)) for c, g, t in saving})
    held = {s: [v for v in x if v[2] == s.gpu and v[1] >= s.size] for s in data.slots}

    # fmt: off
    model.each("served", {c: total(x[v] for v in x if v[0] == c) <= n[c] for c in n})
    model.each("slots",  {(s.gpu, s.size): total(v[1] * x[v] for v in mine) <= s.gpus
                                                                         for s, mine in held.items() if mine})
    # fmt: on
    nobody = sum(c.jobs * c.unserved for c in data.classes)
    model.minimise(total(-saving[v] * x[v] for v in x) + nobody)

    def read(value: Callable[[object], float]) -> Round:
        jobs = {v: round(value(x[v])) for v in x}
        served = (Served(job_class=c, gpu=t, gpus=g, jobs=j) for (c, g, t), j in jobs.items() if j > 0)
        return Round(served=tuple(served))

    return read


def hint(data: Data, plan: Round) -> Mapping[str, int]:
    """Return the values of the variables, by name."""
    given = {(row.job_class, row.gpus, row.gpu): row.jobs for row in plan.served}
    return {label("x", index): given.get(index, 0) for index in _savings(data)}


def _room(data: Data, gpus: int, gpu: str) -> int:
    """Return the jobs of this configuration that the slots have room for."""
    rooms = [s.gpus for s in data.slots if s.gpu == gpu and s.size <= gpus]
    return min(rooms, default=0) // gpus
