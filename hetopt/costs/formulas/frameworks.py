"""Defaults of frameworks: one table, for runs and for plans."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

T = TypeVar("T")


def first(table: Mapping[str, T], text: str) -> T | None:
    """Return what the first word of a table is of that a text holds; None: none."""
    return next((found for word, found in table.items() if word in text), None)


class Framework(NamedTuple):
    """How a framework computes, keeps and reduces."""

    style: str = "eager"
    kernel: str | None = "flash2"  # of attention; None: scores in memory
    split_sequence: bool = True  # sequence parallelism along with tp
    fp32_gradients: bool = False  # as they are reduced
    overlapped: bool = True  # gradients behind the backward pass
    sharding: str = "fsdp"  # who gathers where weights are divided
    fused_loss: bool = False
    dropout: bool = False
    chunked_loss: bool = False
    compiled_loss: bool = False  # one kernel where it compiles
    recompute: str = "none"  # where a run does not tell
    selective: str = "selective"  # what that alone means
    narrow_states: bool = False  # as wide as weights, where these have 16 bits
    listed: bool = False  # AdamW by lists of tensors (`foreach`), not one kernel
    stops_early: bool = False  # a layer's second pass, as nothing is kept of its end
    padded: int = 0  # of the vocabulary a GPU has a multiple of so many


#: Programs with PyTorch's own checkpoints, not reentrant: `early_stop`, since 2.1.
_PLAIN = Framework(stops_early=True)
#: Software before FlashAttention was in it (2020 to 2022).
_OLD = Framework(kernel=None, split_sequence=False, sharding="zero3", padded=128)

FRAMEWORKS: dict[str, Framework] = {
    # Recipes of Megatron-Bridge and NeMo say grad_reduce_in_fp32 = False.
    "megatron": Framework("fused", "cudnn", fused_loss=True, padded=128),
    "megatron-2021": _OLD._replace(style="fused", overlapped=False, dropout=True),
    "deepspeed-2021": _OLD,
    "trainer-2021": _OLD._replace(padded=0),
    "deepspeed": Framework(sharding="deepspeed"),
    "trainer": Framework(sharding="deepspeed", listed=True),
    "torchtitan": _PLAIN._replace(
        fp32_gradients=True, compiled_loss=True, selective="ops"
    ),
    "nanotron": Framework(fp32_gradients=True, overlapped=False),
    "llm-foundry": _PLAIN._replace(kernel="flash1", fused_loss=True),
    "fms": _PLAIN,
    "torch": _PLAIN,
    "internevo": Framework(listed=True),
    # `hetopt run`: plain PyTorch, but loss, rotations and AdamW operator by operator.
    "executor": _PLAIN,
    # Heads of LoRA's models and losses are made in chunks of 128 tokens.
    "litgpt": _PLAIN._replace(fused_loss=True),
    # Its recipes: `CEWithChunkedOutputLoss`, checkpointing, one kernel for AdamW.
    "torchtune": _PLAIN._replace(
        chunked_loss=True, recompute="full", narrow_states=True
    ),
    # Its own kernels of norms, rotations, losses and adapters make no copies.
    "unsloth": Framework("fused", sharding="deepspeed", fused_loss=True),
    # FSDP2, and layers of Transformer Engine.
    "automodel": _PLAIN._replace(style="fused", kernel="cudnn", fp32_gradients=True),
    # No Python: one kernel of loss and gradient, norms with residuals.
    "llm.c": Framework("fused", "cudnn", fused_loss=True, padded=128),
}

#: Matrices with adapters unless they are told, and whether these drop from what they
#: take, by a word of a program's name, the first that fits. Before its third version
#: ms-swift adapted queries, keys and values alone.
_ADAPTING = {
    **dict.fromkeys(("factory", "unsloth", "automodel"), ("all", False)),
    "torchtune": ("q v o mlp", False),
    **dict.fromkeys(("litgpt", "peft", "trl"), ("q v", True)),
    **dict.fromkeys(("swift 3", "swift v3", "swift 4", "swift v4"), ("all", True)),
    "swift": ("q k v", True),
    "mlperf": ("attention", True),
}


def adapting(program: str) -> tuple[str, bool]:
    """Return what a program adapts unless it is told, and whether it drops."""
    return first(_ADAPTING, program.lower()) or ("all", True)


#: Frameworks whose pipeline and optimiser are DeepSpeed's.
DEEPSPEED = frozenset(
    {"megatron-2021", "deepspeed", "trainer", "deepspeed-2021", "trainer-2021"}
)

#: Programs that take the kernel of their own choice; others leave it to PyTorch.
_OWN_KERNEL = frozenset(FRAMEWORKS) - {
    *("torch", "executor", "litgpt", "torchtune", "trainer", "unsloth")
}


def by_pytorch(name: str) -> bool:
    """Return whether a program leaves the choice of attention's kernel to PyTorch."""
    return name not in _OWN_KERNEL


def kernel_of(name: str, generation: str | None) -> str | None:
    """Return the kernel of attention that a framework takes on a generation of cards.

    PyTorch since 2.11 takes cuDNN's on Hopper, FlashAttention-2 elsewhere.
    """
    by_cudnn = by_pytorch(name) and generation == "Hopper"
    return "cudnn" if by_cudnn else framework(name).kernel


def framework(name: str) -> Framework:
    """Return what is known of a framework; of an unknown one, what PyTorch does."""
    return FRAMEWORKS.get(name, FRAMEWORKS["torch"])
