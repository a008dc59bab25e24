"""The process of one rank that `supervisor` started.

It says one JSON line a step, where it is the first rank, and one of what went wrong.
It ends when its standard input does: no rank outlives who started it.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from .jobs import Job
from .training import Trainer, joined, train


def main(job_file: str, rank: str, meeting: str) -> None:
    """Run a rank of the job that a file holds; a process that fails exits with 1."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    job = Job.model_validate_json(Path(job_file).read_text(encoding="utf-8"))
    place = int(rank)
    try:
        with joined(job, place, meeting) as device:
            trainer = Trainer(job, place, device)
            train(trainer, lambda step: _tell(step._asdict()) if place == 0 else None)
    except BaseException as error:
        _tell({"error": f"{type(error).__name__}: {error}", "at": time.time()})
        raise


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(1)
