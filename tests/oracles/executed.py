"""Ranks in long-lived processes, and how far a plan is from a single process."""

import multiprocessing
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hetopt.runtime.jobs import Job

Errors = dict[str, float]


def difference(job: Job, rank: int, meeting: str, steps: int) -> Errors:
    """The largest differences of one rank from `plain_decoder` after some steps."""
    import torch
    from plain_decoder import Single

    from hetopt.runtime import training
    from hetopt.runtime.parameters import parameters
    from hetopt.runtime.tokens import Tokens
    from hetopt.runtime.weights import drawn

    with training.joined(job, rank, meeting) as device:
        trainer = training.Trainer(job, rank, device)
        source = drawn(job.decoder, job.settings.seed)
        whole = {p.name: source(p).double() for p in parameters(job.decoder)}
        settings = job.settings
        single = Single(job.decoder, whole, settings.optimiser)
        tokens = Tokens(job, trainer.layout.global_batch)
        worst = dict.fromkeys(("loss", "norm", "gradient", "weight"), 0.0)
        for number in range(1, steps + 1):
            done = trainer.step(number)
            rows = torch.from_numpy(
                tokens.rows(number, range(trainer.layout.global_batch))
            )
            loss, norm = single.step(rows, done.rate)
            found = {"loss": abs(done.loss - loss), "norm": abs(done.norm - norm)}
            for updated in trainer.update.pieces:
                parameter, start, stop, _ = updated.piece
                name, axis = parameter.name, parameter.axis
                own = updated.view.of(trainer.gradients)
                mine: Any = slice(None)
                if axis is not None:
                    mine = (slice(None),) * axis + (slice(start, stop),)
                found["gradient"] = furthest(
                    found.get("gradient", 0.0), own, single.gradients[name][mine]
                )
            for parameter in trainer.layout.held(rank):
                name, axis = parameter.name, parameter.axis
                mine = slice(None)
                if axis is not None:
                    span = trainer.layout.span(rank, parameter)
                    mine = (slice(None),) * axis + (slice(*span),)
                found["weight"] = furthest(
                    found.get("weight", 0.0),
                    trainer.weights[name],
                    single.weights[name][mine],
                )
            worst = {kind: max(value, found[kind]) for kind, value in worst.items()}
        if settings.eval_data is not None:
            held_out = Tokens(job, trainer.layout.global_batch, held_out=True)
            wanted = []
            for number in range(1, settings.eval_batches + 1):
                batch = held_out.rows(number, range(trainer.layout.global_batch))
                wanted.append(single.loss(torch.from_numpy(batch))[0].item())
            want = sum(wanted) / len(wanted)
            worst["evaluation"] = abs((trainer.evaluate() or 0.0) - want)
        return worst


def furthest(before: float, own: Any, want: Any) -> float:
    """The largest difference so far; parts of the smallest plans may be empty."""
    if not own.numel():
        return before
    return max(before, float((own - want).detach().abs().max()))


def difference_in_buckets(job: Job, rank: int, meeting: str, steps: int) -> Errors:
    """The same, where each parameter is a bucket, and one is summed at a time."""
    from hetopt.runtime import gradients

    whole = gradients._ENOUGH, gradients._UNDER_WAY
    gradients._ENOUGH = gradients._UNDER_WAY = 1
    try:
        return difference(job, rank, meeting, steps)
    finally:
        gradients._ENOUGH, gradients._UNDER_WAY = whole


def _serve(rank: int, pipe: Any) -> None:
    while (work := pipe.recv()) is not None:
        call, *arguments = work
        try:
            pipe.send((call(arguments[0], rank, *arguments[1:]), None))
        except BaseException as error:  # it is told to the test
            pipe.send((None, f"rank {rank}: {type(error).__name__}: {error}"))


class Ranks:
    """Processes that stay, each of which calls `function(job, rank, meeting, ...)`."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["executed_warm"])
        self._pipes, self._processes = [], []
        for rank in range(count):
            near, far = context.Pipe()
            process = context.Process(target=_serve, args=(rank, far), daemon=True)
            process.start()
            self._pipes.append(near)
            self._processes.append(process)

    def call(self, function: Any, job: Job, *arguments: Any) -> list[Any]:
        """What the ranks of a job answer."""
        with tempfile.TemporaryDirectory() as folder:
            meeting = Path(folder, "store").as_uri()
            pipes = self._pipes[: len(job.gpus)]
            for pipe in pipes:
                pipe.send((function, job, meeting, *arguments))
            answers = [pipe.recv() for pipe in pipes]
        if errors := [error for _, error in answers if error]:
            raise AssertionError("; ".join(errors))
        return [answer for answer, _ in answers]

    def end(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join(5)
            process.kill()


@contextmanager
def ranks(count: int) -> Any:
    """So many processes, forked from one that has loaded PyTorch."""
    with pytest.MonkeyPatch.context() as patch:
        # The server of forks finds modules by this alone.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("OMP_NUM_THREADS", "1")
        made = Ranks(count)
    try:
        yield made
    finally:
        made.end()
