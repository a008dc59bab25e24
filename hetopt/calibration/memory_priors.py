"""What is thought of the constants of memory before any run, and why.

Bytes, bytes of a logit, or shares; `name@quality` multiplies `name`. Accounts of
operators and of states are not among them: those are counted, not fitted.
"""

from typing import NamedTuple


class Sourced(NamedTuple):
    """A middle, a log-deviation, and where they come from."""

    middle: float
    spread: float
    source: str


PRIORS: dict[str, Sourced] = {
    "memory.activations": Sourced(
        1.0, 0.03, "the account by operators is within 1 % on one H100, PyTorch 2.11"
    ),
    "memory.working": Sourced(
        1.0, 0.4, "gradients of the widest tensors of a layer, all alive at once"
    ),
    "memory.head": Sourced(
        12.0, 0.1, "cross entropy in 32 bits of 16-bit logits: three copies alive, H100"
    ),
    "memory.head@megatron-2021": Sourced(
        0.83, 0.15, "vocabulary-parallel: softmax in place of a copy: 2 + 4 + 4 bytes"
    ),
    "memory.head@nanotron": Sourced(
        0.83, 0.2, "vocabulary-parallel: softmax in place of a copy: 2 + 4 + 4 bytes"
    ),
    "memory.head@sailor": Sourced(
        0.67, 0.2, "32-bit logits: no copy by conversion: 4 + 4 + 4 + 4 bytes"
    ),
    "memory.head@trainer": Sourced(
        0.67,
        0.2,
        "loss of a model in halves without conversion: four copies of 2 bytes",
    ),
    "memory.head.fused": Sourced(
        5.0, 0.3, "logits and their gradient in place, or both and a part of a copy"
    ),
    "memory.units": Sourced(2.0, 0.2, "FSDP gathers a layer while it computes another"),
    "memory.fragments": Sourced(
        0.03, 0.5, "reserved over allocated of runs that keep everything, H100"
    ),
    "memory.fragments@megatron-2021": Sourced(
        2.5, 0.5, "allocators before 2022 split large blocks without limit"
    ),
    "memory.fragments.again": Sourced(
        0.35, 0.4, "more over the logits' bytes where layers are recomputed, H100"
    ),
    "memory.communicators": Sourced(
        1.2e9, 0.5, "buffers of channels and peers of a handful of NCCL communicators"
    ),
    "memory.communicators@Volta": Sourced(
        0.7, 0.3, "fewer NVLinks and channels, older NCCL"
    ),
    "memory.context": Sourced(
        0.82e9, 0.05, "used over reserved, H100, kernels loaded as they are used"
    ),
    "memory.context@megatron-2021": Sourced(
        1.8, 0.3, "before CUDA 11.7 all kernels of all libraries are loaded"
    ),
    "memory.context@Volta": Sourced(0.8, 0.2, "fewer multiprocessors have less state"),
    "memory.context@sailor": Sourced(
        1.2, 0.3, "kernels of a second framework, GH200: nothing measured apart"
    ),
    "memory.recoverable": Sourced(
        0.5, 0.2, "blocks that are free whole are given back, parts of blocks are not"
    ),
    "memory.usable": Sourced(
        0.99, 0.003, "79.2 of 80 GiB (A100, H100), 31.75 of 32 and 15.8 of 16 (V100)"
    ),
    "memory.margin": Sourced(
        0.04, 0.01, "least that refuses every measured run that died"
    ),
}
