"""One rank of a run: it joins the others, steps, and says what came of each step."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .gradients import Sums, Tensors
from .groups import Groups
from .jobs import Job
from .layout import Layout
from .mixture import Crossing, Mixture
from .model import StageModel
from .optimiser import Update
from .parameters import TABLE, parameters
from .pipeline import Border, Pipeline
from .pytorch import Device, Dtype, Foreign, Tensor, dist, torch
from .released import stored
from .saved import Saved
from .tensor_parallel import Cut
from .tokens import Tokens
from .weights import Source, drawn, own_weights, released

_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_SCALE, _LARGEST, _PATIENCE = 2.0**16, 2.0**24, 1000


class Step(NamedTuple):
    """The outcome of a step; `skipped`, without an update, where gradients overflowed.

    Loss and norm are None where they are no finite numbers. `memory_mib` is what
    PyTorch has had of the first rank's GPU at the most; None on CPUs. `evaluation` is
    the loss on the data that are not trained on, after steps that end with one.
    """

    step: int
    loss: float | None
    norm: float | None
    rate: float
    seconds: float
    skipped: bool
    memory_mib: int | None = None
    evaluation: float | None = None


class LossScale:
    """The factor of the loss where a stage computes in fp16; else 1.

    It is halved where gradients overflow, and doubled after many steps without.
    """

    def __init__(self, *, needed: bool) -> None:
        self.value, self._good, self._needed = _SCALE if needed else 1.0, 0, needed

    def learn(self, *, overflowed: bool) -> None:
        """Take note of a step."""
        if not self._needed:
            return
        self._good = 0 if overflowed else self._good + 1
        if overflowed:
            self.value = max(1.0, self.value / 2)
        elif self._good % _PATIENCE == 0:
            self.value = min(_LARGEST, self.value * 2)


@contextmanager
def joined(job: Job, rank: int, meeting: str) -> Iterator[Device]:
    """The device of a rank, within the group of all; `meeting` is torch's address."""
    timeout = timedelta(seconds=job.settings.timeout_s)
    device = torch.device("cpu")
    backend = "gloo"
    if job.settings.cpu:
        torch.set_num_threads(1)
    else:
        # A launcher shows each host its own GPUs, counted from 0.
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        init_method=meeting,
        rank=rank,
        world_size=len(job.gpus),
        timeout=timeout,
    )
    try:
        yield device
    finally:
        dist.destroy_process_group()


class _Gradients:
    """The gradients of an iteration, each of which is told once it is whole.

    Every micro-batch adds to that of each weight once. Where they are `wide`, they are
    added up in single precision.
    """

    def __init__(
        self,
        weights: Tensors,
        passes: int,
        told: Callable[[str, Tensor], object],
        *,
        wide: bool,
    ) -> None:
        self._weights, self._passes, self._told = weights, passes, told
        self._wide, self._sums = wide, Tensors()
        self._left = dict.fromkeys(weights, passes)
        for name, weight in weights.items():
            weight.register_post_accumulate_grad_hook(partial(self._hear, name))

    def _hear(self, name: str, weight: Tensor) -> None:
        found = weight.grad
        if self._wide:
            found = found.to(torch.promote_types(weight.dtype, torch.float32))
            if name in self._sums:
                found = self._sums[name] + found
            self._sums[name] = found
            weight.grad = None
        self._left[name] -= 1
        if self._left[name] == 0:
            self._told(name, found)

    def taken(self) -> Tensors:
        """The gradients that the passes left, which begin anew then."""
        self._left = dict.fromkeys(self._weights, self._passes)
        found, self._sums = self._sums, {}
        for name, weight in self._weights.items():
            if not self._wide:
                found[name] = weight.grad
            weight.grad = None
        return found


