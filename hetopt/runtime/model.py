"""The passes of one stage: embedding, layers and head on one GPU's part of weights."""

import math
from collections.abc import Callable, Mapping
from functools import cache, partial

from ..schema import Recompute
from ..schema.model import RopeScaling
from .decoder import Decoder
from .mixture import Mixture
from .parameters import TABLE
from .pytorch import Device, Dtype, Tensor, again, functional, torch
from .tensor_parallel import Cut, cross_entropy

Weights = Mapping[str, Tensor]
_BEND: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


class StageModel:
    """A stage's layers; `weights` are the own parts by the whole parameters' names.

    `first_word` is the first of the vocabulary that this GPU holds; `mixture` is for
    models with experts.
    """

    def __init__(
        self,
        shape: Decoder,
        weights: Weights,
        cut: Cut,
        recompute: Recompute,
        first_word: int,
        mixture: Mixture | None,
    ) -> None:
        self.shape, self.weights = shape, weights
        self.cut, self.recompute, self.first_word = cut, recompute, first_word
        self.mixture = mixture

    def embedded(self, tokens: Tensor) -> Tensor:
        """Words (samples, tokens) as layers hold them."""
        table = self.weights[TABLE]
        own = (tokens >= self.first_word) & (tokens < self.first_word + len(table))
        rows = functional.embedding(
            torch.where(own, tokens - self.first_word, 0), table
        )
        x = self.cut.leave(rows.masked_fill(~own.unsqueeze(-1), 0))
        if self.shape.positions == "learned":
            first = self.cut.first_token
            mine = slice(first, first + x.shape[1])
            x = x + self.weights["embedding.positions"][mine]
        return x

    def through_layers(self, x: Tensor, layers: range) -> Tensor:
        """Activations after some layers of the stage; (samples, tokens, hidden)."""
        for number in layers:
            if self.recompute == "full":
                x = again(self._layer, number, x, use_reentrant=False)
            else:
                x = self._layer(number, x)
        return x

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """The sum of the targets' losses; every GPU of the group has it."""
        x = self.cut.enter(self._norm("head.norm", x))
        matrix = self.weights[TABLE if self.shape.tied else "head.weight"]
        logits = functional.linear(x, matrix)
        return cross_entropy(logits, targets, self.first_word, self.cut)

    def _layer(self, number: int, x: Tensor) -> Tensor:
        name = f"layers.{number}"
        y = self._norm(f"{name}.norm_1", x)
        x = x + self._attention(f"{name}.attention", y)
        y = self._norm(f"{name}.norm_2", x)
        if self.mixture is None or not self.shape.has_experts(number):
            return x + self._mlp(f"{name}.mlp", y)
        return x + self._experts(name, self.mixture, y)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, eps = self.weights[f"{name}.weight"], self.shape.norm_eps
        if self.shape.norm == "rms":
            return functional.rms_norm(x, weight.shape, weight, eps)
        bias = self.weights[f"{name}.bias"]
        return functional.layer_norm(x, weight.shape, weight, bias, eps)

    def _columns(self, name: str, x: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias")
        return functional.linear(x, self.weights[f"{name}.weight"], bias)

    def _rows(self, name: str, x: Tensor) -> Tensor:
        x = self.cut.leave(functional.linear(x, self.weights[f"{name}.weight"]))
        bias = self.weights.get(f"{name}.bias")
        return x if bias is None else x + bias

    def _attention(self, name: str, x: Tensor) -> Tensor:
        x = self.cut.enter(x)
        heads = (*x.shape[:2], -1, self.shape.head_dim)
        q, k, v = (
            self._columns(f"{name}.{part}", x).view(heads).transpose(1, 2)
            for part in "qkv"
        )
        if self.shape.qk_norm:
            q, k = self._norm(f"{name}.q_norm", q), self._norm(f"{name}.k_norm", k)
        if self.shape.positions == "rope":
            turns = _turns(self.shape, x.shape[1], x.device, x.dtype)
            q, k = _turn(q, *turns), _turn(k, *turns)
        if self.recompute == "selective":
            mixed = again(_mixed, q, k, v, use_reentrant=False)
        else:
            mixed = _mixed(q, k, v)
        return self._rows(f"{name}.out", mixed.transpose(1, 2).flatten(2))

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        return self._rows(f"{name}.down", self._wide(name, self.cut.enter(x)))

    def _wide(self, name: str, x: Tensor) -> Tensor:
        """Between the matrices of an MLP."""
        bend, wide = _BEND[self.shape.activation], self._columns(f"{name}.up", x)
        if not self.shape.gated:
            return bend(wide)
        return bend(self._columns(f"{name}.gate", x)) * wide

    def _experts(self, name: str, mixture: Mixture, x: Tensor) -> Tensor:
        """Return what a token's experts give, and what all tokens share."""
        router = self.weights[f"{name}.experts.router.weight"]
        made = mixture(x, router, partial(self._expert, f"{name}.experts"))
        assert self.shape.experts is not None
        if not self.shape.experts.shared:
            return made
        shared = self._mlp(f"{name}.shared", x)
        if self.shape.experts.shared_gated:
            gate = self.weights[f"{name}.shared_gate.weight"]
            shared = functional.linear(x, gate).sigmoid() * shared
        return made + shared

    def _expert(self, name: str, number: int, rows: Tensor) -> Tensor:
        """The GPU's part of what an expert makes of (tokens, hidden)."""
        down = self.weights[f"{name}.{number}.down.weight"]
        return functional.linear(self._wide(f"{name}.{number}", rows), down)


def _mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, of (samples, heads, tokens, width); keys may be shared."""
    shared = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=shared
    )


# --- rotary positions ----------------------------------------------------------------


def _turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    return x * cosine + torch.cat((-two, one), -1) * sine


@cache
def _turns(
    shape: Decoder, tokens: int, device: Device, dtype: Dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (tokens, width of a head), of both halves of a head."""
    width = shape.head_dim
    rates = shape.rope_theta ** -(
        torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    if shape.stretch is not None:
        rates = _stretch(rates, shape.stretch)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), rates).repeat(1, 2)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def _stretch(rates: Tensor, stretch: RopeScaling) -> Tensor:
    """Slow turns slowed down by the factor, fast ones as they are, a ramp between."""
    told = stretch.model_dump()
    low, high = told["low_freq_factor"], told["high_freq_factor"]
    turns = told["original_length"] * rates / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return rates * (keep + (1 - keep) / stretch.factor)
