"""Configuration of a torchtitan run that goes on, against its instance.

TOML of releases up to 0.2.2, or the JSON that newer ones save
(`--debug.save_config_file`). Ranks are the GPUs of the hosts in the order of `hosts`,
else of the instance, on the mesh [pp, dp, tp]. Layers lie as
`module_fqns_per_model_part` tells, else as torchtitan divides them: embedding and head
count as so many layers as the configuration says, by default one each. Looped schedules
are read by their parts.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import InstanceError
from ...schema import Instance, Recompute, Split
from ...text.parsing import read_text
from ..importing.current import Layout, claim_of, cut, gpus, replicas_of, same
from ..importing.placing import Claim

OPTIONS: dict[str, type] = {"hosts": str}
_RULES: dict[str, Recompute] = {
    "full": "full",
    "selective": "selective",
    "none": "none",
}
_ENDS = ("first", "last")
_SCHEDULES = {"1f1b": 1, "gpipe": 1, "interleaved1f1b": 2}  # parts of a rank


def claims(path: Path, data: Instance, hosts: str = "") -> Iterator[Claim]:
    """The one plan of the file, which claims no time."""
    place = str(path)
    tree = _tree(path, place)
    parallel, training = _section(tree, "parallelism"), _section(tree, "training")
    ranks = gpus(data, hosts)
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
    workload = data.workload
    same(
        place,
        {"global_batch_size": batch, "seq_len": length},
        {
            "global_batch_size": workload.global_batch,
            "seq_len": workload.sequence_length,
        },
    )
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
    layers, runs = cut(
        _parts(parallel, stages, data.model.layers, place),
        *(stages, data.model.layers, place),
    )
    layout = Layout(
        layers=layers,
        replicas=replicas,
        degree=degree,
        samples=samples,
        micro_batches=batch // (samples * replicas),
        recompute=_rule(tree, place),
        zero=_zero(parallel, replicas, stages),
        split=Split(context, experts, runs, groups),
    )
    yield claim_of(layout, ranks, data, place, trainer="torchtitan")


def _tree(path: Path, place: str) -> dict[str, Any]:
    text = read_text(path)
    try:
        tree = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise InstanceError(f"{place}: {error}; expected TOML, or JSON") from None
    if not isinstance(tree, dict):
        raise InstanceError(f"{place}: expected sections, as [parallelism]")
    return tree


def _section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name, {})
    return found if isinstance(found, dict) else {}


def _number(
    section: dict[str, Any], name: str, place: str, default: int | None = None
) -> int:
    value = section.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InstanceError(
            f"{place}: {name}: found {value!r}, expected a whole number; correct it"
        )
    return value


def _rule(tree: dict[str, Any], place: str) -> Recompute:
    """The mode of older releases; newer ones save the fields of a policy alone."""
    section = _section(tree, "activation_checkpoint")
    if not section:
        return "none" if tree.get("activation_checkpoint", 1) is None else "selective"
    if "mode" not in section:
        fields = "force_recompute_mm_shapes_by_fqns"
        return "selective" if fields in section else "full"
    if section["mode"] not in _RULES:
        raise InstanceError(
            f"{place}: activation_checkpoint.mode: found {section['mode']!r}, expected "
            f"one of {', '.join(_RULES)}"
        )
    return _RULES[section["mode"]]


def _zero(parallel: dict[str, Any], replicas: int, stages: int) -> int:
    """The stage of ZeRO that FSDP amounts to: 3 where weights are divided again."""
    if replicas == 1 or parallel.get("data_parallel_shard_degree", -1) == 1:
        return 0
    policy = parallel.get("fsdp_reshard_after_forward", "default")
    again = policy == "always" or (policy == "default" and stages == 1)
    return 3 if again else 2


def _parts(
    parallel: dict[str, Any], stages: int, layers: int, place: str
) -> tuple[int, ...]:
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
    return _divided(parallel, stages * _SCHEDULES[schedule.lower()], layers, place)


def _divided(
    parallel: dict[str, Any], parts: int, layers: int, place: str
) -> tuple[int, ...]:
    """As torchtitan divides layers where no parts are told."""
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
