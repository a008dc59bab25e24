"""Gradients: summed over everybody who holds a parameter, each lane by itself.

What degrees cut is summed beside the backward pass. Lanes sum it in buckets; a bucket
begins once the last micro-batch has been through its parameters. All ranks begin their
buckets in one order, from the head down to the embedding, so that none waits for a sum
that another begins only later. With ZeRO 1 a rank gets the sum of what it updates, and
no more.

The rest is summed after the passes: within a replica where its GPUs have parts of a
gradient (sequences that are cut); over the lanes; and from the first GPU of each
replica to the others what is not cut, so that all of a replica stay equal to the last
bit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from typing import NamedTuple

from .groups import Groups, batches, scattered_rows
from .layout import Lane, Layout, divided
from .parameters import Parameter
from .pytorch import Dtype, Foreign, Tensor, dist, torch

Tensors = dict[str, Tensor]
#: Elements of a bucket, at least: smaller sums take longer to begin than to do.
_ENOUGH = 2**22
#: Elements that are summed at a time; what is more waits for the first of them.
_UNDER_WAY = 2**26


class View(NamedTuple):
    """A part of a parameter's own tensor: `length` indices from `first` on."""

    parameter: Parameter
    first: int
    length: int

    def of(self, tensors: Tensors) -> Tensor:
        """The part of the tensor of that name."""
        whole, axis = tensors[self.parameter.name], self.parameter.axis
        return whole if axis is None else whole.narrow(axis, self.first, self.length)

    @property
    def size(self) -> int:
        """The number of elements of a part that is cut."""
        shape, axis = self.parameter.shape, self.parameter.axis
        return prod(shape) if axis is None else prod(shape) // shape[axis] * self.length

    def divided(self, count: int) -> list["View"]:
        """The view in so many parts as equal as they can be."""
        return [
            self._replace(first=self.first + start, length=stop - start)
            for start, stop in divided(0, self.length, count)
        ]


class _Bucket(NamedTuple):
    """Parameters of a lane that are summed together."""

    lane: Lane
    views: list[View]

    @property
    def names(self) -> set[str]:
        return {view.parameter.name for view in self.views}


class _Begun(NamedTuple):
    """A sum on its way, and the parts of gradients that it replaces."""

    work: Foreign
    sum: Tensor
    parts: list[Tensor]


def common(lane: Lane, dtypes: list[Dtype]) -> Dtype:
    """Return what a lane's numbers are exchanged in: fp32 if kinds differ."""
    kinds = {dtypes[rank] for rank in lane.ranks}
    return kinds.pop() if len(kinds) == 1 else torch.float32


