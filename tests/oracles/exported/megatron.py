"""Megatron-LM's files: its rules, and the plan that it would run."""

import re
import shlex

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan

from .grid import gpus_of, staged, torchrun_parts, twice_held

ARGUMENTS, LAUNCH = "arguments.txt", "launch.sh"


def validate(files: dict[str, str]) -> list[str]:
    """Rules of `validate_args`, of the layout and of torchrun that the files break."""
    given = _arguments(files[ARGUMENTS])
    parts = torchrun_parts(files[LAUNCH], LAUNCH)
    t, p = _number(given, "tensor-model-parallel-size"), _stages(given)
    world = sum(len(indices) for _, indices in parts)
    broken = []
    if world % (t * p):
        broken.append(f"{world} ranks are not divisible by tp x pp = {t * p}")
    c = _number(given, "context-parallel-size", 1)
    each = t * c * p
    if world % each:
        broken.append(f"{world} ranks are not divisible by tp x cp x pp = {each}")
    batch = _number(given, "micro-batch-size") * max(1, world // each)
    if _number(given, "global-batch-size") % batch:
        broken.append(f"the global batch is not divisible by {batch}")
    heads = _number(given, "num-attention-heads")
    if heads % t:
        broken.append(f"{heads} heads are not divisible by tp {t}")
    if _number(given, "num-query-groups", heads) % t:
        broken.append(f"the query groups are not divisible by tp {t}")
    if "kv-channels" not in given and _number(given, "hidden-size") % heads:
        broken.append("the hidden size is not divisible by the heads")
    if t == 1 and "sequence-parallel" in given:
        broken.append("sequence parallelism without tensor parallelism")
    if t > 1 and "num-experts" in given and "sequence-parallel" not in given:
        broken.append("experts with tensor parallelism need sequence parallelism")
    return broken + twice_held(parts) + _bad_layout(given, p)


def _bad_layout(given: dict[str, str], p: int) -> list[str]:
    layers = _number(given, "num-layers")
    layout = given.get("pipeline-model-parallel-layout")
    if layout is None:
        return [f"{layers} layers are not divisible by pp {p}"] if layers % p else []
    stages = unrolled(layout).split("|")
    if len(stages) % p == 0:  # several runs on each stage
        stages = stages[:: len(stages) // p]
    flat = unrolled(layout).replace("|", "")
    broken = []
    if set(flat) - set("EtLm"):
        broken.append(f"the layout has unknown letters: {layout}")
    if len(stages) != p:
        broken.append(f"the layout has {len(stages)} stages, pp is {p}")
    if not (flat.startswith("E") and flat.endswith("L")):
        broken.append("the layout does not begin with E and end with L")
    if flat.count("E") != 1 or flat.count("L") != 1:
        broken.append("the layout has not one E and one L")
    if flat.count("t") != layers:
        broken.append(f"the layout has {flat.count('t')} layers, not {layers}")
    return broken


def unrolled(layout: str) -> str:
    """A layout without commas and multiplications, as Megatron reads it."""
    text = layout.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that Megatron would run: one pipeline, replicas side by side."""
    given, parts = _arguments(files[ARGUMENTS]), torchrun_parts(files[LAUNCH], LAUNCH)
    gpus = gpus_of(parts)
    t, p = _number(given, "tensor-model-parallel-size"), _stages(given)
    size = _number(given, "micro-batch-size")
    t *= _number(given, "context-parallel-size", 1)
    replicas = len(gpus) // (t * p)
    layout = given.get("pipeline-model-parallel-layout")
    if layout is None:
        layers = [_number(given, "num-layers") // p] * p
    else:
        runs = [stage.count("t") for stage in unrolled(layout).split("|")]
        layers = [sum(runs[j::p]) for j in range(p)]
    count = _number(given, "global-batch-size") // (size * replicas)
    return staged(gpus, layers, [(t, replicas, size)] * p, count)


def _stages(given: dict[str, str]) -> int:
    return _number(given, "pipeline-model-parallel-size", 1)


def _arguments(text: str) -> dict[str, str]:
    """Arguments by name; a flag has an empty value."""
    given: dict[str, str] = {}
    name = ""
    for word in shlex.split(text, comments=True):
        if word.startswith("--"):
            name = word[2:]
            given[name] = ""
        elif not name or given[name]:
            raise InstanceError(f"{ARGUMENTS}: found {word!r} after no argument")
        else:
            given[name] = word
    return given


def _number(given: dict[str, str], name: str, default: int | None = None) -> int:
    text = given.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise InstanceError(
            f"{ARGUMENTS}: --{name}: found {text!r}, expected a positive whole number"
        )
    return int(text)
