"""Process groups of a run, and exchanges within them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from .layout import Lane, Layout, Ranks
from .pytorch import Foreign, Group, Tensor, dist, torch

T = TypeVar("T")
_MOST = 2**26  # elements
# Gloo learnt to scatter sums in PyTorch 2.8, and does no less than a whole sum.
# Since 2.13 the call has a new name.
_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_SCATTERS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)


class Groups:
    """All groups of a layout; every rank makes all of them, in the same order.

    Both directions of hops have groups of their own, and those from the last stage
    round to the first have two more: between GPUs, sends of one direction would else
    wait for those of the other. Lanes have theirs, because sums of gradients run beside
    the exchanges of passes.
    """

    def __init__(self, layout: Layout, timeout_s: float) -> None:
        timeout = timedelta(seconds=timeout_s)
        everybody = list(range(dist.get_world_size()))
        # A new group has a timeout of its own, not that of the first.
        turns = any(len(team.runs) > 1 for team in layout.teams)
        self.hops = {
            (step, around): dist.new_group(everybody, timeout=timeout)
            for around in ((False, True) if turns else (False,))
            for step in (+1, -1)
        }
        self._passes, self._lanes = (
            {ranks: dist.new_group(list(ranks), timeout=timeout) for ranks in wanted}
            for wanted in (layout.groups, layout.lane_groups)
        )

    def of(self, ranks: Ranks) -> Group:
        """The group of a team or a block; None for one rank alone."""
        return self._passes.get(ranks)

    def of_lane(self, lane: Lane) -> Group:
        """The group of a lane of several ranks."""
        return self._lanes[lane.ranks]


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Items in runs of a bounded size, one at least: what is copied to be exchanged."""
    run: list[T] = []
    room = _MOST
    for item in items:
        if run and size(item) > room:
            yield run
            run, room = [], _MOST
        run.append(item)
        room -= size(item)
    if run:
        yield run


def gathered(x: Tensor, sizes: Sequence[int], dim: int, group: Group) -> Tensor:
    """The parts of all ranks along an axis, which have these sizes, one after another.

    Groups exchange tensors of one shape, so that smaller parts are padded.
    """
    most = max(sizes)
    shape = list(x.shape)
    shape[dim] = most
    own = x.contiguous()
    if x.shape[dim] < most:
        own = x.new_zeros(shape)
        own.narrow(dim, 0, x.shape[dim]).copy_(x)
    parts = [torch.empty_like(own) for _ in sizes]
    dist.all_gather(parts, own, group=group)
    cut = [part.narrow(dim, 0, size) for part, size in zip(parts, sizes, strict=True)]
    return torch.cat(cut, dim)


def scattered(
    x: Tensor, sizes: Sequence[int], place: int, dim: int, group: Group
) -> object:
    """The own part of the sum over all ranks."""
    if x.is_cuda and min(sizes) == max(sizes):
        parts = [part.contiguous() for part in x.split(list(sizes), dim)]
        own = torch.empty_like(parts[place])
        dist.reduce_scatter(own, parts, group=group)
        return own
    whole = x.contiguous().clone()
    dist.all_reduce(whole, group=group)
    return whole.split(list(sizes), dim)[place].contiguous()


def scattered_rows(
    rows: Sequence[Tensor], place: int, group: Group
) -> tuple[Foreign, Tensor]:
    """Begin to sum flat rows over all ranks, of which each gets its own row.

    Rows may differ in length: shorter ones are padded.
    """
    most = max(row.numel() for row in rows)
    whole = rows[0].new_zeros(len(rows), most)
    for padded, row in zip(whole, rows, strict=True):
        padded[: row.numel()] = row
    size = rows[place].numel()
    if not (whole.is_cuda or _SCATTERS):
        work = dist.all_reduce(whole, group=group, async_op=True)
        return work, whole[place, :size]
    own = rows[0].new_empty(most)
    work = _SCATTER(own, whole.view(-1), group=group, async_op=True)
    return work, own[:size]
