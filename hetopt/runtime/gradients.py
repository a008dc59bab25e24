"""Gradients: summed over everybody who holds a parameter, each lane by itself.

Three sums, in this order: within a replica where its GPUs have parts of a gradient
(sequences that are cut); over the lanes; and from the first GPU of each replica to the
others what is not cut, so that all of a replica stay equal to the last bit.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from .groups import Groups, batches
from .layout import Lane, Layout
from .parameters import Parameter
from .pytorch import Dtype, Tensor, dist, torch

Tensors = dict[str, Tensor]


class View(NamedTuple):
    """A part of a parameter's own tensor: `length` indices from `first` on."""

    parameter: Parameter
    first: int
    length: int

    def of(self, tensors: Tensors) -> Tensor:
        """The part of the tensor of that name."""
        whole, axis = tensors[self.parameter.name], self.parameter.axis
        return whole if axis is None else whole.narrow(axis, self.first, self.length)


def common(lane: Lane, dtypes: list[Dtype]) -> Dtype:
    """Return what a lane's numbers are exchanged in: fp32 if kinds differ."""
    kinds = {dtypes[rank] for rank in lane.ranks}
    return kinds.pop() if len(kinds) == 1 else torch.float32


class Sums:
    """The sums that one rank takes part in; `dtypes` are of all ranks' gradients."""

    def __init__(
        self,
        layout: Layout,
        rank: int,
        groups: Groups,
        dtypes: list[Dtype],
    ) -> None:
        self._layout, self._rank, self._groups = layout, rank, groups
        self._team = layout.team_of[rank]
        self._lanes = [lane for lane in layout.lanes_of(rank) if len(lane.ranks) > 1]
        self._dtypes = dtypes

    def views(self, lane: Lane) -> Iterator[View]:
        """The own parts of a lane's parameters."""
        for parameter in lane.cut:
            own, _ = self._layout.span(self._rank, parameter)
            start, stop = parameter.edge(lane.start), parameter.edge(lane.stop)
            yield View(parameter, start - own, stop - start)
        yield from (View(parameter, 0, 0) for parameter in lane.uncut)

    def sum(self, gradients: Tensors, sequence_cut: bool) -> None:
        """Replace each gradient by its sum over all micro-batches of all replicas."""
        team = self._groups.of(self._team.ranks)
        uncut = [p for p in self._layout.held(self._rank) if p.axis is None]
        shared = [
            gradients[p.name]
            for p in uncut
            if p.summed == "always" or (sequence_cut and p.summed == "sequence")
        ]
        if team is not None and shared:
            _together(shared, None, partial(dist.all_reduce, group=team))
        for lane in self._lanes:
            group = self._groups.of(lane.ranks)
            parts = [view.of(gradients) for view in self.views(lane)]
            _together(
                parts,
                common(lane, self._dtypes),
                partial(dist.all_reduce, group=group),
            )
        if team is not None and uncut:
            first = self._team.ranks[0]
            _together(
                [gradients[p.name] for p in uncut],
                None,
                partial(dist.broadcast, src=first, group=team),
            )


def _together(
    parts: list[Tensor],
    dtype: Dtype | None,
    exchange: Callable[[Tensor], object],
) -> None:
    """Exchange tensors as flat ones, and put back what these have then."""
    for run in batches(parts, lambda part: int(part.numel())):
        flat = torch.cat([part.reshape(-1) for part in run])
        wide = flat if dtype is None else flat.to(dtype)
        exchange(wide)
        put_back(wide, run)


def put_back(flat: Tensor, parts: list[Tensor]) -> None:
    """Copy a flat tensor into those that it was made of."""
    sizes = [part.numel() for part in parts]
    for part, values in zip(parts, flat.split(sizes), strict=True):
        part.copy_(values.view_as(part))
