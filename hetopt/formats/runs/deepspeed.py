"""DeepSpeed: what its engines print; the lines are those of 0.9.5 to 0.16.5.

    [2025-01-01 00:00:00,000] [INFO] [config.py:1003:print]   train_batch_size ... 256
    [2025-01-01 00:00:00,000] [INFO] [config.py:989:print_user_config]   json = {
        "train_batch_size": 256, ... }
    [...] [Rank 0] step=100, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]
    [...] epoch=0/micro_step=100/global_step=100, RunningAvgSamplesPerSec=15.1,
        CurrSamplesPerSec=15.2, MemAllocated=20.0GB, MaxMemAllocated=30.0GB
    steps: 100 loss: 2.0000 iter time (s): 1.234 samples/sec: 207.455
    [...] [Rank 0] time (ms) | fwd: 100.00 | bwd: 200.00 | ... | step: 10.00
    RANK=0 STAGE=0 LAYERS=9 [0, 9) STAGE_PARAMS=...

(deepspeed/runtime/config.py, engine.py, pipe/engine.py, utils/timer.py.) An iteration's
time is the pipeline's `iter time`, else the batch over `CurrSamplesPerSec`, else the
sum of forward, backward and step of the wall-clock breakdown, without what is between.

DeepSpeed knows no model and no sequence: the shape is that of a `config.json` beside
the log, `seq` is told. Nor does it say whether anything is recomputed, which
tensor-parallel degree the user's groups have, or which GPUs there are. Its
`world_size` is the data-parallel one. Memory is the most that rank 0 allocated.
"""

import re
from typing import Any

from ...errors import InstanceError
from ..documents import Document, Values
from . import logs
from .facts import Facts, Given
from .logs import NUMBER, Peak, Trainer
from .source import Source

Settings = Values

_ARGUMENT = re.compile(r"\]  {1,4}([a-z][a-z0-9_]{0,60}) \.{1,40} (.{0,200})$")
_RATE = re.compile(rf"CurrSamplesPerSec={NUMBER}")
_PEAK = Peak(
    "peak_allocated_mib",
    re.compile(rf"MaxMemAllocated={NUMBER}GB"),
    lambda match: float(match[1]) * 1024,
)
_PIPELINE = re.compile(rf"\biter time \(s\): {NUMBER} samples/sec: ")
_STAGE = re.compile(r"\bRANK=[0-9]{1,6} STAGE=([0-9]{1,5}) LAYERS=")
_TIMER = re.compile(rf"\| (fwd|bwd|step|forward|backward): {NUMBER}")
CONFIG = "json = {"
_RESOLVED = {
    "gbs": "train_batch_size",
    "mbs": "train_micro_batch_size_per_gpu",
    "ga": "gradient_accumulation_steps",
    "dp": "world_size",
}


def _read(source: Source, facts: Facts, given: Given) -> None:
    resolved: Document = {}
    for index, line in enumerate(source.lines):
        if match := _ARGUMENT.search(line.text):
            resolved[match[1]] = logs.literal(match[2])
            facts.add(line.place, _argument(match[1], resolved[match[1]]))
        if (start := line.text.find(CONFIG)) >= 0:
            tree = logs.printed_object(source, index, start + len(CONFIG) - 1)
            facts.add(line.place, _settings(tree))
    if resolved:
        facts.add("what is resolved", {"precision": _precision(resolved)})
    stages = [m[1] for line in source.lines if (m := _STAGE.search(line.text))]
    if stages:
        facts.add("the pipeline's stages", {"pp": max(map(int, stages)) + 1, "vp": 1})


def _argument(name: str, value: object) -> Document:
    fields = {field: value for field, n in _RESOLVED.items() if n == name}
    return {"zero": value} if name == "zero_optimization_stage" else fields


def _precision(resolved: Settings) -> str | None:
    if "bfloat16_enabled" not in resolved and "fp16_enabled" not in resolved:
        return None
    if resolved.get("bfloat16_enabled") is True:
        return "bf16 mixed"
    return "fp16 mixed" if resolved.get("fp16_enabled") is True else "fp32"


def _settings(said: Settings) -> Document:
    """Return the fields of a run in a configuration; `auto` tells nothing."""
    zero = said.get("zero_optimization")
    zero = zero if isinstance(zero, dict) else {}
    parts = [
        words
        for words, name in (("optimizer", "optimizer"), ("parameters", "param"))
        if _device(zero.get(f"offload_{name}")) not in (None, "none")
    ]
    enabled = {
        words: section.get("enabled")
        for words, name in (("bf16", "bf16"), ("bf16", "bfloat16"), ("fp16", "fp16"))
        if isinstance(section := said.get(name), dict)
    }
    overlap, bucket = zero.get("overlap_comm"), zero.get("reduce_bucket_size")
    sums = [] if overlap is None else [f"overlap_comm={overlap}"]
    if isinstance(bucket, int | float):
        sums.append(f"reduce_bucket_size={bucket:.0f}")
    optimizer = said.get("optimizer")
    kind = optimizer.get("type") if isinstance(optimizer, dict) else None
    return {
        **{f: logs.positive(said.get(n)) for f, n in _RESOLVED.items() if f != "dp"},
        "zero": logs.whole(zero.get("stage")),
        "offload": ", ".join(parts) or None,
        "overlap": "; ".join(sums) or None,
        "precision": _precision_of(enabled),
        "optimizer": kind if isinstance(kind, str) else None,
    }


def _precision_of(sections: Values) -> str | None:
    for name, said in sections.items():
        if said is True:
            return f"{name} mixed"
    return None if "auto" in sections.values() else "fp32"


def _device(section: object) -> Any:
    return section.get("device") if isinstance(section, dict) else None


def _seconds(source: Source, batch: int | None) -> list[float]:
    times = [m[1] for line in source.lines if (m := _PIPELINE.search(line.text))]
    if times:
        return [float(seconds) for seconds in times]
    rates = [m[1] for line in source.lines if (m := _RATE.search(line.text))]
    if rates:
        if (sequences := logs.positive(batch)) is None:
            raise InstanceError.at(
                source.path,
                "gbs",
                "found samples a second and no train_batch_size, expected it; give "
                "gbs, or the configuration of DeepSpeed",
            )
        return [sequences / float(rate) for rate in rates if float(rate) > 0]
    breakdown = [_TIMER.findall(line.text) for line in source.lines]
    return [
        sum(float(ms) for _, ms in timers) / 1000
        for timers in breakdown
        if len(timers) == 3
    ]


FORM = Trainer(
    name="deepspeed",
    title="DeepSpeed",
    marks=(
        ("CurrSamplesPerSec=",),
        ("iter time (s): ",),
        ("[config.py:", "train_batch_size"),
    ),
    read=_read,
    readings=_seconds,
    peaks=(_PEAK,),
    told={"framework": "DeepSpeed"},
    settings=_settings,
    config="deepspeed",
).form
