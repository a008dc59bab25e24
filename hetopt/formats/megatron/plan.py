"""A current Megatron-LM run, against its instance, by the table of its flags.

`arguments` says in which forms they are read. Ranks are the GPUs of the hosts in the
order of `hosts`, else of the instance, in Megatron's order tp-cp-ep-dp-pp.

A run is judged in its own precision where that differs from the instance's by the width
of gradients alone. Another kind of 16 bits, products in fp8 that the instance does not
time, or another optimiser are a mismatch. Arguments that change time or memory and that
no plan of ours tells are named, never dropped.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import InstanceError
from ...schema import Instance, Split
from ...schema.fields import fields_of, fields_of_rule
from ...schema.groups import rule_of
from ...text.documents import Document
from ...trainers.megatron import FSDP, OLDER, SHARDED, TABLE
from ...trainers.megatron.stages import EACH, Division
from ...trainers.table import Fields, text_of
from ..importing.asked import Asked, File, commands_first, opened
from ..importing.current import (
    Layout,
    RunAs,
    claim_of,
    cut,
    divisors,
    gpus,
    replicas_of,
    same,
    same_adapters,
    same_optimiser,
    same_world,
)
from ..importing.placing import Claim, Settings
from .arguments import MESHES, arguments
from .values import Arguments, Reading, plain

OPTIONS: Document = {"hosts": str}
TRAINER = "megatron"
#: Names that no other trainer has; so many of them make a run one of Megatron's.
_OF_MEGATRON = {
    *TABLE.names_of({"division", "tp", "pp", "mbs", "gbs", "ep", "layers", "hidden"}),
    *("num-attention-heads", "recompute-granularity", "use-distributed-optimizer"),
    "virtual-pipeline-model-parallel-size",
}
_ENOUGH = 2
#: Names of them that the model has, too, in the settings of a trainer with this one.
_OF_MODELS = {"num-layers", "hidden-size", "num-attention-heads"}
_OF_TRANSFORMERS = "per-device-train-batch-size"
#: Arguments that name a file with further ones.
_CONFIGS = {"config-file", "config", "yaml-cfg"}
#: Of relatives, which become others of the table's.
_READ = TABLE.names | {
    *("precision", "mixed-precision", "grad-sync-dtype", "grad-reduce-in-fp32"),
    *("num-nodes", "devices", "peft", "max-length", "torch-dtype"),
}
#: Fields that process meshes of FlagScale decide.
_OF_MESHES = {"tp", "cp", "ep", "pp", "stage_layers"}
#: Fields that a run has as the instance, and those of a run that tells its layers.
_SAME = (
    *("layers", "mtp_layers", "hidden", "heads", "seq", "intermediate", "kv_heads"),
    *("head_dim", "experts", "moe_intermediate", "experts_per_token", "shared_width"),
    *("q_rank", "kv_rank", "plain_dim", "rotary_dim", "v_dim"),
)
_KINDS = {
    "mtp_layers": ("mtp-num-layers", 0),
    "latent": ("multi-latent-attention", False),
    "mixers": ("layers without attention", False),
}


def claims(path: Path, data: Instance, hosts: str = "") -> Iterator[Claim]:
    """Yield the one plan of the file."""
    (file,) = opened([path])
    read = _read(file)
    yield _claim(_told(read.given, file.place), data, hosts, read.notes)


def asked(files: Sequence[File]) -> Asked | None:
    """Return what the files of a run ask of Megatron-LM; None for those of others."""
    reads = [(n, _read(file)) for n, file in _own(files)]
    if not reads:
        return None
    given: dict[str, str] = {}
    written: dict[str, tuple[int, str]] = {}
    names: dict[str, str] = {}
    for number, read in reads:
        names |= read.names
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
    told = tuple((*notes, *_left(files)))
    return Asked(what, tuple(files), given, written, told, names)


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
    told = _told(asked.values, asked.place)
    return _claim(told, data, hosts or asked.hosts, asked.notes)


def words(settings: Settings, asked: Asked, data: Instance) -> dict[str, str | None]:
    """Return the flags that settings have, None for one that is not there then.

    What a file says already is left as it says it. `InstanceError` for settings with
    which Megatron-LM does not start.
    """
    table = TABLE.with_entries(OLDER[name] for name in OLDER if name in asked.values)
    told = _told(asked.values, asked.place)
    tp, now = settings.tensor_parallel, _fields(told, data)
    fields = fields_of(data, tp)
    wanted = {
        **{"tp": tp, "pp": settings.pipeline_parallel, "cp": settings.context_parallel},
        **{"ep": settings.expert_parallel, "vp": settings.interleave},
        **{"zero_groups": settings.zero_groups, "mbs": settings.micro_batch_size},
        **fields_of_rule(settings.recompute),
        "zero": settings.zero,
        "stage_layers": settings.layers,
        "sequence_parallel": fields["sequence_parallel"] or now["sequence_parallel"],
    }
    if all(now[name] == wanted[name] for name in ("pp", "vp", "stage_layers")):
        wanted["parts"] = now["parts"]
    made: dict[str, str | None] = {}
    for entry in table.entries:
        if wanted.keys().isdisjoint(entry.fields):
            continue
        names = dict.fromkeys([*entry.names, *TABLE.names_of(entry.fields)])
        own = {*entry.fields, *({"pp"} if EACH in entry.names else ())}
        is_same = all(now.get(name) == wanted.get(name) for name in own)
        if not is_same and MESHES in asked.values and not _OF_MESHES.isdisjoint(own):
            raise InstanceError(
                f"{asked.place}: {MESHES}: found, and no single option changes it"
            )
        if is_same:
            made |= {name: asked.values.get(name) for name in names}
        else:
            says = entry.write(fields | wanted)
            made |= names | {name: text_of(value) for name, value in says.items()}
    made |= _steps(settings, asked, data)
    new = {**asked.values, **made}
    after = {name: value for name, value in new.items() if value is not None}
    own = set(TABLE.violations(asked.values))  # which it would not start with either
    if wrong := next((x for x in TABLE.violations(after) if x not in own), None):
        raise InstanceError(
            f"{asked.place}: {wrong}, which Megatron-LM does not start with"
        )
    return made


def choices(asked: Asked, data: Instance) -> dict[str, Sequence[object]]:
    """Return the settings that the run may be given, with their values.

    Stages have equal numbers of layers, or are told theirs where the search divides
    them; layers that predict further tokens are the last stage's. Process meshes of
    FlagScale stay as they are.
    """
    most = max(node.count for node in data.planned_cluster.nodes)
    found: dict[str, Sequence[object]] = {
        "tensor_parallel": divisors(most),
        "recompute": ("none", "selective", "full"),
        "zero": (0, 1),
    }
    if MESHES in asked.values:
        return {name: found[name] for name in ("recompute", "zero")}
    layers = divisors(data.model.layers - data.model.mtp_layers)
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


def _told(given: Mapping[str, str], place: str) -> Reading:
    return Reading(place, given, *TABLE.read(given))


def _fields(told: Reading, data: Instance) -> Fields:
    usual = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "zero_groups": 1, "recompute": "none"}
    made = {name: told.get(name, value) for name, value in usual.items()}
    division, mtp = told.get("division", Division()), data.model.mtp_layers
    whole = data.model.layers
    try:
        parts = division.parts(made["pp"], whole - mtp, mtp)
    except ValueError as error:
        raise InstanceError(f"{told.place}: {error}") from None
    layers, runs, own = cut(parts, made["pp"], whole, told.place, mtp)
    if made["recompute"] == "selective" and (modules := told.get("modules")):
        made |= fields_of_rule(rule_of("+".join(modules)))
    return made | {
        **{"mbs": told.need("mbs"), "zero": _zero(told), "vp": runs},
        "sequence_parallel": told.get("sequence_parallel", False),
        "layers_of_stages": layers,
        "stage_layers": layers if division.is_uneven else None,
        "parts": own,
    }


def _claim(
    told: Reading, data: Instance, hosts: str, before: Sequence[str] = ()
) -> Claim:
    place, ranks = told.place, gpus(data, hosts)
    same_world(told.given, ranks, place)
    if (world := told.get("gpus", len(ranks))) != len(ranks):
        raise InstanceError(
            f"{place}: world_size: found {world}, expected {len(ranks)}, the GPUs of "
            "the hosts; name the hosts of the run (hosts=A,B)"
        )
    stages, tensor, context = (told.get(name, 1) for name in ("pp", "tp", "cp"))
    replicas = replicas_of(len(ranks), stages * tensor * context, place)
    samples = told.need("mbs")
    batch = told.get("gbs", samples * replicas * told.get("steps", 1))
    own = fields_of(data, tensor)
    _same_model(told, batch, data, own)
    if batch % (samples * replicas):
        raise InstanceError(
            f"{place}: global-batch-size: found {batch}, expected a multiple of "
            f"micro-batch-size x {replicas} replicas; correct it"
        )
    run = _fields(told, data)
    layout = Layout(
        layers=run["layers_of_stages"],
        replicas=replicas,
        degree=tensor * context,
        samples=samples,
        micro_batches=batch // (samples * replicas),
        recompute="+".join(run.get("modules") or [run["recompute"]]),
        zero=run["zero"],
        split=Split(context, run["ep"], run["vp"], run["zero_groups"]),
        tells_layers=run["stage_layers"] is not None,
        parts=run["parts"],
    )
    data, notes = _in_precision(told, data, own)
    notes = [*before, *notes, *_of_model(told, own)]
    how = layout, ranks, data, place
    return claim_of(*how, RunAs(TRAINER, "megatron", _timed(told)), notes)


#: What hides behind products, by the argument that asks for it.
_OVERLAPS = {"tp-comm-overlap": "tp", "overlap-moe-expert-parallel-comm": "experts"}
_BACKEND, _FUSED = "moe-flex-dispatcher-backend", "hybridep"


def _timed(told: Reading) -> Document:
    """Return what times depend on besides: what overlaps, and the dispatcher."""
    on = {x for x, value in told.given.items() if value.lower() not in ("false", "0")}
    made: Document = {"overlap": tuple(_OVERLAPS[x] for x in _OVERLAPS if x in on)}
    fused = told.given.get(_BACKEND) == _FUSED
    return made | ({"dispatcher": "flexible"} if fused else {})


def _same_model(told: Reading, batch: int, data: Instance, own: Fields) -> None:
    """`InstanceError` where a run is of another model or batch than the instance."""
    skipped = {"intermediate"} if data.model.experts else set()
    found = {
        x: told.get(x) for x in _SAME if own.get(x) is not None and x not in skipped
    }
    titles = {name: TABLE.name_of(name) for name in found}
    if told.get("layers") is not None:
        for name, (title, usual) in _KINDS.items():
            found[name], titles[name] = told.get(name, usual), title
    found["gbs"], titles["gbs"] = batch, "global-batch-size"
    expected = {titles[name]: own[name] for name in found}
    same(told.place, {titles[x]: value for x, value in found.items()}, expected)


def _of_model(told: Reading, own: Fields) -> Iterator[str]:
    """Yield what the instance's model has, and a run that tells its own has not."""
    if told.get("layers") is None or told.get("heads") is None:
        return
    shares = own.get("kv_heads", own["heads"]) == own["heads"] or told.get("kv_heads")
    for flag, has in (
        ("swiglu", told.get("gated") or not own["gated"]),
        ("group-query-attention", shares or "group-query-attention" in told.given),
    ):
        if not has:
            yield (
                f"the run has no --{flag}, but the instance's model does: if the run "
                "is right, assemble the instance from its config.json"
            )
    if (vocabulary := told.get("vocabulary", own["vocabulary"])) != own["vocabulary"]:
        yield (
            f"vocab-size {vocabulary}: judged with {own['vocabulary']}, the vocabulary "
            "of the instance's model"
        )
    if (tied := told.get("tied", True)) != own["tied"]:
        found, ours = ("one matrix", "two matrices")[:: 1 if tied else -1]
        yield (
            f"embedding and head are {found} in the run "
            f"(--untie-embeddings-and-output-weights) and {ours} in the instance's "
            f"model: judged as {ours}"
        )


