"""A scheduling round as Sia states it: a binary for each job and configuration.

Jobs (c, i) of a class c with cost u[c] when unserved and configurations f: a type, a
power of two g[f] of GPUs, a cost a[f]; slots S[type, s] for GPUs of a type in
configurations of at least s. x[c,i,f] = 1 if the job gets configuration f.

Minimise the costs a[f] of what jobs get and u[c] of those that get nothing, subject to
    one     a job gets one configuration at most
    slots   configurations of at least s GPUs of a type hold no more than their slots
Sia has `slots` for s = 1 only, the GPUs of a type, as all its nodes of a type are equal
powers of two; the others then follow from it.

Source: Sia (SOSP 2023), Eq. 1 with p < 0, where it minimises.
"""

from collections import Counter
from collections.abc import Callable
from itertools import groupby

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Round, Served
from hetopt.problems.job_round import Data

problem = "job_round"
backends = ("pulp", "scip", "cpsat")


def build(data: Data, model: Model) -> ReadPlan:
    """State the round on `model`; return what reads the plan back."""
    total = model.total
    cost = {
        (c.name, i, f.gpus, f.gpu): f.cost - c.unserved
        for c in data.classes
        for i in range(c.jobs)
        for f in c.configurations
    }
    x = model.binaries("x", cost)
    jobs = {job: list(mine) for job, mine in groupby(x, key=lambda v: v[:2])}
    held = {s: [v for v in x if v[3] == s.gpu and v[2] >= s.size] for s in data.slots}

    # fmt: off
    model.each("one",   {job: total(x[v] for v in mine) <= 1             for job, mine in jobs.items()})
    model.each("slots", {(s.gpu, s.size): total(v[2] * x[v] for v in mine) <= s.gpus
                                                                         for s, mine in held.items() if mine})
    # fmt: on
    nobody = sum(c.jobs * c.unserved for c in data.classes)
    model.minimise(total(cost[v] * x[v] for v in x) + nobody)

    def read(value: Callable[[object], float]) -> Round:
        count: Counter[tuple[str, str, int]] = Counter()
        for (c, _, g, t), taken in x.items():
            count[c, t, g] += round(value(taken))
        served = (Served(job_class=c, gpu=t, gpus=g, jobs=n) for (c, t, g), n in count.items() if n)
        return Round(served=tuple(served))

    return read
