"""Configuration of a current torchtitan run, against its instance.

TOML of releases up to 0.2.2, the JSON that newer ones save
(`--debug.save_config_file`), their configurations in Python, or options of a command,
which go before those of the file that it names (`--job.config_file`). Ranks are the
GPUs of the hosts in the order of `hosts`, else of the instance, on the mesh
[pp, dp, tp]. Layers lie as
`module_fqns_per_model_part` tells, else as torchtitan divides them: embedding and head
count as so many layers as the configuration says, by default one each. Looped schedules
are read by their parts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import InstanceError, quoted
from ...schema import Instance, Recompute, Split
from ...schema.groups import WHOLE
from ...text.documents import Document, Fields, own_data
from ..importing.asked import Asked, File, opened
from ..importing.current import (
    Layout,
    RunAs,
    claim_of,
    cut,
    divisors,
    gpus,
    replicas_of,
    same_adapters,
    same_optimiser,
    same_sizes,
    same_world,
)
from ..importing.placing import Claim, Settings
from ..runs.logs import literal

OPTIONS: Document = {"hosts": str}
TRAINER = "torchtitan"
_ENDS = ("first", "last")
_SCHEDULE = "parallelism.pipeline_parallel_schedule"
_TOKENS = "training.num_tokens_per_microbatch_per_dp_rank"
_STEP, _LENGTH = "training.num_tokens_per_train_step", "training.max_context_length"
_SHARD = -1  # all that is left
_TREE = own_data(__file__)
#: What torchtitan has where nothing is told.
_USUAL: Fields = _TREE["usual"]
_NOT_READ: Mapping[str, Sequence[str]] = _TREE["not_read"]
_OF_TORCHTITAN = (
    *_USUAL,
    *("training.local_batch_size", "training.seq_len", "training.global_batch_size"),
    *(_TOKENS, _STEP, _LENGTH),
    *("activation_checkpoint.mode", "training.steps", "job.config_file"),
)
_ENOUGH = 2
_FLOAT8 = ("float8.enable_float8_linear", "training.enable_float8_linear")
_ASYNC = "parallelism.enable_async_tensor_parallel"
_OFFLOAD = "training.enable_cpu_offload"
_CONVERTERS = ("model.converters", "model_converters.converters")
_READ = (
    *("parallelism.", "activation_checkpoint", *_CONVERTERS, *_FLOAT8),
    *("compile.enable", "training.compile"),
    *("training.local_batch_size", "training.global_batch_size", "training.seq_len"),
    *(_TOKENS, _STEP, _LENGTH),
)
_CONFIG = "job.config_file"
_SCHEDULES = {"1f1b": 1, "gpipe": 1, "interleaved1f1b": 2}  # parts of a rank


def claims(path: Path, data: Instance, hosts: str = "") -> Iterator[Claim]:
    """Yield the one plan of the file."""
    (file,) = opened([path])
    yield _claim(
        _known_values(file.form.values), file.place, data, hosts, file.form.notes
    )


def asked(files: Sequence[File]) -> Asked | None:
    """Return what the files of a run ask of torchtitan; None for those of others."""
    values, written, notes = Document(), dict[str, tuple[int, str]](), list[str]()
    if not any(_is_one(file) for file in files):
        return None
    files = _with_config(files, notes)
    commands_last = sorted(enumerate(files), key=lambda one: one[1].form.is_command)
    kinds = []
    for number, file in commands_last:
        if _is_one(file):
            values |= _known_values(file.form.values)
            names = ((one.replace("-", "_"), one) for one in file.form.values)
            written |= {k: (number, one) for k, one in names if k.startswith(_READ)}
            notes += file.form.notes
            kinds.append(file.form.kind)
    what = f"{', '.join(dict.fromkeys(kinds))} of torchtitan"
    return Asked(what, tuple(files), values, written, tuple(notes))


def _is_one(file: File) -> bool:
    names = {name.replace("-", "_") for name in file.form.values}
    return _CONFIG in names or sum(one in names for one in _OF_TORCHTITAN) >= _ENOUGH


def _with_config(files: Sequence[File], notes: list[str]) -> tuple[File, ...]:
    """Return the files, and the configuration that a command names, where it is not.

    `InstanceError` for one that neither lies beside the command nor is given.
    """
    found = list(files)
    given = {file.source.path.name for file in files}
    for file in files:
        name = str(_known_values(file.form.values).get(_CONFIG, ""))
        if not name or Path(name).name in given or not file.form.is_command:
            continue
        if (path := file.beside(name)) is None:
            raise InstanceError(
                f"{file.place}: {_CONFIG}: found {quoted(name)}, which was not found "
                f"next to the file; give it, too: --from {name}"
            )
        found += opened([path])
        notes.append(f"{_CONFIG}: {path} was also read")
    return tuple(found)


def claimed(asked: Asked, data: Instance, hosts: str = "") -> Claim:
    """Return the run as a plan of an instance."""
    return _claim(asked.values, asked.place, data, hosts or asked.hosts, asked.notes)


def words(settings: Settings, asked: Asked, data: Instance) -> Document:
    """Return the fields that settings have.

    A global batch is told as soon as replicas may be others, so that it stays.
    """
    stages = settings.pipeline_parallel
    world = sum(node.count for node in data.planned_cluster.nodes)
    degree = settings.tensor_parallel * settings.context_parallel
    replicas = max(1, world // (stages * degree))
    samples, batch = settings.micro_batch_size, data.workload.global_batch
    shard = _SHARD if settings.zero else 1
    reshard = "always" if settings.zero == 3 else "never"
    if settings.zero in (0, 3 if stages == 1 else 2):
        reshard = "default"
    made: Document = {
        "parallelism.tensor_parallel_degree": settings.tensor_parallel,
        "parallelism.pipeline_parallel_degree": stages,
        "parallelism.context_parallel_degree": settings.context_parallel,
        "parallelism.expert_parallel_degree": settings.expert_parallel,
        "parallelism.data_parallel_replicate_degree": (
            settings.zero_groups if settings.zero else replicas
        ),
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.fsdp_reshard_after_forward": reshard,
    }
    if _LENGTH in asked.values or _TOKENS in asked.values:
        length = data.workload.sequence_length
        made |= {_TOKENS: samples * length, _STEP: batch * length}
    else:
        made["training.local_batch_size"] = samples
        made["training.global_batch_size"] = batch
        if stages > 1:
            made["training.local_batch_size"] = batch // replicas
            made["parallelism.pipeline_parallel_microbatch_size"] = samples
    if stages > 1:
        made[_SCHEDULE] = "1F1B" if settings.interleave == 1 else "Interleaved1F1B"
    usual = {name: _USUAL[name] for name in made if name in _USUAL}
    made |= {
        k: None for k, v in usual.items() if made[k] == v and k not in asked.values
    }
    if "activation_checkpoint.mode" in asked.values or _is_toml(asked):
        # Newer releases name a class, which nobody is told.
        made["activation_checkpoint.mode"] = settings.recompute
    return made


def choices(asked: Asked, data: Instance) -> dict[str, Sequence[object]]:
    """Return the settings that the run may be given, with their values."""
    most = max(node.count for node in data.planned_cluster.nodes)
    found: dict[str, Sequence[object]] = {
        "tensor_parallel": divisors(most),
        "zero": (2, 3),
    }
    if "activation_checkpoint.mode" in asked.values or _is_toml(asked):
        found["recompute"] = ("none", "selective", "full")
    if not asked.values.get("parallelism.module_fqns_per_model_part"):
        found["pipeline_parallel"] = divisors(data.model.layers)
        found["interleave"] = (1, 2)
    return found


def _is_toml(asked: Asked) -> bool:
    return any(file.form.kind == "TOML" for file in asked.files)


def _known_values(values: Fields) -> Document:
    """Values by the names of torchtitan's fields; a command has dashes and texts."""
    return {
        name.replace("-", "_"): literal(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _claim(
    given: Fields, place: str, data: Instance, hosts: str, notes: Sequence[str]
) -> Claim:
    _same_products(given, data, place)
    _same_training(given, data, place)
    given = _in_sequences(given, place)
    parallel, training = _section(given, "parallelism"), _section(given, "training")
    ranks = gpus(data, hosts)
    same_world(given, ranks, place)
    stages, degree, context, experts = (
        _number(parallel, f"{name}_parallel_degree", place, 1)
        for name in ("pipeline", "tensor", "context", "expert")
    )
    degree *= context
    replicas = replicas_of(len(ranks), stages * degree, place)
    size = _number(training, "local_batch_size", place)
    batch = _number(training, "global_batch_size", place, -1)
    batch = size * replicas if batch < 0 else batch
    length = _number(training, "seq_len", place)
    same_sizes(place, data, ("global_batch_size", batch), ("seq_len", length))
    samples = size
    if stages > 1:
        samples = _number(parallel, "pipeline_parallel_microbatch_size", place, 1)
    if not samples or batch % (samples * replicas):
        raise InstanceError(
            f"{place}: found a global batch of {batch}, expected a multiple of "
            f"{samples} x {replicas} replicas; correct it"
        )
    groups = _number(parallel, "data_parallel_replicate_degree", place, 1)
    if groups >= replicas:  # plain copies of all states: nothing is divided
        groups = 1
    layers, runs, parts = cut(
        _parts(parallel, stages, data.model.layers, place),
        *(stages, data.model.layers, place),
    )
    layout = Layout(
        layers=layers,
        replicas=replicas,
        degree=degree,
        samples=samples,
        micro_batches=batch // (samples * replicas),
        recompute=_rule(given, place),
        zero=_zero(parallel, replicas * context, stages),
        split=Split(context, experts, runs, groups),
        parts=parts,
    )
    told, left = _timed(given, data)
    how = layout, ranks, data.launched_by(TRAINER), place
    by = RunAs(TRAINER, "torchtitan", told)
    return claim_of(*how, by, [*notes, *_unread(left)])


def _timed(given: Fields, data: Instance) -> tuple[Document, Fields]:
    told, left = dict[str, object](), dict(given)
    compiled = given.get("compile.enable", given.get("training.compile"))
    if isinstance(compiled, bool):
        told["style"] = "compiled" if compiled else "eager"
    if data.workload.costs.compute.calibration and left.pop(_ASYNC, None) is True:
        told["overlap"] = ("tp",)
    return told, left


def _in_sequences(given: Fields, place: str) -> Fields:
    """Convert a batch in tokens (releases of 2026) to one in sequences."""
    if _LENGTH not in given and _TOKENS not in given:
        return given
    length = _number(dict(given), _LENGTH, place, 2048)
    tokens = _number(dict(given), _TOKENS, place, 16_384)
    whole = _number(dict(given), _STEP, place, -1)
    if length < 1 or tokens % length or (whole > 0 and whole % length):
        raise InstanceError(
            f"{place}: {_TOKENS}: found {tokens} tokens, expected whole sequences of "
            f"{length}, {_LENGTH}; correct it"
        )
    made = {
        "training.seq_len": length,
        "training.local_batch_size": tokens // length,
        "parallelism.pipeline_parallel_microbatch_size": tokens // length,
        "training.global_batch_size": whole // length if whole > 0 else -1,
    }
    return {**given, **made}


def _same_products(given: Fields, data: Instance, place: str) -> None:
    """A run of layers in eight bits is of an instance that times them so."""
    told = " ".join(str(given.get(name, "")) for name in _CONVERTERS).lower()
    if any(given.get(name) is True for name in _FLOAT8):
        told += " float8"
    kind = next((one for one in ("mxfp8", "float8") if one in told), None)
    calibration = data.workload.costs.compute.calibration
    timed = "bf16" if calibration is None else calibration.precision
    if (kind is not None) == (timed in ("fp8", "mxfp8", "nvfp4")):
        return
    found = "16 bits" if kind is None else {"float8": "fp8"}.get(kind, kind)
    remedy = "bf16" if kind is None else found
    raise InstanceError(
        f"{place}: products of layers: found {found}, expected {timed} as in the "
        f"instance; assemble one with -o products={remedy}"
    )


def _same_training(given: Fields, data: Instance, place: str) -> None:
    """A run trains all weights by AdamW on GPUs, as torchtitan does unless told."""
    converters = " ".join(str(given.get(name, "")) for name in _CONVERTERS).lower()
    if "lora" in converters:
        raise InstanceError(
            f"{place}: found the converter lora: hetopt does not plan adapters for "
            "torchtitan"
        )
    same_adapters(None, data, place)
    if given.get(_OFFLOAD) is True:
        raise InstanceError(
            f"{place}: {_OFFLOAD}: found weights and states in the memory of hosts, "
            "expected them on GPUs: plans here have no such weights"
        )
    told = str(given.get("optimizer.name", "AdamW"))
    own = {"adam": "adamw"}.get(told.lower(), told.lower())
    same_optimiser((told, own), data, place, "optimizer.name")


def _unread(given: Fields) -> Iterator[str]:
    found = [
        f"{name} {value}"
        for name, value in given.items()
        if name in _NOT_READ and value not in (None, False, *_NOT_READ[name])
    ]
    if found:
        yield f"not read: {', '.join(found)}"


def _section(given: Fields, name: str) -> Document:
    before = f"{name}."
    return {
        key.removeprefix(before): value
        for key, value in given.items()
        if key.startswith(before)
    }


def _number(
    section: Document, name: str, place: str, default: int | None = None
) -> int:
    value = section.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        found = "nothing" if value is None else repr(value)
        remedy = "give the file that says it, too" if value is None else "correct it"
        raise InstanceError(
            f"{place}: {name}: found {found}, expected a whole number; {remedy}"
        )
    return value


def _rule(given: Fields, place: str) -> Recompute:
    """The mode of older releases; newer ones name a class, or save its fields alone."""
    name = "activation_checkpoint"
    section = _section(given, name)
    if not section:
        kind = given.get(name, "selective")
        return "none" if kind is None else _rule_of_class(str(kind))
    if "mode" in section:
        mode: Recompute = section["mode"]
        if mode not in WHOLE:
            raise InstanceError(
                f"{place}: {name}.mode: found {mode!r}, expected one of "
                f"{', '.join(WHOLE)}"
            )
        return mode
    if "class" in section:
        return _rule_of_class(str(section["class"]))
    fields = "force_recompute_mm_shapes_by_fqns"
    return "selective" if fields in section else "full"


def _rule_of_class(name: str) -> Recompute:
    return "full" if name.startswith("Full") else "selective"


def _zero(parallel: Document, replicas: int, stages: int) -> int:
    """The stage of ZeRO that FSDP amounts to: 3 where weights are divided again."""
    if replicas == 1 or parallel.get("data_parallel_shard_degree", -1) == 1:
        return 0
    policy = parallel.get("fsdp_reshard_after_forward", "default")
    again = policy == "always" or (policy == "default" and stages == 1)
    return 3 if again else 2


def _parts(parallel: Document, stages: int, layers: int, place: str) -> tuple[int, ...]:
    """Layers of each part of the model, in their order: runs of stages, or stages."""
    schedule = str(parallel.get("pipeline_parallel_schedule", "1F1B"))
    if schedule.lower() not in _SCHEDULES:
        raise InstanceError(
            f"{place}: pipeline_parallel_schedule: found {schedule!r}, expected one of "
            "1F1B, GPipe, Interleaved1F1B: plans here have no other"
        )
    parts = parallel.get("module_fqns_per_model_part")
    if parts:
        names = [[str(name) for name in part] for part in parts]
        return tuple(
            sum(bool(re.fullmatch(r"layers\.\d+", name)) for name in part)
            for part in names
        )
    if stages == 1:
        return (layers,)
    return _divide(parallel, stages * _SCHEDULES[schedule.lower()], layers, place)


def _divide(parallel: Document, parts: int, layers: int, place: str) -> tuple[int, ...]:
    first, last = (
        _number(parallel, f"pipeline_parallel_{end}_stage_less_layers", place, 1)
        for end in _ENDS
    )
    each = parallel.get("pipeline_parallel_layers_per_stage")
    if each is not None:
        held = max(1, _number(parallel, "pipeline_parallel_layers_per_stage", place))
        parts = -(-(layers + first + last) // held)
    least, over = divmod(layers + first + last, parts)
    found = [least + (part < over) for part in range(parts)]
    found[0] -= first
    found[-1] -= last
    return tuple(found)