def _zero(told: Reading) -> int:
    """Return the stage of ZeRO; weights or gradients that FSDP divides have no plan."""
    stage = told.get("zero", 0)
    flag = next((name for name in _FSDP if name in told.given), None)
    kind = told.given.get(SHARDED)
    if flag in FSDP and kind is None:
        raise InstanceError(
            f"{told.place}: {SHARDED}: found nothing, expected no_shard or optim: "
            "core 0.16 and older take no_shard then, later releases "
            "optim_grads_params; give it"
        )
    if flag is not None and stage > 1:
        kind = kind or "weights"
        raise InstanceError(
            f"{told.place}: {flag}: found {kind}, expected no_shard or optim: weights "
            "or gradients that Megatron-LM's FSDP divides are not supported by "
            "hetopt's plans for it; plan such a run with --for torchtitan"
        )
    return int(stage)


# --- what time and memory depend on --------------------------------------------------


def _in_precision(
    told: Reading, data: Instance, own: Fields
) -> tuple[Instance, list[str]]:
    place = told.place
    if (found := told.get("products", "bf16")) != own["products"]:
        raise InstanceError(
            f"{place}: products of layers: found {found}, expected {own['products']} "
            f"as in the instance; assemble one with -o products={found}"
        )
    optimiser = told.get("optimiser", "adamw")
    hosted = told.get("hosted", False)
    same_optimiser((optimiser, optimiser), data, place, "optimizer", hosted=hosted)
    adapters = told.get("lora_rank") if told.get("tuner") == "lora" else None
    same_adapters(adapters, data, place)
    notes = []
    kind, weighed = told.get("precision"), data.workload.costs.memory.precision
    if kind is None and weighed != "fp32":
        notes.append(
            "found neither --bf16 nor --fp16, so Megatron-LM would use fp32: judged "
            f"in the instance's precision, {weighed or '16 bits'}"
        )
    elif kind is not None and weighed is not None and kind != weighed:
        if {kind, weighed} != {"bf16_mixed", "bf16_fp32_gradients"}:
            raise InstanceError(
                f"{place}: precision: found {kind}, expected {weighed} as in the "
                f"instance; assemble one with -o precision={kind}"
            )
        wide = "fp32" if kind == "bf16_fp32_gradients" else "bf16"
        data = data.in_precision(kind)
        notes.append(
            f"the run adds up and reduces gradients in {wide}: judged with precision "
            f"{kind}, not the instance's {weighed}"
        )
    divided = told.get("sequence_parallel", False)
    if (
        told.get("tp", 1) > 1
        and divided != data.workload.costs.compute.sequence_parallel
    ):
        with_it, without = ("with", "without")[:: 1 if divided else -1]
        notes.append(
            f"the run is {with_it} --sequence-parallel: judged {without}, as in the "
            "instance"
        )
    unread = list(TABLE.not_read(told.given, told.fields))
    if data.workload.costs.compute.calibration is not None:
        read = {f"--{name}" for name in _OVERLAPS} | {f"--{_BACKEND} {_FUSED}"}
        unread = [text for text in unread if text not in read]
    if unread:
        notes.append(f"not read: {', '.join(unread)}")
    return data, notes


_FSDP = (*FSDP, "use-torch-fsdp2")
