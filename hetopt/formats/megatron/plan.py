"""Arguments of a Megatron-LM run that goes on, against its instance.

`arguments` says in which forms they are read. Ranks are the GPUs of the hosts in the
order of `hosts`, else of the instance, in Megatron's order tp-cp-ep-dp-pp.
Layers lie as `--pipeline-model-parallel-layout`, `--decoder-first-pipeline-num-layers`
and `-last` tell, else equally; interleaved ones by their layout or in equal runs.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import InstanceError, quoted
from ...schema import Instance, Recompute, Split
from ..documents import Options
from ..importing.asked import Asked, File, commands_first, opened
from ..importing.current import (
    Layout,
    claim_of,
    cut,
    divisors,
    gpus,
    in_runs,
    replicas_of,
    same,
    same_world,
)
from ..importing.placing import Claim, Settings
from ..runs.megatron import unrolled
from . import meanings
from .arguments import Arguments, arguments, plain
from .launch import layout_of

OPTIONS: Options = {"hosts": str}
TRAINER = "megatron"
_RECOMPUTE: dict[str | None, Recompute] = {
    None: "none",
    "full": "full",
    "selective": "selective",
}
_GROUPS = "num-distributed-optimizer-instances"
_EACH = "num-layers-per-virtual-pipeline-stage"
_RUNS = "num-virtual-stages-per-pipeline-rank"
#: Arguments that say how many layers each stage has.
_LAYOUT = "pipeline-model-parallel-layout"
_UNEVEN = frozenset(
    {
        _LAYOUT,
        "decoder-first-pipeline-num-layers",
        "decoder-last-pipeline-num-layers",
    }
)
#: Names that no other trainer has; so many of them make a run one of Megatron's.
_OF_MEGATRON = _UNEVEN | {
    *("tensor-model-parallel-size", "pipeline-model-parallel-size"),
    *("micro-batch-size", "global-batch-size", "num-layers", "hidden-size"),
    *("num-attention-heads", "recompute-granularity", "use-distributed-optimizer"),
    *("expert-model-parallel-size", "virtual-pipeline-model-parallel-size"),
}
_ENOUGH = 2
#: Names of them that the model has, too, in the settings of a trainer with this one.
_OF_MODELS = {"num-layers", "hidden-size", "num-attention-heads"}
_OF_TRANSFORMERS = "per-device-train-batch-size"
_FSDP = ("use-megatron-fsdp", "use-custom-fsdp", "use-torch-fsdp2")
#: Arguments of layers that have no attention, or not in all of them.
_HYBRID = ("is-hybrid-model", "hybrid-override-pattern", "hybrid-layer-pattern")
#: Names of Megatron-DeepSpeed and of Megatron-LM up to 2022.
_STAGE = "zero-stage"
_CHECKPOINTING = "checkpoint-activations"
_RECOMPUTING = ("recompute-granularity", "recompute-method", "recompute-num-layers")
#: Arguments that name a file with further ones.
_CONFIGS = {"config-file", "config", "yaml-cfg"}
#: Arguments that are read, but for those that `meanings` names where they stand.
_READ = _UNEVEN | {
    *("tensor-model-parallel-size", "pipeline-model-parallel-size", _EACH, _RUNS),
    *("context-parallel-size", "expert-model-parallel-size", _GROUPS),
    *("micro-batch-size", "global-batch-size", "world-size", "sequence-parallel"),
    *("num-layers", "hidden-size", "num-attention-heads", "seq-length"),
    *("ffn-hidden-size", "group-query-attention", "num-query-groups", "kv-channels"),
    *("num-experts", "moe-ffn-hidden-size", "moe-router-topk"),
    "moe-shared-expert-intermediate-size",
    *("mtp-num-layers", "recompute-granularity", "recompute-method"),
    "gradient-accumulation-steps",
    *("recompute-num-layers", "recompute-activations", "use-distributed-optimizer"),
    *("bf16", "fp16", "fp8-format", "fp4-format", "fp8-recipe", "optimizer"),
    *("grad-reduce-in-bf16", "tuner-type", "lora-rank", "optimizer-cpu-offload"),
    *("swiglu", "untie-embeddings-and-output-weights", "vocab-size", *_FSDP, *_HYBRID),
    *("multi-latent-attention", "data-parallel-sharding-strategy"),
    # Of NeMo, Megatron-Bridge and ms-swift, which become others of these.
    *("precision", "mixed-precision", "grad-sync-dtype", "grad-reduce-in-fp32"),
    *(
        "num-nodes",
        "devices",
        "peft",
        "max-length",
        "torch-dtype",
        "data-parallel-size",
    ),
}


def claims(path: Path, data: Instance, hosts: str = "") -> Iterator[Claim]:
    """Yield the one plan of the file, which claims no time."""
    (file,) = opened([path])
    read = _read(file)
    yield _claim(read.given, file.place, data, hosts, read.notes)


def asked(files: Sequence[File]) -> Asked | None:
    """Return what the files of a run ask of Megatron-LM; None for those of others."""
    reads = [(n, _read(file)) for n, file in _own(files)]
    if not reads:
        return None
    given: dict[str, str] = {}
    written: dict[str, tuple[int, str]] = {}
    for number, read in reads:
        for name, key in read.written.items():
            if name in _READ:
                written.setdefault(name, (number, key))
            if name in read.given:
                given.setdefault(name, read.given[name])
    for _, read in reads:  # what a tool has where no file tells it
        given = {**read.given, **given}
    notes = [
        note
        for number, read in reads
        for note in (*files[number].form.notes, *read.notes)
    ]
    what = ", ".join(dict.fromkeys(read.what for _, read in reads))
    return Asked(what, tuple(files), given, written, tuple((*notes, *_left(files))))


def _read(file: File) -> Arguments:
    """Return the arguments of a file; `InstanceError` where one has two values."""
    read = arguments(file.form, file.place)
    for name, message in read.conflicts.items():
        if name in _READ:
            raise InstanceError(message)
    return read


def _own(files: Sequence[File]) -> Iterator[tuple[int, File]]:
    """Yield the files of Megatron-LM's names; a command goes before what it names."""
    for number, file in commands_first(files):
        names = {plain(key) for key in file.form.values}
        names -= _OF_MODELS if _OF_TRANSFORMERS in names else set()
        if len(names & _OF_MEGATRON) >= _ENOUGH:
            yield number, file