class Trainer:
    """A rank's stage, its optimiser and its tokens."""

    def __init__(
        self, job: Job, rank: int, device: Device, *, dtype: Dtype | None = None
    ) -> None:
        self.job, self.rank, self.device = job, rank, device
        whole = parameters(job.decoder)
        self.layout = Layout(
            job.plan, job.gpus, whole, job.zero, job.expert_parallel, job.interleave
        )
        self.team = self.layout.team_of[rank]
        dtypes = _agree(dtype or _dtype(job, device), len(job.gpus))
        groups = Groups(self.layout, job.settings.timeout_s)
        source = _begun(job)
        self.weights = own_weights(self.layout, rank, source, dtypes[rank], device)
        kinds = dtypes
        if wide := job.wide_gradients:
            kinds = [torch.promote_types(d, torch.float32) for d in dtypes]
        sums = Sums(self.layout, rank, groups, kinds)
        self._gradients = _Gradients(
            self.weights, self.team.micro_batches, sums.take, wide=wide
        )
        rules = job.settings.optimiser
        self.update = Update(
            self.layout, rank, groups, sums, self.weights, dtypes, rules
        )
        self._sums = sums
        self.scale = LossScale(needed=torch.float16 in dtypes)
        self._tokens = Tokens(job, self.layout.global_batch)
        self._held_out: Tokens | None = None
        if job.settings.eval_data is not None:
            self._held_out = Tokens(job, self.layout.global_batch, held_out=True)
        self._pipeline = self._build(groups, dtypes)
        self.gradients: dict[str, Tensor] = {}
        self._updates = 0
        self._states: Any = None
        if job.settings.checkpoint is not None:
            from .states import States  # needs safetensors

            self._states = States(job.settings.checkpoint, rank, self.update)
        self.stops = False  # once all have heard that one is asked to

    def _build(self, groups: Groups, dtypes: list[Dtype]) -> Pipeline:
        job, team = self.job, self.team
        length = job.sequence_length
        place = team.ranks.index(self.rank)
        cut = Cut(
            groups.of(team.ranks),
            place,
            team.degree,
            length,
            by_sequence=job.sequence_parallel,
        )
        self._sequence_cut = cut.by_sequence
        table = next(p for p in self.layout.parameters if p.name == TABLE)
        first_word, _ = self.layout.span(self.rank, table)
        model = StageModel(
            job.decoder,
            self.weights,
            cut,
            team.recompute,
            first_word,
            self._mixture(groups, cut),
        )
        border = Border(self.layout, self.rank, groups, dtypes)
        return Pipeline(self.layout, self.rank, model, border, job.schedule, length)

    @property
    def done(self) -> int:
        """Return how far the rank is, in passes and waits."""
        return self._pipeline.moves

    def _mixture(self, groups: Groups, cut: Cut) -> Mixture | None:
        experts = self.job.decoder.experts
        if experts is None:
            return None
        block = self.layout.block_of.get(self.rank)
        if block is None:
            return Mixture(experts, cut)
        first = experts.count // len(block) * block.index(self.rank)
        return Mixture(experts, cut, Crossing(groups.of(block), len(block)), first)

    def step(self, number: int, *, asked: bool = False) -> Step:
        """One iteration over the global batch of step `number`, counted from 1.

        Where any rank is `asked` to stop, `stops` is true on all of them afterwards.
        """
        start = time.perf_counter()
        scale = self.scale.value
        self.gradients = {}  # the last step's make room for this one's
        self._sums.begin()
        own = self._pipeline.run(self._rows(self._tokens, number), scale)
        self.gradients = self._gradients.taken()
        self._sums.finish(self.gradients, sequence_cut=self._sequence_cut)
        norm = self.update.norm(self.gradients, scale)
        self._pipeline.moves += 1
        rate = self.job.settings.optimiser.rate(number, self.job.settings.steps)
        overflowed = not math.isfinite(norm)
        if not overflowed:
            self.update.step(self.gradients, norm, scale, rate)
            self._updates += 1
        self.scale.learn(overflowed=overflowed)
        loss, self.stops = self._total(own, asked=asked)
        seconds = time.perf_counter() - start
        held = None
        if self.device.type == "cuda":
            held = torch.cuda.max_memory_reserved(self.device) // 2**20
        return Step(
            number, _finite(loss), _finite(norm), rate, seconds, overflowed, held
        )

    def evaluate(self) -> float | None:
        """Return the mean loss over some global batches that are not trained on.

        They are the same ones at every step, and under every plan.
        """
        assert self._held_out is not None
        count, total = self.job.settings.eval_batches, 0.0
        for number in range(1, count + 1):
            own = self._pipeline.evaluate(self._rows(self._held_out, number))
            total += self._total(own)[0]
        return _finite(total / count)

    def resume(self) -> int:
        """Go on from the newest states: after which step."""
        state = None if self._states is None else self._states.restore()
        if state is None:
            return 0
        self._updates, self.scale.value = state.updates, state.loss_scale
        return int(state.step)

    def save(self, number: int) -> None:
        """Write the states after step `number` into the run's folder."""
        job = self.job
        state = Saved(
            step=number,
            folder=f"step-{number:08}",
            updates=self._updates,
            loss_scale=self.scale.value,
            seed=job.settings.seed,
            decoder=job.decoder,
        )
        self._states.save(state)

    def _rows(self, tokens: Tokens, number: int) -> Tensor:
        """The samples of all micro-batches of a stage; inner ones need none."""
        team = self.team
        if not (team.is_first or team.is_last):
            count = team.samples * team.micro_batches
            return torch.empty((count, 0), dtype=torch.long, device=self.device)
        samples = [g for i in range(team.micro_batches) for g in team.samples_of(i)]
        return torch.from_numpy(tokens.rows(number, samples)).to(self.device)

    def _total(self, loss: Tensor, *, asked: bool = False) -> tuple[float, bool]:
        """The loss of the whole batch, of which each pipeline has a part.

        And whether any rank is asked to stop.
        """
        if not self.team.is_last or self.team.ranks[0] != self.rank:
            loss = torch.zeros_like(loss)
        told = torch.stack((loss, torch.full_like(loss, float(asked))))
        dist.all_reduce(told)
        return float(told[0]), bool(told[1] > 0)


