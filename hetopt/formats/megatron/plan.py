"""Arguments of a Megatron-LM run that goes on, against its instance.

`arguments` says in which forms they are read. Ranks are the GPUs of the hosts in the
order of `hosts`, else of the instance, in Megatron's order tp-cp-ep-dp-pp.
Layers lie as `--pipeline-model-parallel-layout`, `--decoder-first-pipeline-num-layers`
and `-last` tell, else equally; interleaved ones by their layout or in equal runs.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ...errors import InstanceError
from ...schema import Instance, Recompute, Split
from ..importing.current import Layout, claim_of, cut, gpus, replicas_of, same
from ..importing.placing import Claim
from . import meanings
from .arguments import read_arguments

OPTIONS: dict[str, type] = {"hosts": str}
_RECOMPUTE: dict[str | None, Recompute] = {
    None: "none",
    "full": "full",
    "selective": "selective",
}
_EACH = "num-layers-per-virtual-pipeline-stage"
_RUNS = "num-virtual-stages-per-pipeline-rank"


def claims(path: Path, data: Instance, hosts: str = "") -> Iterator[Claim]:
    """The one plan of the file, which claims no time."""
    place = str(path)
    given = read_arguments(path)
    ranks = gpus(data, hosts)
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
    groups = _number(given, "num-distributed-optimizer-instances", place, 1)
    degree *= context
    replicas = replicas_of(len(ranks), stages * degree, place)
    samples = _number(given, "micro-batch-size", place)
    batch = _number(given, "global-batch-size", place, samples * replicas)
    _same_model(given, batch, data, place)
    if batch % (samples * replicas):
        raise InstanceError(
            f"{place}: global-batch-size: found {batch}, expected a multiple of "
            f"micro-batch-size x {replicas} replicas; correct it"
        )
    layers, runs = cut(
        _parts(given, stages, data.model.layers, place),
        *(stages, data.model.layers, place),
    )
    layout = Layout(
        layers=layers,
        replicas=replicas,
        degree=degree,
        samples=samples,
        micro_batches=batch // (samples * replicas),
        recompute=_RECOMPUTE[_recomputed(given, place)],
        zero=int("use-distributed-optimizer" in given),
        split=Split(context, experts, runs, groups),
    )
    data, notes = meanings.weighed(given, data, place)
    yield claim_of(layout, ranks, data, place, trainer="megatron", notes=notes)


def _same_model(given: dict[str, str], batch: int, data: Instance, place: str) -> None:
    model, workload = data.model, data.workload
    names = {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "num-attention-heads": model.heads,
        "seq-length": workload.sequence_length,
    }
    told = {name: _number(given, name, place) for name in names if name in given}
    expected = {**names, "global-batch-size": workload.global_batch}
    same(place, {**told, "global-batch-size": batch}, expected)


def _recomputed(given: dict[str, str], place: str) -> str | None:
    if "recompute-activations" in given:
        return "selective"
    found = given.get("recompute-granularity")
    if found not in _RECOMPUTE:
        raise InstanceError(
            f"{place}: recompute-granularity: found {found!r}, expected full "
            "or selective"
        )
    return found


def _parts(
    given: dict[str, str], stages: int, layers: int, place: str
) -> tuple[int, ...]:
    """Layers of each part of the model, in their order: runs of stages, or stages."""
    layout = given.get("pipeline-model-parallel-layout")
    if layout is not None:
        return tuple(one.count("t") for one in _unrolled(layout).split("|"))
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
    given: dict[str, str], stages: int, layers: int, place: str
) -> tuple[int, ...]:
    """Layers of the stages where the first and the last may be told."""
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


def _unrolled(layout: str) -> str:
    """A layout without commas and multiplications."""
    text = re.sub(r"[,\s]", "", layout)
    for pattern in (r"\(([^()]*)\)\*(\d{1,4})", r"(.)\*(\d{1,4})"):
        text = re.sub(pattern, lambda one: one[1] * int(one[2]), text)
    return text


def _number(
    given: dict[str, str], name: str, place: str, default: int | None = None
) -> int:
    if name not in given and default is not None:
        return default
    text = given.get(name, "")
    if not re.fullmatch(r"[0-9]{1,12}", text):
        remedy = "paste the expanded command" if "$" in text else "correct it"
        raise InstanceError(
            f"{place}: {name}: found {text!r}, expected a whole number; {remedy}"
        )
    return int(text)
