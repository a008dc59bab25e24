"""Tensor parallelism: exchanges within a group, and their gradients.

Between layers each GPU of a group holds all of the activations, or with sequence
parallelism its part of every sequence. `enter` leads to matrices cut by columns, whose
inputs each GPU needs whole; `leave` from those cut by rows, whose outputs are sums.
"""

from collections.abc import Callable
from itertools import pairwise

from .groups import gathered, scattered
from .pytorch import Context, Group, Tensor, dist, torch

_SEQUENCE = 1  # the axis of tokens: activations are (samples, tokens, hidden)
Change = Callable[[Tensor], Tensor]


class _Exchange(torch.autograd.Function):  # type: ignore[misc]
    """One change of the activations, another one of their gradients."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, there: Change, back: Change) -> Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradient), None, None


class Cut:
    """One GPU's place in a tensor-parallel group of `degree` GPUs.

    `length` is that of a sequence; where `by_sequence`, layers hold a part of it.
    """

    def __init__(
        self, group: Group, place: int, degree: int, length: int, *, by_sequence: bool
    ) -> None:
        self.group, self.place, self.degree = group, place, degree
        self.length = length
        self.by_sequence = by_sequence and degree > 1
        edges = [length * i // degree for i in range(degree + 1)]
        self._sizes = [stop - start for start, stop in pairwise(edges)]
        self.first_token = edges[place] if self.by_sequence else 0

    def enter(self, x: Tensor) -> Tensor:
        """Activations for matrices cut by columns: whole sequences."""
        if self.degree == 1:
            return x
        there, back = (self._gather, self._scatter)
        if not self.by_sequence:
            there, back = _same, self._sum
        return self._exchange(x, there, back)

    def leave(self, x: Tensor) -> Tensor:
        """The sum of what matrices cut by rows give, as layers hold it."""
        if self.degree == 1:
            return x
        there, back = (self._scatter, self._gather)
        if not self.by_sequence:
            there, back = self._sum, _same
        return self._exchange(x, there, back)

    def split(self, x: Tensor) -> Tensor:
        """Return what came from the stage before, as layers hold it."""
        return self._exchange(x, self._own, self._gather) if self.by_sequence else x

    def join(self, x: Tensor) -> Tensor:
        """Return what layers hold, as the next stage gets it."""
        return self._exchange(x, self._gather, self._own) if self.by_sequence else x

    def own(self, x: Tensor) -> Tensor:
        """The part of every sequence that is this GPU's, of what layers hold."""
        if self.degree == 1 or self.by_sequence:
            return x
        return self._exchange(x, self._own, self._gather)

    def whole(self, x: Tensor) -> Tensor:
        """Parts of sequences as layers hold them."""
        if self.degree == 1 or self.by_sequence:
            return x
        return self._exchange(x, self._gather, self._own)

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the group, in place; not for gradients to pass."""
        if self.degree > 1:
            dist.all_reduce(x, group=self.group)
        return x

    def largest(self, x: Tensor) -> Tensor:
        """The elementwise maximum over the group, in place."""
        if self.degree > 1:
            dist.all_reduce(x, dist.ReduceOp.MAX, group=self.group)
        return x

    def _exchange(self, x: Tensor, there: Change, back: Change) -> Tensor:
        return _Exchange.apply(x, there, back)

    def _sum(self, x: Tensor) -> Tensor:
        return self.sum(x.clone(memory_format=torch.contiguous_format))

    def _gather(self, x: Tensor) -> Tensor:
        return gathered(x, self._sizes, _SEQUENCE, self.group)

    def _scatter(self, x: Tensor) -> Tensor:
        return scattered(x, self._sizes, self.place, _SEQUENCE, self.group)

    def _own(self, x: Tensor) -> Tensor:
        return x.split(self._sizes, _SEQUENCE)[self.place].contiguous()


def _same(x: Tensor) -> Tensor:
    return x.view_as(x)


# --- the loss ----------------------------------------------------------------------


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """Sum of -log softmax at the targets, of logits cut along the vocabulary."""

    @staticmethod
    def forward(
        ctx: Context, logits: Tensor, targets: Tensor, first: int, cut: Cut
    ) -> Tensor:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        shifted = wide - cut.largest(wide.amax(-1, keepdim=True))
        own = (targets >= first) & (targets < first + logits.shape[-1])
        place = torch.where(own, targets - first, 0).unsqueeze(-1)
        hit = shifted.gather(-1, place).squeeze(-1).masked_fill(~own, 0)
        powers = shifted.exp_()
        both = cut.sum(torch.stack((hit, powers.sum(-1))))
        ctx.save_for_backward(powers.div_(both[1].unsqueeze(-1)), place, own)
        ctx.dtype = logits.dtype
        return (both[1].log() - both[0]).sum()

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        shares, place, own = ctx.saved_tensors
        found = shares.scatter_add(-1, place, -own.to(shares.dtype).unsqueeze(-1))
        return (found * gradient).to(ctx.dtype), None, None, None


def cross_entropy(logits: Tensor, targets: Tensor, first: int, cut: Cut) -> Tensor:
    """The sum of losses, a scalar in single precision or better.

    `logits` are (samples, tokens, own part of the vocabulary, from word `first` on),
    `targets` (samples, tokens).
    """
    return _CrossEntropy.apply(logits, targets, first, cut)
