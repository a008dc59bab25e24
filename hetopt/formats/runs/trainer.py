"""transformers' Trainer (TRL, LLaMA-Factory ...): what it saves and prints of a run.

    trainer_state.json     {"log_history": [..., {"train_runtime": 900.0, ...}],
                            "global_step": 100}
    train_results.json     {"train_runtime": 900.0, "train_steps_per_second": 0.111}
    wandb-summary.json     {"train_runtime": 900.0, "train/global_step": 100}
    its output             {'train_runtime': 900.0, 'train_steps_per_second': 0.111}
    its progress bar        10%|#     | 10/100 [01:20<12:00,  8.00s/it]
    trainer_log.jsonl      {"current_steps": 10, "elapsed_time": "0:01:20", ...}
    logging.jsonl          {"global_step/max_steps": "10/100", "elapsed_time": "1m 20s"}

(transformers 4.40 to 5.0, trainer_callback.py, trainer_utils.py; LLaMA-Factory 0.9 and
ms-swift 3, also of Megatron.) The time of an iteration is the mean of the whole run:
its time over its steps, where these are told, else by the steps of a second, which
have three digits; of a run that did not end, of its steps after warm-up. What a run
evaluates or saves on the way is in it.
"""

import re
from typing import Any

from ...text.documents import Document, Fields
from . import logs
from .logs import NUMBER
from .source import Measured, Source

_OF_WANDB = "train/"  # before names in Weights & Biases' summaries
_RUNTIME, _RATE = "train_runtime", "train_steps_per_second"
_PRINTED = tuple(
    (name, re.compile(rf"['\"]?\b{name}['\"]?\s{{0,40}}[:=] {{0,40}}['\"]?{NUMBER}"))
    for name in (_RUNTIME, _RATE)
)
_LEAST_DIGITS = 0.02  # steps of a second, of which three digits say enough
_STEP = re.compile(
    r"['\"](?:current_steps|iteration|global_step/max_steps)['\"]: ['\"]?"
    r"([0-9]{1,9})\b"
)
_ELAPSED = re.compile(r"['\"]elapsed_time['\"]: ['\"]?([0-9][0-9a-z:., ]{0,40})")
_BAR = re.compile(
    r"(?:^|[\r\]]) {0,4}[0-9]{1,3}%\|[^|\r]{0,200}\| ([0-9]{1,9})/[0-9]{1,9} "
    r"\[([0-9:]{4,12})<[^\]\r]{0,40}(?:s/it|it/s)"
)
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(d|h|m|s)")


def _told(source: Source) -> Document:
    """Return what a file tells: of a run that was resumed the last part."""
    if source.kind == "tree":
        tree = {k.removeprefix(_OF_WANDB): v for k, v in source.tree.items()}
        rows = [tree, *(tree.get("log_history") or [])]
        told: Document = {}
        for row in rows:
            told |= {k: v for k, v in row.items() if k in (_RUNTIME, _RATE)}
        return told | {"global_step": tree.get("global_step")}
    found: Document = {}
    for line in source.lines:
        for name, pattern in _PRINTED:
            if match := pattern.search(line):
                found[name] = float(match[1])
    return found


def _is_tree(source: Source) -> bool:
    tree: Any = source.tree if source.kind == "tree" else None
    if not isinstance(tree, dict):
        return False
    rows = tree.get("log_history")
    is_state = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return is_state or _RUNTIME in tree


def is_one(source: Source) -> bool:
    """Tell whether the Trainer, or a program made of it, wrote a file."""
    if source.kind != "log":
        return _is_tree(source)
    return all(p.search(source.text) for _, p in _PRINTED) or bool(_steps(source))


def is_log(source: Source) -> bool:
    """Return whether a file is the log of any trainer."""
    known = is_one(source) or any(one.is_one(source) for one in logs.TRAINERS)
    return known and source.kind == "log"


def _steps(source: Source) -> dict[int, float]:
    """Return the seconds that had passed at each step; of a run resumed, the last."""
    found: dict[int, float] = {}
    for line in source.lines:
        pairs = [(one[1], one[2]) for one in _BAR.finditer(line)]
        step, elapsed = _STEP.search(line), _ELAPSED.search(line)
        if step and elapsed:
            pairs = [(step[1], elapsed[1])]
        for number, text in pairs:
            seconds = _duration(text)
            if found and seconds < next(reversed(found.values())):
                found = {}
            found.setdefault(int(number), seconds)
    return found


def _duration(text: str) -> float:
    """Return the seconds of `1 day, 0:01:20`, `01:20`, `1m 20s` or `80.5`."""
    if re.fullmatch(NUMBER, bare := text.strip(", ")):
        return float(bare)
    days, _, clock = text.rpartition(",")
    total = sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(days or text))
    if ":" in clock:
        for power, part in enumerate(reversed(clock.split(":"))):
            total += float(part) * 60**power
    return total


def measured(source: Source) -> Measured | None:
    """Return the mean time of the steps after warm-up, else of all of a run."""
    steps = _steps(source) if source.kind == "log" else {}
    last = max(steps, default=0)
    later = [step for step in steps if step >= logs.warm_up(last)]
    if len(later) > 1:
        first = min(later)
        mean = (steps[last] - steps[first]) / (last - first)
        return Measured(mean, last - first, first, "mean") if mean else None
    told = _told(source)
    seconds = _seconds(told)
    return None if seconds is None else Measured(seconds, _steps_of(told), 0, "mean")


def _steps_of(told: Fields) -> int:
    steps = told.get("global_step")
    return int(steps) if isinstance(steps, int | float) and steps > 0 else 0


def _seconds(told: Fields) -> float | None:
    """Return the mean time of a step; None where the file does not tell it."""
    runtime, rate = (told.get(name) for name in (_RUNTIME, _RATE))
    steps = _steps_of(told)
    if steps and isinstance(runtime, int | float) and runtime > 0:
        return runtime / steps
    if isinstance(rate, int | float) and rate >= _LEAST_DIGITS:
        return 1 / rate
    return None
