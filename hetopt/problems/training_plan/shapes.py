"""Shapes of plans: features that they use, and one form for equal plans."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...costs import CostTable
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import CostSettings, Instance, ModelSpec, Split
from ...schema.groups import FIELDS
from ...schema.targets import UNTOLD, Feature


def normal(plan: TrainingPlan) -> TrainingPlan:
    """Return the plan with those pipelines made one that cut and count alike.

    GPUs of a replica are sorted: their order says nothing. That of replicas is the
    plan's, as groups of ZeRO and blocks of experts follow it. Two plans of one normal
    form run the same layers on the same GPUs with the same samples, and replicas of one
    place in their stages belong together.
    """
    alike: dict[object, list[Pipeline]] = {}
    for pipeline in map(_sort, plan.pipelines):
        alike.setdefault((_cuts(pipeline), pipeline.micro_batches), []).append(pipeline)
    return TrainingPlan(pipelines=tuple(map(merge, alike.values())))


def apart(plan: TrainingPlan) -> list[Pipeline] | None:
    """The plan as pipelines of one replica a stage, in order of their first GPUs.

    None where there are none: stages have different numbers of replicas, or a replica
    hands its samples on to one that takes another number.
    """
    found = []
    for pipeline in plan.pipelines:
        rows = [stage.replicas for stage in _sort(pipeline).stages]
        if len(set(map(len, rows))) > 1:
            return None
        for place_ in zip(*rows, strict=True):
            samples = {replica.samples for replica in place_}
            if len(samples) > 1:
                return None
            found.append(
                Pipeline(
                    micro_batches=pipeline.micro_batches,
                    micro_batch_size=samples.pop(),
                    stages=tuple(
                        _on(stage, (replica,))
                        for stage, replica in zip(pipeline.stages, place_, strict=True)
                    ),
                )
            )
    return sorted(found, key=_key)


def features(data: Instance, plan: TrainingPlan) -> frozenset[Feature]:
    """Return the features that a plan uses, with the settings that it chooses."""
    made, context = normal(plan), split_of(data, plan).context
    wide = (replica.degree > context for replica in plan.replicas())
    asked = {
        Feature.DIFFERENT_CUTS: len({_cuts(one) for one in made.pipelines}) > 1,
        Feature.DIFFERENT_BATCHES: len({x.micro_batches for x in made.pipelines}) > 1,
        Feature.TENSOR_PARALLEL: any(wide),
    }
    each = (_of_pipeline(data, pipeline) for pipeline in made.pipelines)
    return _used(asked).union(*each, _of_settings(data, plan), of_instance(data))


def _used(asked: Mapping[Feature, bool]) -> frozenset[Feature]:
    return frozenset(feature for feature, uses in asked.items() if uses)


_OPTIMISERS = ("sgd", "muon", "adafactor", "adamw_8bit")
_ZERO = (Feature.ZERO_1, Feature.ZERO_2, Feature.ZERO_3)


def of_instance(data: Instance) -> frozenset[Feature]:
    """Return the features that the model and the settings ask of any plan."""
    costs = data.workload.costs
    chosen = costs.memory.optimiser
    asked = {
        Feature.LISTED_PARAMETERS: _only_counted(data),
        Feature.SINGLE_PRECISION: costs.memory.precision == "fp32",
        Feature.FLOAT16: costs.memory.precision == "fp16_mixed",
        Feature.BFLOAT16: costs.memory.precision
        in ("bf16_mixed", "bf16_fp32_gradients"),
        Feature.NO_MASTER: costs.memory.precision == "bf16",
        Feature.LORA: costs.updates.lora is not None,
        Feature.QUANTISED: bool(costs.updates.lora and costs.updates.lora.weight_bits),
        Feature.HOSTED_STATES: costs.memory.hosts_update,
        **{Feature[name.upper()]: name == chosen for name in _OPTIMISERS},
    }
    return _used(asked).union(
        of_layers(data.model, data.workload.sequence_length),
        frozenset.intersection(*(of_states(costs, x) for x in data.workload.zeros)),
        frozenset.intersection(*(of_split(split) for split in data.workload.splits)),
    )


def never_run(data: Instance) -> list[Feature]:
    """Return the features that any plan needs and the target's program lacks."""
    lacks = of_instance(data) - UNTOLD - data.workload.target.supports
    return [feature for feature in Feature if feature in lacks]


