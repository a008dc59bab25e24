"""A plan may break rules of the target that its instance runs on."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice, permutations

from ...catalogue import GPU_MAKERS, find_gpu, maker_of
from ...plans import Pipeline, Replica, TrainingPlan
from ...schema import Instance
from ...schema.fields import barred
from ...schema.targets import TARGETS, UNTOLD, Feature, Rule
from .. import Violation
from . import models
from .divided import blocks
from .shapes import apart, features, normal, split_of

#: What needs neither CUDA nor ROCm, or is a plan of every shape.
ANY_MAKER = ("any", "architecture", "executor", "flagscale")
_RULES = ("tensor_parallel", "target", "expert_parallel")
MOST_ORDERS = 10_000  # of replicas, of which one is looked for


def broken(data: Instance, plan: TrainingPlan) -> Iterator[Violation]:
    """Yield the rules of `workload.runs_on` that a plan breaks, each with its words.

    The plan's layers and GPUs are right already. What is `UNTOLD` is no fault of a
    plan: it is the exporter that cannot tell it on.
    """
    target = data.workload.runs_on
    if target == "any":
        return
    for text in bad_degrees(target, data, plan):
        yield Violation("tensor_parallel", "plan", text)
    for text in lacking(target, data, plan):
        if text not in UNTOLD:
            yield Violation("target", "plan", f"{target} does not run {text}")
    node = data.planned_cluster.node
    types = {node[replica.node].gpu for replica in plan.replicas()}
    told = [*bad_cards(target, data, types), *models.unfit(target, data)]
    for text in [*told, *refusals(target, data, plan)]:
        yield Violation("target", "plan", f"{target}: {text}")


def bad_cards(target: str, data: Instance, types: Iterable[str]) -> list[str]:
    """Return in words the GPU types on which the target does not train."""
    others = [] if target in ANY_MAKER else foreign(data, types)
    return [*others, *without_precision(data, types)]


def by_maker(data: Instance) -> list[Instance]:
    """Return the instance on the cards of each maker that its target trains on.

    Cards of makers that the target joins are together, and those of no known maker with
    all others. It is the instance itself where the target joins all of them.
    """
    target = data.workload.runs_on
    found = _groups(target, makers(data, data.planned_cluster.gpus))
    if len(found) < 2:
        return [data]
    parts = [_on_cards_of(data, group) for group in found]
    able = [
        part
        for part in parts
        if not all(bad_cards(target, part, [x]) for x in part.planned_cluster.gpus)
    ]
    return able or [data]


def on_makers_cards(data: Instance, plan: TrainingPlan) -> Instance:
    """Return the part of the instance that plans may move to from `plan`."""
    nodes = {replica.node for replica in plan.replicas()}
    parts = (x for x in by_maker(data) if nodes <= x.planned_cluster.node.keys())
    return next(parts, data)


def _groups(target: str, found: Iterable[str]) -> list[frozenset[str]]:
    """Return the makers whose cards may meet on a target, each once."""
    rules, every = TARGETS[target].rules, frozenset(found)
    if Rule.ONE_MAKER in rules:
        return [frozenset({maker}) for maker in sorted(every)]
    if Rule.FLAGCX in rules:
        joined = every & {*GPU_MAKERS}
        alone = [frozenset({maker}) for maker in sorted(every - joined)]
        return [*filter(None, [joined]), *alone]
    return [every]


def _on_cards_of(data: Instance, group: frozenset[str]) -> Instance:
    cluster = data.planned_cluster
    own = {name: _maker(data, name) for name in cluster.gpus}
    nodes = [node for node in cluster.nodes if own[node.gpu] in {*group, None}]
    return data.model_copy(update={"cluster": cluster.only(nodes)})


def makers(data: Instance, types: Iterable[str]) -> dict[str, list[str]]:
    """Return the known makers of GPU types, sorted, with their types."""
    found: dict[str, list[str]] = {}
    for name in sorted(types):
        if (maker := _maker(data, name)) is not None:
            found.setdefault(maker, []).append(name)
    return dict(sorted(found.items()))


def _maker(data: Instance, name: str) -> str | None:
    return maker_of(data.planned_cluster.gpus[name].card or name)


def used_makers(data: Instance, plan: TrainingPlan) -> dict[str, list[str]]:
    """Return the known makers of a plan's cards, with the types."""
    node = data.planned_cluster.node
    return makers(data, {node[replica.node].gpu for replica in plan.replicas()})


