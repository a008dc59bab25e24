"""One iteration of a stage: its passes in order, and what crosses its borders."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from .groups import Groups
from .layout import Hop, Layout
from .model import StageModel
from .pytorch import Device, Dtype, Foreign, Size, Tensor, dist, torch
from .schedule import Schedule, actions

Span = Callable[[str], AbstractContextManager[None]]


class _Sent(NamedTuple):
    """A message on its way; the tensor stays until it has arrived."""

    work: Foreign
    rows: Tensor


class Border:
    """Exchanges of one rank with the stages before and after its own."""

    def __init__(
        self, layout: Layout, rank: int, groups: Groups, dtypes: list[Dtype]
    ) -> None:
        self._groups, self._dtypes = groups, dtypes
        self._sent_to = {step: layout.sent(rank, step) for step in (+1, -1)}
        self._got_from = {step: layout.received(rank, step) for step in (+1, -1)}
        self._dtype = dtypes[rank]
        self._team = layout.team_of[rank]
        self._under_way: list[_Sent] = []

    def send(self, x: Tensor, step: int) -> None:
        """Give rows to the next stage (+1) or gradients to the one before (-1)."""
        group = self._groups.hops[step, self._around(step)]
        self._under_way = [s for s in self._under_way if not s.work.is_completed()]
        for hop in self._sent_to[step]:
            rows = x[hop.first : hop.stop].contiguous()
            work = dist.isend(rows, hop.peer, group=group)
            self._under_way.append(_Sent(work, rows))

    def receive(self, like: Size, device: Device, step: int) -> Tensor:
        """Rows from the stage before (step -1), or gradients from the next (+1)."""
        hops = self._got_from[step]
        parts = [self._buffer(like, device, hop) for hop in hops]
        group = self._groups.hops[-step, self._around(step)]
        works = [
            dist.irecv(part, hop.peer, group=group)
            for part, hop in zip(parts, hops, strict=True)
        ]
        for work in works:
            work.wait()
        return torch.cat([part.to(self._dtype) for part in parts])

    def drain(self) -> None:
        """Wait until everything that was sent has arrived."""
        for sent in self._under_way:
            sent.work.wait()
        self._under_way = []

    def _around(self, step: int) -> bool:
        """Return whether a neighbour lies across the ends of the pipeline."""
        return not 0 <= self._team.stage + step < self._team.stages

    def _buffer(self, like: Size, device: Device, hop: Hop) -> Tensor:
        size = (hop.stop - hop.first, *like[1:])
        return torch.empty(size, dtype=self._dtypes[hop.peer], device=device)


class Pipeline:
    """The passes of one rank's stage over an iteration's micro-batches."""

    def __init__(
        self,
        layout: Layout,
        rank: int,
        model: StageModel,
        border: Border,
        schedule: Schedule,
        length: int,
    ) -> None:
        self._team, self._model, self._border = layout.team_of[rank], model, border
        team = self._team
        self._runs = len(team.runs)
        self._actions = actions(
            schedule, team.stage, team.stages, team.micro_batches, self._runs
        )
        self._sequences = layout.global_batch
        self._tokens = layout.global_batch * length
        self._size = torch.Size((team.samples, length, model.shape.hidden))

    def run(self, rows: Tensor, scale: float, span: Span) -> Tensor:
        """All passes, each within `span`; the stage's part of the loss, a scalar.

        `rows` are the samples of all micro-batches, (samples, length + 1), on the
        device. Gradients are those of the mean loss of the global batch, times `scale`.
        """
        self._span = span
        self._loss = torch.zeros((), dtype=torch.float64, device=rows.device)
        if self._model.mixture is not None:
            self._model.mixture.set_pull(self._sequences, scale)
        live: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        batches = rows.split(self._team.samples)
        for kind, i, run in self._actions:
            with span(f"{kind} {i}" + f" run {run}" * (self._runs > 1)):
                if kind == "forward":
                    live[i, run] = self._forward(batches[i], run, scale)
                else:
                    self._backward(*live.pop((i, run)), self._ends(run))
        self._border.drain()
        return self._loss

    def _begins(self, run: int) -> bool:
        return self._team.is_first and run == 0

    def _ends(self, run: int) -> bool:
        return self._team.is_last and run == self._runs - 1

    def _forward(self, rows: Tensor, run: int, scale: float) -> tuple[Tensor, Tensor]:
        came = None
        cut = self._model.cut
        if self._begins(run):
            x = self._model.embedded(rows[:, :-1])
        else:
            came = self._receive(rows.device, -1).requires_grad_()
            x = cut.split(came)
        x = self._model.through_layers(x, self._team.runs[run])
        if not self._ends(run):
            x = cut.join(x)
            self._border.send(x.detach(), +1)
            return came, x
        mean = self._model.loss(x, rows[:, 1:]) / self._tokens
        self._loss += mean.detach()
        return came, mean * scale

    def _backward(self, came: Tensor, went: Tensor, ends: bool) -> None:
        if ends:
            went.backward()
        else:
            went.backward(self._receive(went.device, +1))
        if came is not None:
            self._border.send(came.grad, -1)

    def _receive(self, device: Device, step: int) -> Tensor:
        with self._span("wait"):
            return self._border.receive(self._size, device, step)