def _left(files: Sequence[File]) -> Iterator[str]:
    """Yield that a configuration which a command names is not read."""
    given = {"", *(file.source.path.name for file in files)}
    for file in files:
        for key, value in file.form.values.items():
            name = (str(value).split() or [""])[0]
            is_named = file.form.is_command and plain(key) in _CONFIGS
            if is_named and Path(name).name not in given:
                yield f"--{key} {name}: not read; give it, too: --from {name}"


def claimed(asked: Asked, data: Instance, hosts: str = "") -> Claim:
    """Return the run as a plan of an instance."""
    return _claim(asked.values, asked.place, data, hosts, asked.notes)


def words(settings: Settings, asked: Asked, data: Instance) -> dict[str, str | None]:
    """Return the flags that settings have."""
    stages, runs = settings.pipeline_parallel, settings.interleave
    full, none = settings.recompute == "full", settings.recompute == "none"
    each = data.model.layers // (stages * runs)
    made = {
        "tensor-model-parallel-size": str(settings.tensor_parallel),
        "pipeline-model-parallel-size": str(stages),
        "context-parallel-size": _above_one(settings.context_parallel),
        "expert-model-parallel-size": _above_one(settings.expert_parallel),
        _GROUPS: _above_one(settings.zero_groups),
        "micro-batch-size": str(settings.micro_batch_size),
        **_steps(settings, asked, data),
        "recompute-granularity": None if none else settings.recompute,
        "recompute-method": "uniform" if full else None,
        "recompute-num-layers": "1" if full else None,
        "use-distributed-optimizer": "" if settings.zero else None,
        "sequence-parallel": asked.values.get("sequence-parallel"),
    }
    if settings.tensor_parallel > 1 and data.workload.costs.compute.sequence_parallel:
        made["sequence-parallel"] = ""
    if "deepspeed" in asked.values:
        made |= {_STAGE: str(settings.zero), "use-distributed-optimizer": None}
    if _CHECKPOINTING in asked.values:
        made[_CHECKPOINTING] = "" if full else None
        if full:
            made |= dict.fromkeys(_RECOMPUTING)
    made |= dict.fromkeys(_UNEVEN)
    if settings.layers is not None:
        held = in_runs(settings.layers, settings.interleave)
        made[_LAYOUT] = layout_of(held)
    if _EACH in asked.values:
        return made | {_EACH: str(each) if runs > 1 else None}
    return made | {_RUNS: _above_one(runs)}


def choices(asked: Asked, data: Instance) -> dict[str, Sequence[object]]:
    """Return the settings that the run may be given, with their values.

    Stages have equal numbers of layers, or are told theirs where the search divides
    them; layers that predict further tokens stay where they are.
    """
    most = max(node.count for node in data.planned_cluster.nodes)
    found: dict[str, Sequence[object]] = {
        "tensor_parallel": divisors(most),
        "recompute": ("none", "selective", "full"),
        "zero": (0, 1),
    }
    if data.model.mtp_layers:
        return found
    layers = divisors(data.model.layers)
    return found | {
        "pipeline_parallel": layers,
        "interleave": layers,
        "layers": (None,),
    }