def train(
    trainer: Trainer,
    tell: Callable[[Step], object],
    asked: Callable[[], bool] = lambda: False,
) -> None:
    """All steps, from the latest states that were saved on; `tell` hears of each.

    Once a rank is `asked` to stop, all save their states after the step, and end.
    """
    settings = trainer.job.settings
    for number in range(trainer.resume() + 1, settings.steps + 1):
        done = trainer.step(number, asked=asked())
        ends = trainer.stops or number == settings.steps
        due = number == settings.steps or number % settings.eval_every == 0
        if settings.eval_data and due and not trainer.stops:
            done = done._replace(evaluation=trainer.evaluate())
        tell(done)
        if settings.checkpoint and (ends or number % settings.every == 0):
            trainer.save(number)
        if ends:
            break


def _begun(job: Job) -> Source:
    """Return what weights begin with: those of a released model, or of the seed."""
    if job.settings.init is None:
        return drawn(job.decoder, job.settings.seed)
    return released(stored(Path(job.settings.init), parameters(job.decoder)))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _dtype(job: Job, device: Device) -> Dtype:
    """The job's, but fp16 on cards that cannot multiply in bf16."""
    dtype = _DTYPES[job.precision]
    asked = job.settings.precision is not None
    if dtype == torch.bfloat16 and device.type == "cuda" and not asked:
        capable = torch.cuda.get_device_capability(device) >= (8, 0)
        return dtype if capable else torch.float16
    return dtype


def _agree(dtype: Dtype, world: int) -> list[Dtype]:
    """Return what every rank computes in; what crosses borders has its sender's."""
    names: list[Foreign] = [None] * world
    dist.all_gather_object(names, str(dtype))
    return [getattr(torch, name.removeprefix("torch.")) for name in names]
