"""Experts: each token is sent to a few of them, none is dropped.

A router's softmax chooses the experts of a token and weighs what they give. Imbalance
is E sum_i f_i P_i of each sequence and layer (Switch Transformer, arXiv 2101.03961, eq.
4 to 6): f_i is how many of its tokens chose expert i, in proportion, P_i the mean of
their probabilities. Its mean over sequences and layers times the coefficient is added
to the loss; of single sequences it is, so that micro-batches and degrees do not matter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from .decoder import Experts
from .pytorch import Dtype, Tensor, functional, torch
from .tensor_parallel import Cut

Expert = Callable[[int, Tensor], Tensor]  # of a number, on rows of (tokens, hidden)


class _Pulled(torch.autograd.Function):  # type: ignore[misc]
    """A tensor as it is, with something added to its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pull: Tensor) -> Tensor:
        ctx.save_for_backward(pull)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, None]:
        return gradient + ctx.saved_tensors[0], None


class Choice(NamedTuple):
    """Of tokens one after another: their experts, (tokens, active), and the weights."""

    experts: Tensor
    weights: Tensor


class Mixture:
    """The experts of one GPU's layers, each cut as an MLP is.

    `pull` is what the gradient of one sequence's imbalance counts in that of the loss;
    it holds until the passes that were begun with it are done.
    """

    def __init__(self, shape: Experts, cut: Cut) -> None:
        self._shape, self._cut = shape, cut
        self.pull = 0.0

    def set_pull(self, sequences: int, scale: float) -> None:
        """For a global batch of so many sequences, and a loss that is held scaled."""
        layers = len(self._shape.layers)
        self.pull = self._shape.auxiliary * scale / (sequences * layers)

    def __call__(self, x: Tensor, router: Tensor, expert: Expert) -> Tensor:
        """What experts make of (samples, tokens, hidden), as layers hold it."""
        x = self._cut.enter(x)
        choice = self._chosen(x, router)
        made = _sent(x.flatten(0, 1), choice, self._shape.count, expert)
        return self._cut.leave(made.view_as(x))

    def _chosen(self, x: Tensor, router: Tensor) -> Choice:
        logits = functional.linear(x, router)
        wide = torch.promote_types(logits.dtype, torch.float32)
        shares = logits.softmax(-1, dtype=wide)
        _, experts = shares.topk(self._shape.active, -1)
        # GPUs of a group see the same tokens: one of them counts the imbalance.
        if self._cut.place == 0 and shares.requires_grad:
            shares = _Pulled.apply(shares, self._pull(experts, wide))
        weights = shares.gather(-1, experts)
        if self._shape.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return Choice(experts.flatten(0, 1), weights.flatten(0, 1).to(x.dtype))

    def _pull(self, experts: Tensor, dtype: Dtype) -> Tensor:
        """(samples, 1, experts): the gradient of imbalance by every token's shares."""
        samples, tokens, _ = experts.shape
        count = self._shape.count
        used = functional.one_hot(experts.reshape(samples, -1), count).sum(1)
        return (used.to(dtype) * (self.pull * count / tokens**2)).unsqueeze(1)


def _sent(x: Tensor, choice: Choice, count: int, expert: Expert) -> Tensor:
    """Rows (tokens, hidden) through the experts of each, weighed and added up."""
    tokens, active = choice.experts.shape
    flat = choice.experts.flatten()
    order = flat.argsort(stable=True)
    sizes = torch.bincount(flat, minlength=count).tolist()
    parts = x[order // active].split(sizes)
    # An expert that nobody chose has a gradient, too: 0.
    made = torch.cat([expert(number, part) for number, part in enumerate(parts)])
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    rows = made[back].view(tokens, active, -1)
    return (rows * choice.weights.unsqueeze(-1)).sum(1)