def of_states(costs: CostSettings, zero: int) -> frozenset[Feature]:
    """Return the features that a stage of ZeRO adds, by its states and their place."""
    lora = costs.updates.lora
    asked = {
        Feature.DIVIDED_BYTES: zero == 3 and lora is not None and lora.weight_bits == 8,
        Feature.DIVIDED_OTHERS: zero > 0 and costs.memory.optimiser != "adamw",
        Feature.HOSTED_UNDIVIDED: zero == 0 and costs.memory.hosts_update,
        Feature.WIDE_UNDIVIDED: zero == 0
        and costs.memory.precision == "bf16_fp32_gradients",
    }
    return _used(asked)


def of_layers(model: ModelSpec, sequence_length: int) -> frozenset[Feature]:
    """Return the features that layers beside attention and an MLP ask.

    A window of all of a sequence is none.
    """
    parts = {part for kind in model.kinds for part in kind}
    sparse = ["experts" in kind for kind in model.kinds]
    many = {len(kind) - kind.count("further") for kind in model.kinds}
    seen = model.window or 0
    asked = {
        Feature.LATENT: model.latent is not None,
        Feature.MAMBA: "mamba" in parts,
        Feature.MAMBA_1: "mamba1" in parts,
        Feature.LINEAR: "linear" in parts,
        Feature.CONVOLUTIONS: "convolution" in parts,
        Feature.INDEXED: model.indexer is not None,
        Feature.GATED_ATTENTION: model.gated_attention,
        Feature.FEWER_KEYS: any(model.of(x).kv_products < 2 for x in model.kinds),
        Feature.VALUE_WIDTH: model.value_dim not in (None, model.key_dim),
        Feature.NARROW_EXPERTS: model.expert_hidden is not None,
        Feature.UNLIKE_WIDTHS: any(kind.shape for kind in model.kinds),
        Feature.MORE_PARTS: max(many) > 2,
        Feature.LAYER_TABLES: model.layer_table > 0,
        Feature.WINDOWS: "window" in parts and seen < sequence_length,
        Feature.PLACED_EXPERTS: sparse != sorted(sparse),
        Feature.SINGLE_PARTS: min(many) < 2,
        Feature.FURTHER_TOKENS: model.mtp_layers > 0,
        Feature.MORE_NORMS: model.qk_norm,
        Feature.POST_NORMS: model.post_norm,
    }
    return _used(asked)


def of_choice(zero: int, *rules: str) -> frozenset[Feature]:
    """Return the features that a stage of ZeRO and rules of recomputation ask."""
    asked = {
        Feature.MIXED_RECOMPUTE: len(set(rules)) > 1,
        Feature.SELECTIVE: "selective" in rules,
        Feature.NOT_RECOMPUTED: "none" in rules,
    }
    return _used(asked) | ({_ZERO[zero - 1]} if zero else frozenset())


def split_of(data: Instance, plan: TrainingPlan) -> Split:
    """Return the split of a plan: sequences, experts and the layers of its stages."""
    costs = data.workload.costs
    return Split(*(getattr(plan, field) or costs.value(field) for field in FIELDS))


def at(plan: TrainingPlan, j: int) -> list[Replica]:
    """Return the replicas of a stage of all pipelines: the first (0), the last (-1)."""
    return [r for pipeline in plan.pipelines for r in pipeline.stages[j].replicas]


def holders(plan: TrainingPlan, layers: int) -> list[int]:
    """Return the replicas that hold each of so many layers."""
    held = Counter[int]()
    for stage in plan.stages():
        for layer in stage.span:
            held[layer] += len(stage.replicas)
    return [held[layer] for layer in range(layers)]


