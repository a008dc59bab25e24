"""Process groups of a run, and exchanges within them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from .layout import Layout, Ranks
from .pytorch import Group, Tensor, dist, torch

T = TypeVar("T")
_MOST = 2**26  # elements


class Groups:
    """All groups of a layout; every rank makes all of them, in the same order.

    Both directions of hops have groups of their own, and those from the last stage
    round to the first have two more: between GPUs, sends of one direction would else
    wait for those of the other.
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
        self._made: dict[Ranks, Group] = {
            ranks: dist.new_group(list(ranks), timeout=timeout)
            for ranks in layout.groups
        }

    def of(self, ranks: Ranks) -> Group:
        """The group of some ranks; None for one rank alone."""
        return self._made.get(ranks)


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
    # Gloo learnt to scatter sums in PyTorch 2.8, and does no less than a whole sum.
    if x.is_cuda and min(sizes) == max(sizes):
        parts = [part.contiguous() for part in x.split(list(sizes), dim)]
        own = torch.empty_like(parts[place])
        dist.reduce_scatter(own, parts, group=group)
        return own
    whole = x.contiguous().clone()
    dist.all_reduce(whole, group=group)
    return whole.split(list(sizes), dim)[place].contiguous()