def _apart(target: str, data: Instance, plan: TrainingPlan) -> list[str]:
    """Say in words that a plan joins cards that do not meet on a target."""
    found = used_makers(data, plan)
    if len(_groups(target, found)) < 2:
        return []
    cards = " and ".join(f"{maker} ({', '.join(own)})" for maker, own in found.items())
    return [f"cards of {cards} in one job, which have no common collectives library"]


def without_precision(data: Instance, types: Iterable[str]) -> list[str]:
    """Return in words the GPU types that lack the instance's 16-bit precision."""
    word = str(data.workload.costs.memory.precision).partition("_")[0]
    if word not in ("bf16", "fp16"):
        return []
    gpus = data.planned_cluster.gpus
    cards = ((name, find_gpu(gpus[name].card or name)) for name in sorted(types))
    return [
        f"GPU type {name!r} has no {word}: train in a precision that all cards have "
        "(workload.costs.precision)"
        for name, card in cards
        if card is not None and word not in card.tflops
    ]


def foreign(data: Instance, types: Iterable[str]) -> list[str]:
    """Return in words the GPU types that run neither CUDA nor ROCm."""
    return [
        f"GPU type {name!r} is {maker}'s, which runs neither CUDA nor ROCm"
        for maker, names in makers(data, types).items()
        for name in names
        if maker not in GPU_MAKERS
    ]


def of_target(violation: Violation) -> bool:
    """Return whether a rule is one of `broken`, of the target and not the plan."""
    return violation.rule in _RULES


def lacking(
    target: str,
    data: Instance,
    plan: TrainingPlan,
    without: frozenset[Feature] = frozenset(),
) -> list[str]:
    """Features of the plan that the target has not, or not `without`, in words."""
    lacks = features(data, plan) - (TARGETS[target].supports - without)
    return [str(one.value) for one in Feature if one in lacks]


def refusals(
    target: str, data: Instance, plan: TrainingPlan, besides: Rule | None = None
) -> list[str]:
    """Return further rules of the target that a plan breaks, in words.

    The plan has no features but the target's; a rule `besides` is not asked for.
    """
    rules = TARGETS[target].rules - {besides}
    return list(_faults(rules, data, plan)) if rules else []


def _faults(
    rules: frozenset[Rule], data: Instance, plan: TrainingPlan
) -> Iterator[str]:
    """Yield in words the rules that a plan breaks, in their order.

    Those of one pipeline are asked of that into which a plan of a grid is merged.
    """
    pipeline, tied = normal(plan).pipelines[0], data.model.tied_embeddings
    count, stages = pipeline.micro_batches, pipeline.stages
    if Rule.FILLED in rules and count < len(stages):
        yield (
            f"{count} micro-batches for {len(stages)} stages, expected at least as many"
        )
    if Rule.TIED_TOGETHER in rules and tied and len(stages) > 1:
        yield "the tied embedding and head are on different stages"
    first, last = (stages[j].replicas[0].degree for j in (0, -1))
    if Rule.TIED_ALIKE in rules and tied and first != last:
        yield (
            "embedding and head are tied, and the first and the last stage have "
            f"tensor-parallel degrees {first} and {last}"
        )
    if Rule.NEIGHBOURS in rules:
        for host in hosts_apart(together(pipeline)):
            yield f"host {host!r} serves stages or replicas that are not neighbours"
    if Rule.FURTHER_LAST in rules and (mtp := data.model.mtp_layers):
        further = {data.model.layers - mtp, data.model.layers - 1}
        held = pipeline.held(split_of(data, plan).interleave)
        if not any(further <= {*runs[-1]} for runs in held):
            yield (
                "layers that predict further tokens are in several virtual stages, or "
                "not in the last of their GPUs"
            )
    if Rule.WHOLE_SHARES in rules:
        size = pipeline.micro_batch_size
        for n in sorted({len(stage.replicas) for stage in stages}):
            if size % n:
                yield f"a micro-batch of {size} is not divisible by {n} replicas"
    if Rule.HANDED_ON in rules and apart(plan) is None:
        yield "replicas send their samples to replicas that take another number"
    if Rule.TOGETHER in rules:
        yield from _alike(data, plan)
    zero = data.workload.costs.updates.zero if plan.zero is None else plan.zero
    orders = {_order(data, one) for one in plan.pipelines}
    # FSDP gathers weights and sums gradients at every micro-batch of every rank.
    if Rule.IN_STEP in rules and zero > 1 and len(orders) > 1:
        yield (
            f"replicas share states (ZeRO {zero}), but differ in micro-batches or "
            "recomputation"
        )
    for rule, one in ((Rule.ONE_MAKER, "megatron"), (Rule.FLAGCX, "flagscale")):
        if rule in rules:
            yield from _apart(one, data, plan)