def _steps(settings: Settings, asked: Asked, data: Instance) -> dict[str, str | None]:
    """Micro-batches of a replica, where a run tells these in place of the batch."""
    name = "gradient-accumulation-steps"
    if name not in asked.values or "global-batch-size" in asked.values:
        return {}
    world = sum(node.count for node in data.planned_cluster.nodes)
    replicas = max(1, world // math.prod(settings[:3]))
    return {
        name: str(data.workload.global_batch // replicas // settings.micro_batch_size)
    }


def _above_one(number: int) -> str | None:
    return str(number) if number > 1 else None


def _claim(
    given: Mapping[str, str],
    place: str,
    data: Instance,
    hosts: str,
    before: Sequence[str] = (),
) -> Claim:
    ranks = gpus(data, hosts)
    same_world(given, ranks, place)
    world = _number(given, "world-size", place, len(ranks))
    if world != len(ranks):
        raise InstanceError(
            f"{place}: world_size: found {world}, expected {len(ranks)}, the GPUs of "
            "the hosts; name the hosts of the run (hosts=A,B)"
        )
    stages, degree = (
        _number(given, f"{name}-model-parallel-size", place, 1)
        for name in ("pipeline", "tensor")
    )
    context, experts = (
        _number(given, name, place, 1)
        for name in ("context-parallel-size", "expert-model-parallel-size")
    )
    groups = _number(given, _GROUPS, place, 1)
    degree *= context
    replicas = replicas_of(len(ranks), stages * degree, place)
    samples = _number(given, "micro-batch-size", place)
    steps = _number(given, "gradient-accumulation-steps", place, 1)
    batch = _number(given, "global-batch-size", place, samples * replicas * steps)
    _same_model(given, batch, data, place)
    if batch % (samples * replicas):
        raise InstanceError(
            f"{place}: global-batch-size: found {batch}, expected a multiple of "
            f"micro-batch-size x {replicas} replicas; correct it"
        )
    parts = _parts(given, stages, data.model.layers - data.model.mtp_layers, place)
    if _LAYOUT not in given:  # layers that predict further tokens are the last
        parts = (*parts[:-1], parts[-1] + data.model.mtp_layers)
    layers, runs = cut(parts, stages, data.model.layers, place)
    layout = Layout(
        layers=layers,
        replicas=replicas,
        degree=degree,
        samples=samples,
        micro_batches=batch // (samples * replicas),
        recompute=_RECOMPUTE[_recompute(given, place)],
        zero=_zero(given, place),
        split=Split(context, experts, runs, groups),
        tells_layers=not _UNEVEN.isdisjoint(given),
    )
    data, notes = meanings.in_precision(given, data, place)
    notes = [*before, *notes, *_of_model(given, data)]
    how = layout, ranks, data, place
    return claim_of(*how, trainer=TRAINER, framework="megatron", notes=notes)


def _same_model(
    given: Mapping[str, str], batch: int, data: Instance, place: str
) -> None:
    model, workload = data.model, data.workload
    names = {
        "num-layers": model.layers - model.mtp_layers,
        "mtp-num-layers": model.mtp_layers,
        "hidden-size": model.hidden,
        "num-attention-heads": model.heads,
        "seq-length": workload.sequence_length,
    }
    if model.intermediate is not None and not model.experts:
        names["ffn-hidden-size"] = model.intermediate
    if "group-query-attention" in given:
        names["num-query-groups"] = model.kv_heads or model.heads
    if model.common_attention:
        names["kv-channels"] = model.key_dim
    names["num-experts"] = model.experts or 0
    if model.experts:
        width = model.expert_intermediate or model.mlp_width
        names["moe-ffn-hidden-size"] = width
        names["moe-router-topk"] = model.active_experts or 0
        names["moe-shared-expert-intermediate-size"] = model.shared_experts * width
    told = {name: _number(given, name, place) for name in names if name in given}
    if "num-layers" in given:
        told["mtp-num-layers"] = _number(given, "mtp-num-layers", place, 0)
    expected = {**names, "global-batch-size": workload.global_batch}
    same(place, {**told, "global-batch-size": batch}, expected)
    has_mixers = model.mamba is not None or model.mamba1 is not None
    kinds: dict[str, tuple[bool, bool]] = {
        "multi-latent-attention": (
            "multi-latent-attention" in given,
            bool(model.latent),
        ),
        "layers without attention": (not {*_HYBRID}.isdisjoint(given), has_mixers),
    }
    if "num-layers" in given:
        same(
            place,
            {name: found for name, (found, _) in kinds.items()},
            {name: own for name, (_, own) in kinds.items()},
        )


def _of_model(given: Mapping[str, str], data: Instance) -> Iterator[str]:
    """Yield what the instance's model has, and a run that tells its own has not."""
    model = data.model
    if "num-layers" not in given or "num-attention-heads" not in given:
        return
    fewer = model.common_attention and (model.kv_heads or model.heads) != model.heads
    shares = given.get("num-query-groups", "1") != "1"
    gates = any("glu" in word for word in (*given, given.get("activation", "")))
    for flag, is_own, has in (
        ("swiglu", model.gated, gates),
        ("group-query-attention", fewer, shares or "group-query-attention" in given),
    ):
        if is_own and not has:
            yield (
                f"the run is without --{flag}, which the instance's model has: "
                "assemble one of the run's config.json, if that is so"
            )
    vocabulary = given.get("vocab-size", str(model.vocabulary))
    if vocabulary != str(model.vocabulary):
        yield (
            f"vocab-size {vocabulary}: judged with {model.vocabulary}, the vocabulary "
            "of the instance's model"
        )
    untied = "untie-embeddings-and-output-weights" in given
    if untied == model.tied_embeddings:
        ways = ("two matrices", "one matrix")
        found, own = ways if untied else ways[::-1]
        yield (
            f"embedding and head are {found} in the run "
            f"(--untie-embeddings-and-output-weights) and {own} in the instance's "
            f"model: judged as {own}"
        )


def _zero(given: Mapping[str, str], place: str) -> int:
    """Return the stage of ZeRO; Megatron-DeepSpeed is told it by a flag of its own.

    Weights or gradients that FSDP divides have no plan for Megatron-LM here.
    """
    if flag := next((name for name in _FSDP if name in given), None):
        kind = "optim_grads_params"
        if flag != "use-torch-fsdp2":
            kind = given.get("data-parallel-sharding-strategy", "no_shard")
        if kind not in ("no_shard", "optim"):
            raise InstanceError(
                f"{place}: {flag}: found {kind}, expected no_shard or optim: weights "
                "or gradients that Megatron-LM's FSDP divides are not supported by "
                "hetopt's plans for it; plan such a run with --for torchtitan"
            )
        return int(kind == "optim")
    if "deepspeed" not in given or "use-distributed-optimizer" in given:
        return int("use-distributed-optimizer" in given)
    return _number(given, _STAGE, place, 0)


def _recompute(given: Mapping[str, str], place: str) -> str | None:
    if "recompute-activations" in given:
        return "selective"
    if _CHECKPOINTING in given:
        return "full"
    found = given.get("recompute-granularity")
    if found not in _RECOMPUTE:
        raise InstanceError(
            f"{place}: recompute-granularity: found {found!r}, expected full "
            "or selective"
        )
    return found


def _parts(
    given: Mapping[str, str], stages: int, layers: int, place: str
) -> tuple[int, ...]:
    """Layers of each part of the model, in their order: runs of stages, or stages."""
    layout = given.get(_LAYOUT)
    if layout is not None:
        held = [len(re.findall("[tm]", one)) for one in unrolled(layout).split("|")]
        if 0 in held:
            raise InstanceError(
                f"{place}: {_LAYOUT}: found {quoted(layout)}, in which part "
                f"{held.index(0)} has no layer (embedding or loss alone), expected one "
                "in each: plans here have no such stage"
            )
        return tuple(held)
    parts = stages * _number(given, _RUNS, place, 1)
    if _EACH in given:
        parts = layers // max(1, _number(given, _EACH, place))
    if parts == stages:
        return _ends(given, stages, layers, place)
    if not parts or layers % parts:
        raise InstanceError(
            f"{place}: found {parts} parts of {layers} layers, expected parts of as "
            "many layers; tell the layout"
        )
    return (layers // parts,) * parts


def _ends(
    given: Mapping[str, str], stages: int, layers: int, place: str
) -> tuple[int, ...]:
    """Return the layers of the stages where the first and the last may be told."""
    first, last = (
        _number(given, f"decoder-{end}-pipeline-num-layers", place, 0)
        for end in ("first", "last")
    )
    between = stages - bool(first) - bool(last)
    each, over = divmod(layers - first - last, between) if between else (0, 0)
    if over or each < 0:
        raise InstanceError(
            f"{place}: {layers - first - last} layers are not divisible by {between} "
            "stages; tell the layout"
        )
    ends = [[first] if first else [], [last] if last else []]
    return (*ends[0], *[each] * between, *ends[1])


def _number(
    given: Mapping[str, str], name: str, place: str, default: int | None = None
) -> int:
    if name not in given and default is not None:
        return default
    if name not in given:
        raise InstanceError(
            f"{place}: {name}: found nothing, expected a whole number; give the file, "
            "or the command, that tells it, too: --from FILE"
        )
    text = given[name]
    if not re.fullmatch(r"[0-9]{1,12}", text):
        remedy = "paste the expanded command" if "$" in text else "correct it"
        raise InstanceError(
            f"{place}: {name}: found {text!r}, expected a whole number; {remedy}"
        )
    return int(text)
