"""Twelve jobs of four models through a live queue, on whatever engine it has.

All are trained by the executor on CPUs. A node is killed on the way, the queue is
opened anew at every pass, and losses are those of each job run alone.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

from hetopt.queueing.following import saved_step
from hetopt.queueing.scheduler import Queue
from hetopt.queueing.store import DONE, LIVE, Attempt, Entry

STEPS = 50
#: Seconds without a further step, and no job in another state: the queue stands.
PATIENCE_S = 600.0
_LLAMA = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 256},
    **{"max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu"},
}
MODELS = {
    "small": {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128},
    "deep": {"num_hidden_layers": 8, "hidden_size": 64, "intermediate_size": 128},
    "broad": {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 256},
    "thin": {"num_hidden_layers": 6, "hidden_size": 32, "intermediate_size": 96},
}
_STEP = re.compile(r"\bstep (\d+)  loss (\S+)")


def written(place: Path) -> list[Path]:
    """The files of twelve jobs; they name no GPUs."""
    found = []
    for number, (name, shape) in enumerate(MODELS.items()):
        (place / f"{name}.json").write_text(json.dumps({**_LLAMA, **shape}))
        for seed in range(3):
            path = place / f"{name}-{seed}.json"
            job = {
                **{"model": f"{name}.json", "global_batch": 8, "sequence_length": 32},
                **{"steps": STEPS, "seed": 10 * number + seed, "every": 5},
                "arguments": ["--cpu", "--timeout", "120"],
            }
            path.write_text(json.dumps(job))
            found.append(path)
    return found


def followed(
    folder: Path, happens: Callable[[int, list[Entry]], None]
) -> tuple[list[Entry], list[str]]:
    """Pass until all jobs have ended, each time by a queue that is opened anew."""
    told, turn = list[str](), 0
    seen, since = list[object](), time.monotonic()
    while time.monotonic() - since < PATIENCE_S:
        queue = Queue.opened(folder)
        queue.advance(told.append)
        entries = queue.store.entries()
        if all(entry.state not in LIVE for entry in entries):
            return entries, told
        now = [(one.state, saved_step(queue.store.states(one))) for one in entries]
        if now != seen:
            seen, since = now, time.monotonic()
        happens(turn, entries)
        turn += 1
        time.sleep(1.0)
    raise AssertionError(f"nothing came for {PATIENCE_S:g} s: {told}")


def halfway(folder: Path, entries: list[Entry]) -> Attempt | None:
    """An attempt that runs, and has saved a step of its first half by now."""
    store = Queue.opened(folder).store
    for entry in entries:
        if entry.live and 0 < saved_step(store.states(entry)) <= STEPS // 2:
            return entry.live
    return None


def losses(folder: Path, entry: Entry) -> dict[int, float]:
    """The losses that all attempts of a job printed, the last of each step."""
    store, found = Queue.opened(folder).store, dict[int, float]()
    for attempt in entry.attempts:
        text = store.log(attempt).read_text() if store.log(attempt).exists() else ""
        found |= {int(step): float(loss) for step, loss in _STEP.findall(text)}
    return found


def alone(folder: Path, entry: Entry) -> dict[int, float]:
    """The losses of a job that is run by its last plan alone, from the beginning."""
    plan = Queue.opened(folder).store.files(entry.attempts[-1]) / "plan.json"
    job = entry.job
    words = [sys.executable, "-m", "hetopt", "run", str(plan), "--steps", str(STEPS)]
    words += ["--seed", str(job.seed), "--model", job.model, *job.arguments]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    return {int(step): float(loss) for step, loss in _STEP.findall(told.stdout)}


def check(folder: Path, entries: list[Entry]) -> None:
    """All are done, and the losses of one job of each model are those alone.

    Where a model has a job that was moved, it is that one.
    Losses are printed with four decimals: two that are equal may differ by rounding.
    The last lines of an attempt are lost with its node, those of the last one are not.
    """
    assert {entry.state for entry in entries} == {DONE}, entries
    for entry in entries:
        first = entry.attempts[-1].from_step + 1
        assert {*range(first, STEPS + 1)} <= {*losses(folder, entry)}
    several = [entry for entry in entries if len(entry.attempts) > 1]
    for entry in {one.job.model: one for one in [*entries, *several]}.values():
        want = alone(folder, entry)
        for step, loss in losses(folder, entry).items():
            assert abs(want[step] - loss) < 2e-4, (entry.job.name, step)


def check_that_devices_were_given_once(entries: list[Entry]) -> None:
    """No two attempts had a device of this machine at the same time."""
    attempts = [attempt for entry in entries for attempt in entry.attempts]
    assert all(attempt.devices for attempt in attempts)
    for one, other in combinations(attempts, 2):
        if {*one.devices} & {*other.devices}:
            assert other.ended is not None
            assert one.ended <= other.created or other.ended <= one.created


def programs(place: Path) -> str:
    """A path with torchrun of this Python, and with it the one before."""
    place.mkdir(exist_ok=True)
    torchrun = f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
    (place / "torchrun").write_text(torchrun)
    (place / "torchrun").chmod(0o755)
    return f"{place}{os.pathsep}{os.environ['PATH']}"
