"""Tokens on their way to experts that several GPUs divide, and back.

The GPUs of a block have an equal run of the experts each, whole. Every GPU sends each
of its rows to the owner of the expert that the row goes to, and gets it back from
there: two all-to-all exchanges of as many rows as there are, and two of gradients.
"""

from collections.abc import Callable

from .pytorch import Context, Group, Tensor, dist, torch

Experts = Callable[[Tensor, list[int]], Tensor]  # of rows, so many for each expert


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    """Rows to all GPUs of a group, and their gradients back."""

    @staticmethod
    def forward(
        ctx: Context, rows: Tensor, sent: list[int], got: list[int], group: Group
    ) -> Tensor:
        ctx.way = sent, got, group
        return _exchange(rows, sent, got, group)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        sent, got, group = ctx.way
        return _exchange(gradient, got, sent, group), None, None, None


class Crossing:
    """The way to the experts of a block of `size` GPUs, and back."""

    def __init__(self, group: Group, size: int) -> None:
        self._group, self._size = group, size

    def __call__(self, rows: Tensor, counts: Tensor, experts: Experts) -> Tensor:
        """Return what all experts make of rows, `counts` for each expert, in its order.

        `experts` are the GPU's own ones.
        """
        sent = counts.view(self._size, -1)
        got = torch.empty_like(sent)  # by the sender, and by the own expert
        dist.all_to_all_single(got, sent.contiguous(), group=self._group)
        away, here = (x.sum(1).tolist() for x in (sent, got))
        rows = _AllToAll.apply(rows, away, here, self._group)
        # They come sorted by sender; experts want them by expert.
        labels = torch.arange(got.shape[1], device=got.device).repeat(self._size)
        order = labels.repeat_interleave(got.flatten()).argsort(stable=True)
        made = experts(rows[order], got.sum(0).tolist())
        return _AllToAll.apply(made[inverse(order)], here, away, self._group)


def inverse(order: Tensor) -> Tensor:
    """The permutation that undoes another one."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return back


def _exchange(rows: Tensor, sent: list[int], got: list[int], group: Group) -> Tensor:
    arrived = rows.new_empty((sum(got), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), got, sent, group=group)
    return arrived
