"""What ranks do in tests of states and precisions; each is called on every rank."""

from typing import Any

import torch

from hetopt.runtime.jobs import Job
from hetopt.runtime.training import Step, Trainer, joined, train


def weights_after(job: Job, rank: int, meeting: str) -> tuple[list[Step], Any]:
    """Steps of a run, resumed where it can be, and the own weights as numpy arrays."""
    steps: list[Step] = []
    with joined(job, rank, meeting) as device:
        trainer = Trainer(job, rank, device)
        train(trainer, steps.append)
        spans = {
            p.name: (p.axis, *trainer.layout.span(rank, p))
            for p in trainer.layout.held(rank)
        }
        kept = {n: w.detach().double().numpy() for n, w in trainer.weights.items()}
        return steps, {name: (spans[name], kept[name]) for name in kept}


def losses_in(job: Job, rank: int, meeting: str, kinds: list[str]) -> list[Step]:
    """Steps of a run in which each rank computes in a kind of its own."""
    steps: list[Step] = []
    with joined(job, rank, meeting) as device:
        train(
            Trainer(job, rank, device, dtype=getattr(torch, kinds[rank])), steps.append
        )
    return steps


def overflowing(job: Job, rank: int, meeting: str) -> tuple[bool, bool, float, float]:
    """A step of fp16 under a scale that is too large, and the next one's scale.

    Whether it was skipped, and left all weights as they were; the scales.
    """
    with joined(job, rank, meeting) as device:
        trainer = Trainer(job, rank, device, dtype=torch.float16)
        before = {n: w.detach().clone() for n, w in trainer.weights.items()}
        trainer.scale.value = large = 2.0**60
        done = trainer.step(1)
        skipped = done.skipped and done.norm is None
        same = all(torch.equal(before[n], w) for n, w in trainer.weights.items())
        return skipped, same, large, trainer.scale.value
