"""One iteration of a stage: its passes in order, and what crosses its borders."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from .groups import Groups
from .layout import Hop, Layout
from .model import StageModel
from .pytorch import Device, Dtype, Foreign, Size, Tensor, dist, torch
from .schedule import Action, Schedule, actions


class _Sent(NamedTuple):
    """A message on its way; the tensor stays until it has arrived."""

    work: Foreign
    rows: Tensor


class _Coming(NamedTuple):
    """A message that was asked for; its parts are there once the works are done."""

    works: list[Foreign]
    parts: list[Tensor]


class Border:
    """Exchanges of one rank with the stages before and after its own.

    Messages of a direction are asked for, and taken, in the order of the schedule.
    """

    def __init__(
        self, layout: Layout, rank: int, groups: Groups, dtypes: list[Dtype]
    ) -> None:
        self._groups, self._dtypes = groups, dtypes
        self._sent_to = {step: layout.sent(rank, step) for step in (+1, -1)}
        self._got_from = {step: layout.received(rank, step) for step in (+1, -1)}
        self._dtype = dtypes[rank]
        self._team = layout.team_of[rank]
        self._under_way: list[_Sent] = []
        self._coming: dict[int, deque[_Coming]] = {+1: deque(), -1: deque()}
        self._beside: Foreign = None  # a stream that no pass runs on

    def send(self, x: Tensor, step: int) -> None:
        """Give rows to the next stage (+1) or gradients to the one before (-1)."""
        group = self._groups.hops[step, self._around(step)]
        self._under_way = [s for s in self._under_way if not s.work.is_completed()]
        for hop in self._sent_to[step]:
            rows = x[hop.first : hop.stop].contiguous()
            work = dist.isend(rows, hop.peer, group=group)
            self._under_way.append(_Sent(work, rows))

    def ask(self, like: Size, device: Device, step: int) -> None:
        """Be ready for the next rows from the stage before (-1), or gradients (+1).

        On GPUs a message has not to wait for the passes that run when it is asked for.
        """
        hops = self._got_from[step]
        group = self._groups.hops[-step, self._around(step)]
        with self._aside(device):
            parts = [self._buffer(like, device, hop) for hop in hops]
            works = [
                dist.irecv(part, hop.peer, group=group)
                for part, hop in zip(parts, hops, strict=True)
            ]
        self._coming[step].append(_Coming(works, parts))

    def take(self, step: int) -> Tensor:
        """Wait for the first message of a direction that was asked for."""
        coming = self._coming[step].popleft()
        for work in coming.works:
            work.wait()
        for part in coming.parts:
            if part.is_cuda:  # it was made on the other stream
                part.record_stream(torch.cuda.current_stream(part.device))
        return torch.cat([part.to(self._dtype) for part in coming.parts])

    def _aside(self, device: Device) -> AbstractContextManager[object]:
        if device.type != "cuda":
            return nullcontext()
        self._beside = self._beside or torch.cuda.Stream(device)
        stream: AbstractContextManager[object] = torch.cuda.stream(self._beside)
        return stream

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
        self.moves = 0  # passes and waits, by which others see that the rank moves
        self._team, self._model, self._border = layout.team_of[rank], model, border
        team = self._team
        self._runs = len(team.runs)
        self._actions = actions(
            schedule, team.stage, team.stages, team.micro_batches, self._runs
        )
        self._sequences = layout.global_batch
        self._tokens = layout.global_batch * length
        self._size = torch.Size((team.samples, length, model.shape.hidden))

    def run(self, rows: Tensor, scale: float) -> Tensor:
        """All passes; the stage's part of the loss, a scalar.

        `rows` are the samples of all micro-batches, (samples, length + 1), on the
        device. Gradients are those of the mean loss of the global batch, times `scale`.
        """
        live: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        batches = rows.split(self._team.samples)
        for kind, i, run in self._played(self._actions, rows, scale):
            if kind == "forward":
                live[i, run] = self._forward(batches[i], run, scale)
            else:
                self._backward(*live.pop((i, run)), ends=self._ends(run))
        self._border.drain()
        return self._loss

    def evaluate(self, rows: Tensor) -> Tensor:
        """The stage's part of the loss of a global batch, without backward passes."""
        forward = [one for one in self._actions if one.kind == "forward"]
        batches = rows.split(self._team.samples)
        with torch.no_grad():
            for _, i, run in self._played(forward, rows, 1.0):
                self._forward(batches[i], run, 1.0)
        self._border.drain()
        return self._loss

    def _played(
        self, order: Sequence[Action], rows: Tensor, scale: float
    ) -> Iterator[Action]:
        """Yield passes, and ask for messages ahead of them.

        Exchanges between GPUs are in order with what runs there, so they are asked for
        one after another; hosts ask for the next pass's before they begin a pass.
        """
        self._loss = torch.zeros((), dtype=torch.float64, device=rows.device)
        if self._model.mixture is not None:
            self._model.mixture.set_pull(self._sequences, scale)
        ahead = 0 if rows.is_cuda else 1
        asked = 0
        for number, action in enumerate(order):
            for coming in order[asked : number + ahead + 1]:
                if (step := self._source(coming)) is not None:
                    self._border.ask(self._size, rows.device, step)
            asked = max(asked, number + ahead + 1)
            self.moves += 1
            yield action

    def _source(self, action: Action) -> int | None:
        """Whence a pass has its input: the stage before (-1), the next (+1), none."""
        if action.kind == "forward":
            return None if self._begins(action.run) else -1
        return None if self._ends(action.run) else +1

    def _begins(self, run: int) -> bool:
        return self._team.is_first and run == 0

    def _ends(self, run: int) -> bool:
        return self._team.is_last and run == self._runs - 1

    def _forward(self, rows: Tensor, run: int, scale: float) -> tuple[Tensor, Tensor]:
        came = None
        cut, words = self._model.cut, rows[:, :-1]
        if self._begins(run):
            x = self._model.embedded(words)
        else:
            came = self._receive(-1).requires_grad_()
            x = cut.split(came)
        x = self._model.through_layers(x, self._team.runs[run])
        if not self._ends(run):
            x = cut.join(x)
            self._border.send(x.detach(), +1)
            return came, x
        mean = self._model.loss(x, rows[:, 1:]) / self._tokens
        self._loss += mean.detach()
        return came, mean * scale

    def _backward(self, came: Tensor, went: Tensor, *, ends: bool) -> None:
        if ends:
            went.backward()
        else:
            went.backward(self._receive(+1))
        if came is not None:
            self._border.send(came.grad, -1)

    def _receive(self, step: int) -> Tensor:
        came = self._border.take(step)
        self.moves += 1
        return came
