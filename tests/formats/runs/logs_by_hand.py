"""Logs of trainers, written line by line as the trainers print them.

Each takes what is true of a run and tells it in one tool's words; readers must find
what was told. Lines are those of the releases that the readers' docstrings name.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

Fields = Mapping[str, Any]


def megatron(
    arguments: Fields, times_ms: Iterable[float], *, batches: Iterable[int] = ()
) -> str:
    lines = [
        f"using world size: {arguments['world_size']}, data-parallel size: "
        f"{arguments['data_parallel_size']}",
        "------------------------ arguments ------------------------",
        *sorted(f"  {k} {'.' * (48 - len(k))} {v}" for k, v in arguments.items()),
        "-------------------- end of arguments ---------------------",
    ]
    times = list(times_ms)
    sizes = [*batches] or [arguments["global_batch_size"]] * len(times)
    for i, (ms, size) in enumerate(zip(times, sizes, strict=True), 1):
        lines.append(
            f" [2025-01-01 00:00:00.000000] iteration {i:8d}/{len(times):8d} |"
            f" consumed samples: {i * size:12d} |"
            f" elapsed time per iteration (ms): {ms:.1f} |"
            f" throughput per GPU (TFLOP/s/GPU): 400.0 | learning rate: 1.000000E-04 |"
            f" global batch size: {size:5d} | lm loss: 1.000000E+01 | loss scale: 1.0 |"
            " number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    return "\n".join(lines) + "\n"


_TITAN = "[titan] 2025-01-01 00:00:00,000 - root - INFO - "
_RED, _RESET = "\x1b[31m", "\x1b[39m"


def torchtitan(
    mesh: Fields,
    rates: Iterable[int],
    *,
    batch: tuple[int, int, int] = (1, 8, 8192),
    config: Fields | None = None,
) -> str:
    local, whole, length = batch
    lines = [f"{_TITAN}Starting job: a test"]
    if config is not None:
        lines.append(f"{_TITAN}Running with configs: {json.dumps(config, indent=2)}")
    degrees = ", ".join(f"{axis}={n}" for axis, n in mesh.items())
    lines += [
        f"{_TITAN}Building device mesh with parallelism: {degrees}",
        f"{_TITAN}CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory",
    ]
    lines.append(
        f"{_TITAN}Trainer is initialized with local batch size {local}, global batch "
        f"size {whole}, gradient accumulation steps 1, sequence length {length}, "
        "total steps 100 (warmup 2)"
    )
    for i, rate in enumerate(rates):
        lines.append(
            f"{_TITAN}{_RED}step: {10 * i + 1:2}  {_RED}loss: {7.5:8.5f}  "
            f"{_RED}grad_norm: {1.25:7.4f}  {_RED}memory: {40 + i:5.2f}GiB(50.57%)  "
            f"{_RED}tps: {rate:,}  {_RED}tflops: 333.70  {_RED}mfu: 33.74%{_RESET}"
        )
    return "\n".join(f"[rank0]:{line}" for text in lines for line in text.split("\n"))


def _deepspeed_json(value: Any, level: int = 0) -> str:
    """As its ScientificNotationEncoder writes it."""
    match value:
        case bool():
            return json.dumps(value)
        case int() | float():
            return f"{value:e}" if value > 1e3 else f"{value}"
        case dict():
            inner = " " * 4 * (level + 1)
            parts = (
                f'\n{inner}"{k}": {_deepspeed_json(v, level + 1)}'
                for k, v in value.items()
            )
            return "{" + ", ".join(parts) + "\n" + " " * 4 * level + "}"
        case list():
            return "[" + ", ".join(map(_deepspeed_json, value)) + "]"
    return json.dumps(value)


def deepspeed(
    resolved: Fields, config: Fields, times_s: Iterable[float], *, words: str = "rates"
) -> str:
    start = "[2025-01-01 00:00:00,000] [INFO] "
    said = "[config.py:1003:print]   "
    lines = [f"{start}{said}{k} {'.' * (29 - len(k))} {v}" for k, v in resolved.items()]
    lines.append(
        f"{start}[config.py:989:print_user_config]   json = {_deepspeed_json(config)}"
    )
    batch = resolved["train_batch_size"]
    for i, seconds in enumerate(times_s, 1):
        rank = "[logging.py:96:log_dist] [Rank 0] "
        match words:
            case "rates":
                lines.append(
                    f"{start}[timer.py:260:stop] epoch=0/micro_step={i}/global_step={i}"
                    f", RunningAvgSamplesPerSec={batch / seconds}, CurrSamplesPerSec="
                    f"{batch / seconds}, MemAllocated=20.0GB, MaxMemAllocated=30.5GB"
                )
            case "pipeline":
                lines.append(
                    f"steps: {i} loss: 2.0000 iter time (s): {seconds:0.3f} "
                    f"samples/sec: {batch / seconds:0.3f}"
                )
            case "breakdown":
                third = 1000 * seconds / 4
                lines += [
                    f"{start}{rank}time (ms) | fwd_microstep: 1.00 | bwd_microstep: "
                    "2.00 | step_microstep: 3.00",
                    f"{start}{rank}time (ms) | fwd: {third:.2f} | bwd: {2 * third:.2f}"
                    f" | bwd_inner: 1.00 | bwd_allreduce: 1.00 | step: {third:.2f}",
                ]
        lines.append(f"{start}{rank}step={i}, skipped=0, lr=[0.0001], mom=[(0.9, 1)]")
    return "\n".join(lines) + "\n"