class Sums:
    """The sums that one rank takes part in; `dtypes` are of all ranks' gradients."""

    def __init__(
        self, layout: Layout, rank: int, groups: Groups, dtypes: list[Dtype]
    ) -> None:
        self._layout, self._rank, self._groups = layout, rank, groups
        self._team = layout.team_of[rank]
        self._lanes = [lane for lane in layout.lanes_of(rank) if len(lane.ranks) > 1]
        self._dtypes = dtypes
        self._buckets = self._ordered()
        self._begun = deque[_Begun]()
        self.begin()

    def views(self, lane: Lane) -> list[View]:
        """The own parts of a lane's parameters that are cut."""
        found = []
        for parameter in lane.cut:
            own, _ = self._layout.span(self._rank, parameter)
            start, stop = parameter.edge(lane.start), parameter.edge(lane.stop)
            found.append(View(parameter, start - own, stop - start))
        return found

    def _ordered(self) -> list[_Bucket]:
        """All buckets, in the order in which backward passes are through with them."""
        place = {one.name: i for i, one in enumerate(self._layout.parameters)}
        found = [
            _Bucket(lane, views)
            for lane in self._lanes
            for views in _runs(reversed(self.views(lane)))
        ]
        return sorted(found, key=lambda one: -min(place[name] for name in one.names))

    # --- beside the passes -------------------------------------------------------

    def begin(self) -> None:
        """Expect the gradients of another iteration."""
        self._ready: Tensors = {}
        self._missing = deque((bucket, bucket.names) for bucket in self._buckets)

    def take(self, name: str, gradient: Tensor) -> None:
        """Take the gradient of a parameter that all passes have been through."""
        self._ready[name] = gradient
        for _, names in self._missing:
            names.discard(name)
        while self._missing and not self._missing[0][1]:
            bucket, _ = self._missing.popleft()
            self._start(bucket)

    def _start(self, bucket: _Bucket) -> None:
        """Begin a sum, once enough of those before are done."""
        size = sum(view.size for view in bucket.views)
        while self._begun and size > _UNDER_WAY - sum(
            x.sum.numel() for x in self._begun
        ):
            self._settle()
        lane, group = bucket.lane, self._groups.of_lane(bucket.lane)
        dtype = common(lane, self._dtypes)
        if not self._layout.zero:
            parts = [view.of(self._ready) for view in bucket.views]
            flat = _flat(parts, dtype)
            work = dist.all_reduce(flat, group=group, async_op=True)
            self._begun.append(_Begun(work, flat, parts))
            return
        place = lane.ranks.index(self._rank)
        shares = [
            [view.of(self._ready) for view in share]
            for share in shared(bucket.views, len(lane.ranks))
        ]
        rows = [_flat(share, dtype) for share in shares]
        work, own = scattered_rows(rows, place, group)
        self._begun.append(_Begun(work, own, shares[place]))

    def _settle(self) -> None:
        """Put the sum that was begun first where its parts were."""
        first = self._begun.popleft()
        first.work.wait()
        put_back(first.sum, first.parts)

    # --- after the passes --------------------------------------------------------

    def finish(self, gradients: Tensors, *, sequence_cut: bool) -> None:
        """Replace each gradient by its sum over all micro-batches of all replicas.

        With ZeRO 1 what is cut is summed only where the rank updates it.
        """
        for name, gradient in gradients.items():
            self.take(name, gradient)
        team = self._groups.of(self._team.ranks)
        uncut = [p for p in self._layout.held(self._rank) if p.axis is None]
        partial_sums = [
            gradients[p.name]
            for p in uncut
            if p.summed == "always" or (sequence_cut and p.summed == "sequence")
        ]
        if team is not None and partial_sums:
            _together(partial_sums, None, partial(dist.all_reduce, group=team))
        for lane in self._lanes:
            if lane.uncut:
                _together(
                    [gradients[p.name] for p in lane.uncut],
                    common(lane, self._dtypes),
                    partial(dist.all_reduce, group=self._groups.of_lane(lane)),
                )
        if team is not None and uncut:
            first = self._team.ranks[0]
            _together(
                [gradients[p.name] for p in uncut],
                None,
                partial(dist.broadcast, src=first, group=team),
            )
        while self._begun:
            self._settle()


def shared(views: Iterable[View], count: int) -> list[list[View]]:
    """Return the parts of views that each of `count` ranks updates with ZeRO 1."""
    parts = [view.divided(count) for view in views]
    return [[part[number] for part in parts] for number in range(count)]


def _runs(views: Iterable[View]) -> Iterator[list[View]]:
    """Views in runs that are large enough for a sum of their own, but for the last."""
    run: list[View] = []
    size = 0
    for view in views:
        if not view.size:  # between two shares there may be no head
            continue
        run.append(view)
        size += view.size
        if size >= _ENOUGH:
            yield run
            run, size = [], 0
    if run:
        yield run


def _flat(parts: list[Tensor], dtype: Dtype) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts]).to(dtype)


def _together(
    parts: list[Tensor], dtype: Dtype | None, exchange: Callable[[Tensor], object]
) -> None:
    """Exchange tensors as flat ones, and put back what these have then."""
    for run in batches(parts, lambda part: int(part.numel())):
        flat = _flat(run, dtype or run[0].dtype)
        exchange(flat)
        put_back(flat, run)


def put_back(flat: Tensor, parts: list[Tensor]) -> None:
    """Copy a flat tensor into those that it was made of."""
    sizes = [part.numel() for part in parts]
    for part, values in zip(parts, flat.split(sizes), strict=True):
        part.copy_(values.view_as(part))
