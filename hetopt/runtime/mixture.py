"""Experts: each token is sent to a few of them, none is dropped.

A router's softmax chooses the experts of a token and weighs what they give. Imbalance
is E sum_i f_i P_i of each sequence and layer (Switch Transformer, arXiv 2101.03961, eq.
4 to 6): f_i is how many of its tokens chose expert i, in proportion, P_i the mean of
their probabilities. Its mean over sequences and layers times the coefficient is added
to the loss; of single sequences it is, so that micro-batches and degrees do not matter.

Where several GPUs of a block divide the experts, each has an equal run of them, whole.
Every GPU sends each of its rows to the owner of the expert that the row goes to, and
gets it back from there: two all-to-all exchanges of as many rows as there are, and two
of gradients.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .decoder import Experts
from .pytorch import Context, Dtype, Group, Tensor, dist, functional, torch
from .tensor_parallel import Cut

Expert = Callable[[int, Tensor], Tensor]  # of a number, on rows of (tokens, hidden)
Rows = Callable[[Tensor, list[int]], Tensor]  # experts, of so many rows for each


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

    def __call__(self, rows: Tensor, counts: Tensor, experts: Rows) -> Tensor:
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


class _Pulled(torch.autograd.Function):  # type: ignore[misc]
    """A tensor as it is, with something added to its gradient."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, pull: Tensor) -> Tensor:
        ctx.save_for_backward(pull)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient + ctx.saved_tensors[0], None


class Choice(NamedTuple):
    """The choice of tokens in order: experts, (tokens, active), and weights."""

    experts: Tensor
    weights: Tensor


class Mixture:
    """The experts of one GPU's layers: a part of each, as of an MLP, or some, whole.

    Where a GPU has whole ones, from number `first` on, `crossing` leads to all of them,
    and each GPU of a group sends tokens of its own there.
    """

    def __init__(
        self, shape: Experts, cut: Cut, crossing: Crossing | None = None, first: int = 0
    ) -> None:
        self._shape, self._cut = shape, cut
        self._crossing, self._first = crossing, first
        # What the gradient of one sequence's imbalance counts in that of the loss; it
        # holds until the passes that were begun with it are done.
        self._pull = 0.0

    def set_pull(self, sequences: int, scale: float) -> None:
        """For a global batch of so many sequences, and a loss that is held scaled."""
        layers = len(self._shape.layers)
        self._pull = self._shape.auxiliary * scale / (sequences * layers)

    def __call__(self, x: Tensor, router: Tensor, expert: Expert) -> Tensor:
        """Return what experts make of (samples, tokens, hidden), as layers hold it."""
        divided = self._crossing is not None
        x = self._cut.own(x) if divided else self._cut.enter(x)
        choice = self._chosen(x, router)
        made = self._send(x.flatten(0, 1), choice, expert).view_as(x)
        return self._cut.whole(made) if divided else self._cut.leave(made)

    def _chosen(self, x: Tensor, router: Tensor) -> Choice:
        logits = functional.linear(x, router)
        wide = torch.promote_types(logits.dtype, torch.float32)
        shares = logits.softmax(-1, dtype=wide)
        _, experts = shares.topk(self._shape.active, -1)
        # GPUs that see the same tokens: one of them counts their imbalance.
        if self._pull and (self._crossing is not None or self._cut.place == 0):
            shares = _Pulled.apply(shares, self._pulled(experts, wide))
        weights = shares.gather(-1, experts)
        if self._shape.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return Choice(experts.flatten(0, 1), weights.flatten(0, 1).to(x.dtype))

    def _pulled(self, experts: Tensor, dtype: Dtype) -> Tensor:
        """(samples, 1, experts): the gradient of imbalance by every token's shares."""
        count, tokens = self._shape.count, self._cut.length
        used = functional.one_hot(experts.flatten(1), count).sum(1)
        if self._crossing is not None:
            used = self._cut.sum(used)
        return (used.to(dtype) * (self._pull * count / tokens**2)).unsqueeze(1)

    def _send(self, x: Tensor, choice: Choice, expert: Expert) -> Tensor:
        """Rows (tokens, hidden) through the experts of each, weighed and added up."""
        tokens, active = choice.experts.shape
        flat = choice.experts.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self._shape.count)
        rows = x[order // active]
        if self._crossing is None:
            made = self._through(expert, rows, counts.tolist())
        else:
            made = self._crossing(rows, counts, partial(self._through, expert))
        made = made[inverse(order)].view(tokens, active, -1)
        return (made * choice.weights.unsqueeze(-1)).sum(1)

    def _through(self, expert: Expert, rows: Tensor, sizes: list[int]) -> Tensor:
        # An expert that nobody chose has a gradient, too: 0.
        parts = enumerate(rows.split(sizes), self._first)
        return torch.cat([expert(number, part) for number, part in parts])
