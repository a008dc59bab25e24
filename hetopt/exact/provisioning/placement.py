"""The best pipeline of given allocations: order of the stages and layers of each.

Many jobs (an allocation and a cap beta on every stage's time) go from the first stage
to the last together, in numpy. A label is a beginning of a pipeline: what is left of
the allocation and of the layers, V and G (see `tables`). Of two labels
of a job with the same rest, one with no less V and no more G is dropped: exact, since
both only grow with each other. A label goes on only while V, the fastest filling of
the rest, and the exposure that the rest cannot avoid stay within what its job asks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .tables import NEVER, Degree, Ints, extremes

Stages = list[tuple[int, int]]  # (type, layers) of each stage
_ROWS = 400_000  # labels of one level before the jobs are split


class _TooMany(Exception):
    """A level of several jobs has more labels than are held at once."""


@dataclass
class Jobs:
    """Allocations of one number of stages, each with an index of betas and a limit.

    A job asks for V <= limit.
    """

    counts: Ints
    beta: Ints
    limit: Ints

    def part(self, rows: slice) -> "Jobs":
        """Some of the jobs."""
        return Jobs(self.counts[rows], self.beta[rows], self.limit[rows])


@dataclass
class _Labels:
    job: Ints
    rest: Ints  # [row, slot]
    layers: Ints
    v: Ints
    g: Ints
    bound: Ints
    parent: Ints
    move: Ints  # type * (layers + 1) + layers of the stage

    def pick(self, rows: Ints) -> "_Labels":
        return _Labels(*(column[rows] for column in vars(self).values()))


def place(
    degree: Degree, jobs: Jobs, check: Callable[[], None], beam: int | None
) -> dict[int, Stages]:
    """The stages of least V of each job that meets its limit, by index of the job.

    With a `beam` only so many labels of a job are kept: quick, and no proof.
    """
    if not len(jobs.beta):
        return {}
    try:
        return _Placement(degree, jobs, check, beam).run()
    except _TooMany:
        half = len(jobs.beta) // 2
        found = place(degree, jobs.part(slice(half)), check, beam)
        rest = place(degree, jobs.part(slice(half, None)), check, beam)
        return found | {job + half: answer for job, answer in rest.items()}


class _Placement:
    def __init__(
        self, degree: Degree, jobs: Jobs, check: Callable[[], None], beam: int | None
    ) -> None:
        self.degree, self.jobs, self.check, self.beam = degree, jobs, check, beam
        self.stages = int(jobs.counts[0].sum())
        slots = int((jobs.counts > 0).sum(axis=1).max())
        # The used types of each job, fastest first; unused slots count 0.
        order = np.argsort(jobs.counts == 0, axis=1, kind="stable")[:, :slots]
        self.types = order
        self.start = np.take_along_axis(jobs.counts, order, axis=1)
        largest = np.minimum(degree.holds[:, jobs.beta].T, degree.cap[None, :, 1])
        self.widest = np.where(jobs.counts > 0, largest, 0).max(axis=1)
        self.kinds, kind = np.unique(
            extremes(degree, jobs.counts), axis=0, return_inverse=True
        )
        self.kind = kind.reshape(-1)

    def run(self) -> dict[int, Stages]:
        own = np.arange(len(self.jobs.beta))
        zero, layers = np.zeros_like(own), np.full_like(own, self.degree.layers)
        labels = _Labels(own, self.start, layers, zero, zero, zero, zero, zero)
        levels = [labels]
        for position in range(self.stages):
            self.check()
            labels = self._keep(self._extend(labels, self.stages - position))
            levels.append(labels)
            if not len(labels.job):
                return {}
        best: dict[int, Stages] = {}
        for row in np.argsort(labels.v, kind="stable"):
            job = int(labels.job[row])
            if job not in best:
                best[job] = self._stages(levels, int(row))
        return best

    def _extend(self, labels: _Labels, q: int) -> list[_Labels]:
        """Labels with one stage more, the q-th from the end, slot by slot."""
        parts, rows = [], 0
        for slot in range(self.start.shape[1]):
            part = self._extend_slot(labels, slot, q)
            rows += len(part.job)
            if rows > _ROWS and len(self.jobs.beta) > 1:
                raise _TooMany
            parts.append(part)
        return parts

    def _extend_slot(self, labels: _Labels, slot: int, q: int) -> _Labels:
        degree = self.degree
        rows = np.flatnonzero(labels.rest[:, slot] > 0)
        job, layers = labels.job[rows], labels.layers[rows]
        kind = self.types[job, slot]
        rest = labels.rest[rows].copy()
        rest[:, slot] -= 1
        room = self._room(job, rest)
        most = np.minimum(degree.cap[kind, q], degree.holds[kind, self.jobs.beta[job]])
        most = np.minimum(most, layers - (q - 1))
        least = np.maximum(1, layers - room)
        number = np.maximum(most - least + 1, 0)
        again = np.repeat(np.arange(len(rows)), number)
        first = np.cumsum(number) - number
        x = np.arange(len(again)) - first[again] + least[again]
        parent = rows[again]
        kind = kind[again]
        g = labels.g[parent]
        rise = np.maximum(degree.s[kind] * x - g, 0)
        new = _Labels(
            job=job[again],
            rest=rest[again],
            layers=layers[again] - x,
            v=labels.v[parent] + degree.w[kind] * x + rise,
            g=g + rise + degree.b[kind] * x,
            bound=x,
            parent=parent,
            move=kind * (degree.layers + 1) + x,
        )
        new.bound = new.v + self._to_come(new, q - 1)
        return new.pick(np.flatnonzero(new.bound <= self.jobs.limit[new.job]))

    def _room(self, job: Ints, rest: Ints) -> Ints:
        held = np.zeros(len(job), dtype=np.int64)
        for slot in range(rest.shape[1]):
            held += self.degree.room[
                self.types[job, slot], rest[:, slot], self.jobs.beta[job]
            ]
        return held

    def _to_come(self, labels: _Labels, stages: int) -> Ints:
        """Return what V still grows by, at least."""
        degree, job = self.degree, labels.job
        left = labels.layers - labels.rest.sum(axis=1)
        time = np.zeros(len(job), dtype=np.int64)
        for slot in range(labels.rest.shape[1]):
            kind, n = self.types[job, slot], labels.rest[:, slot]
            more = degree.room[kind, n, self.jobs.beta[job]] - n
            took = np.minimum(left, more)
            left = left - took
            time += degree.w[kind] * (n + took)
        if stages and degree.s.any():
            time += self._rise(labels, stages)
        return np.where(left == 0, time, NEVER)

    def _rise(self, labels: _Labels, stages: int) -> Ints:
        """Exposure that the rest cannot avoid, beyond what is exposed already."""
        out = np.zeros(len(labels.job), dtype=np.int64)
        for index, pair in enumerate(self.kinds):
            rows = np.flatnonzero(self.kind[labels.job] == index)
            wide = self.widest[labels.job[rows]]
            need = self.degree.need(pair, wide, stages, labels.layers[rows])
            out[rows] = np.maximum(need - labels.g[rows], 0)
        return out

    def _keep(self, parts: list[_Labels]) -> _Labels:
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        labels = _Labels(*(np.concatenate(column) for column in columns))
        if not len(labels.job):
            return labels
        same = np.stack([labels.job, labels.layers, *labels.rest.T])
        order = np.lexsort((-labels.g, labels.v, *same))
        group = np.cumsum(np.diff(same[:, order], prepend=-1).any(axis=0))
        # Ranks of G, group after group, so that one running maximum serves all.
        rank = np.unique(labels.g, return_inverse=True)[1].reshape(-1)[order] + 1
        height = rank + group * (len(rank) + 1)
        before = np.concatenate([[-1], np.maximum.accumulate(height)[:-1]])
        labels = labels.pick(order[height > before])
        if self.beam is None:
            return labels
        order = np.lexsort((labels.bound, labels.job))
        job = labels.job[order]
        start = np.searchsorted(job, job, side="left")
        return labels.pick(order[np.arange(len(job)) - start < self.beam])

    def _stages(self, levels: list[_Labels], row: int) -> Stages:
        stages = []
        for labels in reversed(levels[1:]):
            stages.append(divmod(int(labels.move[row]), self.degree.layers + 1))
            row = int(labels.parent[row])
        return stages[::-1]
