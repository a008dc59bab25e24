"""A scheduling round as Sia states it: a binary for each job and configuration.

Given   jobs j, each of a class with cost u[j] when unserved and its configurations f: a
        type, a power of two g[f] of GPUs, a cost a[f]; slots S[type, s].
Choose  x[j,f] in {0,1}.
Minimise  sum_j (u[j] (1 - sum_f x[j,f]) + sum_f a[f] x[j,f]), subject to
    one     sum_f x[j,f] <= 1                                            each j
    slots   sum of g[f] x[j,f] over f of the type with g[f] >= s <= S    each type, s
Sia has `slots` for s = 1 only, the GPUs of a type, as all its nodes of a type are equal
powers of two; the others then follow from it.

Source: Sia (SOSP 2023), Eq. 1 with p < 0, where it minimises.
"""

from typing import Any

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Round, Served
from hetopt.problems.job_round import Data

problem = "job_round"
backends = ("pulp", "scip", "cpsat")


def build(data: Data, model: Model) -> ReadPlan:
    """State the round on `model`; return what reads the plan back."""
    chosen = [
        (c.name, number, f, model.binary(f"x[{c.name},{number},{f.gpus},{f.gpu}]"))
        for c in data.classes
        for number in range(c.jobs)
        for f in c.configurations
    ]
    by_job: dict[tuple[str, int], list[Any]] = {}
    for name, number, _, x in chosen:
        by_job.setdefault((name, number), []).append(x)
    for job, mine in by_job.items():
        model.add("one", job, model.total(mine) <= 1)
    for slots in data.slots:
        held = [
            f.gpus * x
            for _, _, f, x in chosen
            if f.gpu == slots.gpu and f.gpus >= slots.size
        ]
        if held:
            model.add("slots", (slots.gpu, slots.size), model.total(held) <= slots.gpus)
    unserved = {c.name: c.unserved for c in data.classes}
    nobody = sum(c.jobs * c.unserved for c in data.classes)
    costs = [(f.cost - unserved[name]) * x for name, _, f, x in chosen]
    model.minimise(model.total(costs) + nobody)

    def read(value: Any) -> Round:
        counts: dict[tuple[str, str, int], int] = {}
        for name, _, f, x in chosen:
            key = (name, f.gpu, f.gpus)
            counts[key] = counts.get(key, 0) + round(value(x))
        return Round(
            served=tuple(
                Served(job_class=name, gpu=gpu, gpus=gpus, jobs=jobs)
                for (name, gpu, gpus), jobs in counts.items()
                if jobs
            )
        )

    return read