def bad_degrees(target: str, data: Instance, plan: TrainingPlan) -> Iterator[str]:
    """Yield in words the degrees of the plan that the target does not run."""
    split = split_of(data, plan)
    for gpus in sorted({replica.degree for replica in plan.replicas()}):
        t, rest = divmod(gpus, split.context)  # another rule is broken with a rest
        if not rest:
            yield from barred(target, data, t, split)


def hosts_apart(pipeline: Pipeline) -> list[str]:
    """Hosts whose ranks are not neighbours, sorted."""
    return _parted(r.node for stage in pipeline.stages for r in stage.replicas)


def _parted(held: Iterable[str]) -> list[str]:
    runs = [host for host, _ in groupby(held)]
    return sorted({host for host in runs if runs.count(host) > 1})


def together(pipeline: Pipeline) -> Pipeline:
    """The pipeline with its replicas in an order in which hosts serve neighbours.

    Some launchers give a host a run of ranks: stage by stage, in each the replicas in
    order. It is as it was where stages have different numbers of replicas, and where
    none of the first `MOST_ORDERS` will do.
    """
    rows = [stage.replicas for stage in pipeline.stages]
    if len(set(map(len, rows))) > 1 or not hosts_apart(pipeline):
        return pipeline
    alike: dict[tuple[str, ...], list[tuple[Replica, ...]]] = {}
    for column in zip(*rows, strict=True):
        alike.setdefault(tuple(replica.node for replica in column), []).append(column)
    for order in islice(permutations(sorted(alike)), MOST_ORDERS):
        columns = [column for hosts in order for column in alike[hosts]]
        rows = [*zip(*columns, strict=True)]
        if not _parted(replica.node for row in rows for replica in row):
            stages = (
                stage.model_copy(update={"replicas": row})
                for stage, row in zip(pipeline.stages, rows, strict=True)
            )
            return pipeline.model_copy(update={"stages": tuple(stages)})
    return pipeline


def _alike(data: Instance, plan: TrainingPlan) -> list[str]:
    """Return the pipelines that meet in every layer but differ in order.

    Interleaved, a stage runs other layers than those that its numbers say, so that one
    without experts may have some.
    """
    split = split_of(data, plan)
    if (e := split.experts) == 1:
        return []
    made = list(blocks(plan, e))
    held = sum(len(block.gpus) for block in made)
    if split.interleave > 1 and held < sum(r.degree for r in plan.replicas()):
        return [
            f"the GPUs of interleaved stages are not a multiple of the {e} that share "
            "experts"
        ]
    return [
        f"GPUs of pipelines {' and '.join(map(str, mates))} share experts, but differ "
        "in cuts, micro-batches or recomputation"
        for mates in sorted({block.pipelines for block in made})
        if len({_order(data, plan.pipelines[p]) for p in mates}) > 1
    ]


def _order(data: Instance, pipeline: Pipeline) -> tuple[object, ...]:
    rule = data.workload.costs.compute.recompute
    rows = ((stage.layers, stage.recompute or rule) for stage in pipeline.stages)
    return pipeline.micro_batches, *rows