def table_of(data: Instance, plan: TrainingPlan) -> CostTable:
    """Return the cost table under the settings of a plan, on the GPUs that it uses."""
    table = CostTable(data, plan.gpus_by_node)
    return table.under(zero=plan.zero, split=split_of(data, plan))


def of_split(split: Split) -> frozenset[Feature]:
    """Return the features that a split asks."""
    asked = {
        Feature.CONTEXT_PARALLEL: split.context > 1,
        Feature.EXPERT_PARALLEL: split.experts > 1,
        Feature.INTERLEAVED: split.interleave > 1,
        Feature.ZERO_GROUPS: split.groups > 1,
    }
    return _used(asked)


def _of_settings(data: Instance, plan: TrainingPlan) -> frozenset[Feature]:
    costs = data.workload.costs
    rules = {stage.recompute or costs.compute.recompute for stage in plan.stages()}
    zero = costs.updates.zero if plan.zero is None else plan.zero
    asked = of_choice(zero, *rules) | of_states(costs, zero)
    return asked | of_split(split_of(data, plan))


def _only_counted(data: Instance) -> bool:
    model = data.model
    whole = model.parameters_per_layer
    counted = whole is not None and whole != 12 * model.hidden**2
    return model.layer_parameters is not None or counted


def place(gpu: str) -> tuple[str, int]:
    """Node and index of a GPU."""
    node, _, index = gpu.rpartition(":")
    return node, int(index)


def _of_pipeline(data: Instance, pipeline: Pipeline) -> frozenset[Feature]:
    node, stages = data.planned_cluster.node, pipeline.stages
    degrees = [{replica.degree for replica in stage.replicas} for stage in stages]
    types = [{node[r.node].gpu for r in stage.replicas} for stage in stages]
    samples = [{replica.samples for replica in stage.replicas} for stage in stages]
    asked = {
        Feature.PIPELINES: len(stages) > 1,
        Feature.UNEVEN_LAYERS: len({len(stage.span) for stage in stages}) > 1,
        Feature.TOLD_LAYOUT: any(x.runs or not x.span for x in stages),
        Feature.MIXED_DEGREES_IN_STAGE: max(map(len, degrees)) > 1,
        Feature.MIXED_DEGREES: any(degree != degrees[0] for degree in degrees),
        Feature.MIXED_TYPES_IN_STAGE: max(map(len, types)) > 1,
        Feature.MIXED_TYPES: any(kinds != types[0] for kinds in types),
        Feature.MIXED_REPLICAS: len({len(stage.replicas) for stage in stages}) > 1,
        Feature.UNEQUAL_SAMPLES: max(map(len, samples)) > 1,
    }
    return _used(asked)


def merge(pipelines: Sequence[Pipeline]) -> Pipeline:
    """Return one pipeline of the replicas of several that cut and count alike."""
    rows = [
        [replica for pipeline in pipelines for replica in pipeline.stages[j].replicas]
        for j in range(len(pipelines[0].stages))
    ]
    return Pipeline(
        micro_batches=pipelines[0].micro_batches,
        micro_batch_size=sum(pipeline.micro_batch_size for pipeline in pipelines),
        stages=tuple(
            _on(stage, tuple(row))
            for stage, row in zip(pipelines[0].stages, rows, strict=True)
        ),
    )


def _on(stage: Stage, replicas: tuple[Replica, ...]) -> Stage:
    return Stage(layers=stage.layers, replicas=replicas, runs=stage.runs)


def _cuts(pipeline: Pipeline) -> tuple[object, ...]:
    return tuple((stage.layers, stage.runs) for stage in pipeline.stages)


def _sort(pipeline: Pipeline) -> Pipeline:
    stages = tuple(
        _on(stage, tuple(map(_order, stage.replicas))) for stage in pipeline.stages
    )
    return pipeline.model_copy(update={"stages": stages})


def _order(replica: Replica) -> Replica:
    gpus = tuple(sorted(replica.gpus, key=place))
    return Replica(gpus=gpus, samples=replica.samples)


def _key(pipeline: Pipeline) -> tuple[str, int]:
    return place(pipeline.stages[0].replicas[0].gpus[0])
