"""Post-training: which GPUs train and which generate, by steps of RL.

A step generates A answers of m tokens on average and q at most, scores them, and trains
on them. Times: T training, S scoring, which is a forward pass or more; Y the weights
sent to the engines. An engine with `a` of the answers and N decoding steps takes

    step_ns N + (answer_ns m + prompt_ns) a,  N >= a m / at_once

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
is exact whatever their lengths: the answers in flight summed over steps are a m.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
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
    made, half = plan.trains, "training" if plan.shared is None else "shared"
    broken = [*_engines_broken(data, plan), *_halves_broken(data, plan)]
    judged = training_plan.evaluate(data.instance, made)
    told = [replace(x, where=f"{half}: {x.where}") for x in judged.violations]
    if broken or not isinstance(judged.objective, int):
        return Evaluation(None, (*broken, *told))
    tables = data.tables
    training = tables.training_us(judged.objective)
    scoring = tables.scoring_us(training)
    rows = [(x, _engine(data, x)) for part in plan.engines for x in part.each()]
    kinds = Counter(one for _, one in rows)
    if plan.shared is not None:
        sent, switch = 0, tables.switch_us
        behind = training + scoring + switch
        least, fits = behind, _in_turn(tables, behind)
    else:
        nodes = {gpu.rpartition(":")[0] for gpus, _ in rows for gpu in gpus}
        sent, switch = tables.sent_us(made.gpus_by_node, nodes), 0
        behind = training + scoring + sent
        least, fits = behind, _apart(tables, sent, behind)
    longest = max(_us(tables, one, tables.answers, tables.steps_alone) for one in kinds)
    step = _first(
        least,
        longest + behind,
        lambda us: (
            sum(n * _most(tables.answers, one, us, fits) for one, n in kinds.items())
            >= tables.answers
        ),
    )
    left, listed = tables.answers, []
    for gpus, one in rows:
        share = min(left, _most(tables.answers, one, step, fits))
        steps = tables.steps_alone if plan.shared else tables.steps_apart
        us = _us(tables, one, share, steps)
        listed.append({"gpus": list(gpus), "answers": share, "us": us})
        left -= share
    parts = {
        "step_us": step,
        "generation_us": max(row["us"] for row in listed),
        "training_us": training,
        "scoring_us": scoring,
        "sent_us": sent,
        "switch_us": switch,
        "tokens_per_second": tables.tokens * 10**6 / max(1, step),
        "engines": listed,
        "training": judged.parts,
    }
    return Evaluation(step, tuple(told), parts)


# --- rules -------------------------------------------------------------------------


def _engines_broken(data: Data, plan: plans.PostTraining) -> Iterator[Violation]:
    cluster, heads = data.instance.planned_cluster, data.instance.model.heads
    known = set(cluster.gpu_ids())
    if not plan.engines:
        yield Violation("no_engines", "plan", "nothing generates the answers")
    for number, part in enumerate(plan.engines):
        where, d = f"engines[{number}]", part.degree
        if unknown := [gpu for gpu in part.gpus if gpu not in known]:
            yield Violation("unknown_gpu", where, repr(unknown[0]))
            continue
        if d & (d - 1) or heads % d or len(part.gpus) % d:
            what = f"degree {d} of {len(part.gpus)} GPUs, expected a power of two that "
            what += f"divides them and the model's {heads} heads"
            yield Violation("engine_degree", where, what)
            continue
        for gpus in part.each():
            nodes = sorted({gpu.rpartition(":")[0] for gpu in gpus})
            if len(nodes) > 1:
                yield Violation("engine_across_nodes", where, ", ".join(nodes))
            elif data.tables.engine(nodes[0], d) is None:
                what = f"{d} GPUs of {nodes[0]} cannot hold the weights and an answer"
                yield Violation("engine_memory", where, what)
    used = Counter(chain.from_iterable(part.gpus for part in plan.engines))
    for gpu, times in used.items():
        if times > 1:
            yield Violation("gpu_twice", gpu, f"{times} engines have it")


def _halves_broken(data: Data, plan: plans.PostTraining) -> Iterator[Violation]:
    if plan.shared is not None:
        for node, mib in data.tables.full_hosts():
            what = f"its host lacks {mib} MiB for training states"
            yield Violation(training_plan.hosts.RULE, node, what)
        return
    trains = {gpu for replica in plan.trains.replicas() for gpu in replica.gpus}
    serves = set(chain.from_iterable(part.gpus for part in plan.engines))
    for gpu in sorted(trains & serves):
        yield Violation("gpu_twice", gpu, "it trains and generates, and is not shared")
    both = set(plan.trains.gpus_by_node) & {x.rpartition(":")[0] for x in serves}
    for alike in data.tables.classes:
        names = [node.name for node in alike if node.name in both]
        if len(names) > (data.divide == "gpus"):
            most = "one such node" if data.divide == "gpus" else "none"
            what = f"trains and generates, expected {most} to do both"
            yield Violation("divided_node", ", ".join(names), what)


# --- times -------------------------------------------------------------------------

_Fits = Callable[[Engine, int, int], bool]  # an engine does so many answers by then


def _engine(data: Data, gpus: tuple[str, ...]) -> Engine:
    found = data.tables.engine(gpus[0].rpartition(":")[0], len(gpus))
    assert found is not None  # a rule
    return found


def _us(tables: Tables, one: Engine, answers: int, steps: int) -> int:
    """Return what an engine takes for its answers, in so many steps or more."""
    if not answers:
        return 0
    needed = max(steps, -(-answers * tables.mean // one.at_once))
    each = one.answer_ns * tables.mean + one.prompt_ns
    return -(-(one.step_ns * needed + each * answers) // 1000)


def _in_turn(tables: Tables, behind: int) -> _Fits:
    """Return whether answers are there in time for all that comes behind them."""

    def fits(one: Engine, answers: int, us: int) -> bool:
        return _us(tables, one, answers, tables.steps_alone) + behind <= us

    return fits


def _apart(tables: Tables, sent: int, behind: int) -> _Fits:
    """Return whether an engine keeps up, and its batch is not too old at the end."""

    def fits(one: Engine, answers: int, us: int) -> bool:
        whole = _us(tables, one, answers, tables.steps_alone) + behind
        keeps_up = _us(tables, one, answers, tables.steps_apart) + sent <= us
        return not answers or (keeps_up and whole <= us * (1 + tables.staleness))

    return fits


def _most(answers: int, one: Engine, us: int, fits: _Fits) -> int:
    """Return the most answers that an engine does by then, up to all of them."""
    return _first(1, answers + 1, lambda a: a > answers or not fits(one, a, us)) - 1


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number that holds, as all behind it do; `high` is one."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
