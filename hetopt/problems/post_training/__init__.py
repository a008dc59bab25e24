"""Post-training: which GPUs train and which generate, by steps of RL.

A step generates A answers of m tokens on average and q at most, scores them, and trains
on them. Times: T training, S scoring, which is a forward pass or more; Y the weights
sent to the engines. An engine with `a` of the answers and N decoding steps takes

    step_ns N + (answer_ns m + prompt_ns) a,  N >= a m / at_once

and of a mixture, of which many answers read all experts, the lesser of two of these.

Apart, training uses answers of weights up to s steps old: batches overlap, and N is at
least q / (1 + s) in a step; G is that time of the slowest engine. L is the time of a
whole batch alone, with N >= q. A step takes the longest of

    G + Y            engines, which new weights stop
    T + S + Y        training
    (L + T + S + Y) / (1 + s)      a batch from its first token to its weights

In turn, on shared GPUs, it takes L + S + T, and the switch (`tables.switch_us`). The
answers are divided among engines as is quickest; every engine's are alike in length.

Source: the loop is that of AReaL (arXiv 2505.24298); on mixed GPUs AReaL-Hex (arXiv
2511.00796) asks the same, with s taken as given and generation as the longer half. The
formulas are ours. Where time per decoding step is linear in the answers in flight, work
is exact whatever their lengths: the answers in flight summed over steps are a m. L is
that of a batch which decodes alone, and every batch is taken to have the same longest
answer, which begins at once. Simulated steps take 1.02 times as long in the median.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Literal

from ... import plans
from ...costs.decoding import Engine
from ...errors import InstanceError
from ...schema import Generation, Instance, Record
from .. import Evaluation, Violation, training_plan
from .tables import Tables

sense: Literal["minimise"] = "minimise"
Plan = plans.PostTraining
Divide = Literal["nodes", "gpus"]


class Data(Record):
    """An instance with generation, and what is divided: whole nodes, or their GPUs.

    Of GPUs, at most one node of a class both trains and generates.
    """

    problem: Literal["post_training"] = "post_training"
    instance: Instance
    divide: Divide = "nodes"

    @property
    def name(self) -> str:
        """Return the name of the instance."""
        return self.instance.name

    @cached_property
    def tables(self) -> Tables:
        """Return the tables that plans are judged by."""
        return Tables(self.instance, _generation(self.instance))


def data(instance: Instance, *, divide: Divide | None = None) -> Data:
    """Return the problem of an instance; `InstanceError` where nothing is generated.

    The GPUs of a single node are divided; of several, whole nodes are, unless `divide`
    is `gpus`.
    """
    _ = _generation(instance)
    alone = len(instance.planned_cluster.nodes) == 1
    return Data(instance=instance, divide=divide or ("gpus" if alone else "nodes"))


def _generation(instance: Instance) -> Generation:
    if (told := instance.workload.generation) is None:
        raise InstanceError(
            f"instance {instance.name!r}: workload.generation: found nothing, expected "
            "what engines generate in a step (answers, prompt_tokens, answer_tokens); "
            "add it"
        )
    return told


def unit(data: Data) -> str:
    """Return the unit of the objective."""
    return "us"


def evaluate(data: Data, plan: plans.PostTraining) -> Evaluation:
    """Judge a plan: every rule that it breaks, and what a step takes, in us."""
    made, tables, shared = plan.trains, data.tables, plan.shared is not None
    broken = [*_engines_broken(data, plan), *_halves_broken(data, plan)]
    judged = training_plan.evaluate(data.instance, made)
    half = "shared" if shared else "training"
    told = [replace(x, where=f"{half}: {x.where}") for x in judged.violations]
    if broken or not isinstance(judged.objective, int):
        return Evaluation(None, (*broken, *told))
    training = tables.training_us(judged.objective)
    scoring = tables.scoring_us(training)
    groups = [gpus for part in plan.engines for gpus in part.each()]
    of = [tables.engines(_node(gpus[0]))[len(gpus)] for gpus in groups]
    by_node = made.gpus_by_node, plan.engine_gpus_by_node
    sent = 0 if shared else tables.sent_us(*by_node)
    switch = tables.switch_us if shared else 0
    behind = training + scoring + sent + switch
    kinds, answers = Counter(of), tables.answers
    steps = tables.steps_alone if shared else tables.steps_apart

    def most(one: Engine, us: int) -> int:
        return tables.done(one, us, behind, sent, shared=shared)

    def all_done(us: int) -> bool:
        return sum(n * most(one, us) for one, n in kinds.items()) >= answers

    longest = max(tables.engine_us(one, answers, tables.steps_alone) for one in kinds)
    step = behind + bisect_left(range(behind, behind + longest), True, key=all_done)
    left, listed, can = answers, [], {one: most(one, step) for one in kinds}
    for gpus, one in zip(groups, of, strict=True):
        share = min(left, can[one])
        us = tables.engine_us(one, share, steps)
        listed.append({"gpus": list(gpus), "answers": share, "us": us})
        left -= share
    parts = {
        "step_us": step,
        "training_us": training,
        "scoring_us": scoring,
        "sent_us": sent,
        "switch_us": switch,
        "tokens_per_second": tables.tokens * 10**6 / max(1, step),
        "engines": listed,
        "not_calibrated_here": tables.not_calibrated(by_node[1]),
        "training": judged.parts,
    }
    return Evaluation(step, tuple(told), parts)


# --- rules -------------------------------------------------------------------------


def _engines_broken(data: Data, plan: plans.PostTraining) -> Iterator[Violation]:
    tables, heads = data.tables, data.instance.model.heads
    known = {*tables.cluster.gpu_ids()}
    if not plan.engines:
        yield Violation("no_engines", "plan", "nothing generates the answers")
    for number, part in enumerate(plan.engines):
        where, d = f"engines[{number}]", part.degree
        if unknown := [gpu for gpu in part.gpus if gpu not in known]:
            yield Violation("unknown_gpu", where, repr(unknown[0]))
        elif d & (d - 1) or heads % d or len(part.gpus) % d:
            what = f"degree {d} of {len(part.gpus)} GPUs, expected a power of two that "
            what += f"divides them and the model's {heads} heads"
            yield Violation("engine_degree", where, what)
        else:
            for gpus in part.each():
                nodes, alike = Counter(map(_node, gpus)), tables.alike[_node(gpus[0])]
                whole = all(tables.cluster.node[x].count == n for x, n in nodes.items())
                names = ", ".join(sorted(nodes))
                if len(nodes) > 1 and not (whole and {*nodes} <= {*alike}):
                    what = f"{names}: expected all GPUs of nodes that are alike"
                    yield Violation("engine_across_nodes", where, what)
                elif d not in tables.engines(alike[0]):
                    what = f"{d} GPUs of {names} do not hold weights and an answer"
                    yield Violation("engine_memory", where, what)
    for gpu, times in Counter(gpu for x in plan.engines for gpu in x.gpus).items():
        if times > 1:
            yield Violation("gpu_twice", gpu, f"{times} engines have it")


def _halves_broken(data: Data, plan: plans.PostTraining) -> Iterator[Violation]:
    if plan.shared is not None:
        for node in data.tables.full_hosts:
            what = "its host cannot hold its part of the training states"
            yield Violation(training_plan.hosts.RULE, node, what)
        return
    trains = {gpu for replica in plan.trains.replicas() for gpu in replica.gpus}
    serves = {gpu for part in plan.engines for gpu in part.gpus}
    for gpu in sorted(trains & serves):
        yield Violation("gpu_twice", gpu, "it trains and generates, and is not shared")
    both = {*plan.trains.gpus_by_node} & {*plan.engine_gpus_by_node}
    for alike in data.tables.classes:
        names = [node.name for node in alike if node.name in both]
        if len(names) > (most := int(data.divide == "gpus")):
            what = f"trains and generates, expected {most} node to do both"
            yield Violation("divided_node", ", ".join(names), what)


def _node(gpu: str) -> str:
    return gpu.rpartition(":")[0]
