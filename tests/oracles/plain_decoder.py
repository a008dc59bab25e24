"""A decoder on one process, written out plainly: what any plan must come to.

Weights are a dictionary by the names of `hetopt.runtime.parameters`; nothing else is
shared with the executor.
"""

import torch
from torch.nn import functional as F

from hetopt.runtime.decoder import Decoder


def norm(shape, weights, name, x):
    weight = weights[f"{name}.weight"]
    if shape.norm == "rms":
        return x / (x.pow(2).mean(-1, keepdim=True) + shape.norm_eps).sqrt() * weight
    middle = x - x.mean(-1, keepdim=True)
    spread = (middle.pow(2).mean(-1, keepdim=True) + shape.norm_eps).sqrt()
    return middle / spread * weight + weights[f"{name}.bias"]


def linear(weights, name, x):
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def rotated(shape, x):
    """Pairs (i, i + width / 2) of (batch, heads, tokens, width) turned as complex."""
    half = shape.head_dim // 2
    rates = shape.rope_theta ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * rates
    turned = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    turned = turned * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), -1)


def attention(shape, weights, name, x):
    def heads(part, count):
        y = linear(weights, f"{name}.{part}", x)
        return y.view(*x.shape[:2], count, shape.head_dim).transpose(1, 2)

    q, k, v = (
        heads("q", shape.heads),
        heads("k", shape.kv_heads),
        heads("v", shape.kv_heads),
    )
    if shape.qk_norm:
        q = norm(shape, weights, f"{name}.q_norm", q)
        k = norm(shape, weights, f"{name}.k_norm", k)
    if shape.positions == "rope":
        q, k = rotated(shape, q), rotated(shape, k)
    k, v = (y.repeat_interleave(shape.heads // shape.kv_heads, 1) for y in (k, v))
    scores = q @ k.transpose(-1, -2) / shape.head_dim**0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
    return linear(weights, f"{name}.out", mixed.transpose(1, 2).flatten(2))


def mlp(shape, weights, name, x):
    bend = {
        "gelu": F.gelu,
        "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
        "relu": F.relu,
        "silu": F.silu,
    }[shape.activation]
    wide = linear(weights, f"{name}.up", x)
    wide = (
        bend(linear(weights, f"{name}.gate", x)) * wide if shape.gated else bend(wide)
    )
    return linear(weights, f"{name}.down", wide)


def mixture(shape, weights, name, x):
    """Experts token by token, and the mean imbalance of the sequences."""
    experts, rows = shape.experts, []
    shares = (x @ weights[f"{name}.experts.router.weight"].T).softmax(-1)
    used = torch.zeros_like(shares[:, 0])
    for sample in range(x.shape[0]):
        for token in range(x.shape[1]):
            one, mine = x[sample, token], shares[sample, token]
            best = sorted(range(experts.count), key=lambda i: -mine[i].item())
            best = best[: experts.active]
            used[sample, best] += 1
            total = sum(mine[i] for i in best) if experts.normalised else 1
            row = sum(
                mine[i] / total * mlp(shape, weights, f"{name}.experts.{i}", one)
                for i in best
            )
            if experts.shared:
                shared = mlp(shape, weights, f"{name}.shared", one)
                if experts.shared_gated:
                    weight = weights[f"{name}.shared_gate.weight"]
                    shared = shared * torch.sigmoid(weight @ one)
                row = row + shared
            rows.append(row)
    uneven = experts.count * (used / x.shape[1] * shares.mean(1)).sum(-1).mean()
    return torch.stack(rows).view_as(x), uneven


def loss(shape: Decoder, weights: dict[str, torch.Tensor], rows: torch.Tensor):
    """The mean loss of rows of (samples, length + 1) words, and what is added to it."""
    uneven = []
    words, targets = rows[:, :-1], rows[:, 1:]
    x = weights["embedding.weight"][words]
    if shape.positions == "learned":
        x = x + weights["embedding.positions"][: words.shape[1]]
    for layer in range(shape.layers):
        name = f"layers.{layer}"
        x = x + attention(
            shape,
            weights,
            f"{name}.attention",
            norm(shape, weights, f"{name}.norm_1", x),
        )
        y = norm(shape, weights, f"{name}.norm_2", x)
        if shape.has_experts(layer):
            y, beside = mixture(shape, weights, name, y)
            uneven.append(beside)
        else:
            y = mlp(shape, weights, f"{name}.mlp", y)
        x = x + y
    x = norm(shape, weights, "head.norm", x)
    head = weights["embedding.weight" if shape.tied else "head.weight"]
    mean = F.cross_entropy((x @ head.T).flatten(0, 1), targets.flatten())
    if not uneven:
        return mean, 0.0
    return mean, shape.experts.auxiliary * sum(uneven) / len(uneven)


class Single:
    """Training on one process; parameters and last gradients by name."""

    def __init__(self, shape: Decoder, weights: dict[str, torch.Tensor], rules) -> None:
        self.shape = shape
        self.weights = {n: w.clone().requires_grad_() for n, w in weights.items()}
        self.clip = rules.clip
        parts = [
            [w for w in self.weights.values() if (w.ndim > 1) == matrices]
            for matrices in (True, False)
        ]
        self.adam = torch.optim.AdamW(
            [
                {"params": parts[0], "weight_decay": rules.weight_decay},
                {"params": parts[1], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.95),
            eps=1e-8,
        )

    def loss(self, rows: torch.Tensor):
        """The mean loss of rows, and what is added to it."""
        return loss(self.shape, self.weights, rows)

    def step(self, rows: torch.Tensor, rate: float) -> tuple[float, float]:
        """Loss and norm of a step; `gradients` are those before clipping."""
        self.adam.zero_grad()
        value, beside = self.loss(rows)
        (value + beside).backward()
        for w in self.weights.values():  # of experts that nobody chose
            w.grad = torch.zeros_like(w) if w.grad is None else w.grad
        self.gradients = {n: w.grad.clone() for n, w in self.weights.items()}
        limit = self.clip or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(list(self.weights.values()), limit)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        return value.item(), norm.item()
