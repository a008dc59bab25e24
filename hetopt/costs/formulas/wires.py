"""Seconds that messages take on wires, before what is hidden behind computing."""

from . import shared
from .architecture import Architecture
from .kernels import Constants
from .layout import Layout
from .machine import Machine


def ring_s(machine: Machine, volume: float, size: int, stride: int = 1) -> float:
    """Gathering or scattering `volume` bytes among `size` GPUs, every stride-th."""
    if size < 2:
        return 0.0
    return shared.ring_s(volume, size, 0.0, machine.ring_bytes_per_s(size, stride))


def tensor_s(
    c: Constants, machine: Machine, a: Architecture, run: Layout, tokens: float
) -> float:
    """Return what the collectives of one part of a layer take, forward.

    An all-reduce, or its two halves, is twice a ring's pass and a copy, a part of the
    volume of each GPU, and takes a while to start within a node, whatever its volume.
    """
    if run.tp < 2:
        return 0.0
    volume = 2 * tokens * a.hidden
    copied = c("tp.copy") * volume / run.tp
    sent = 2 * ring_s(machine, volume, run.tp) + copied / machine.link_bytes_per_s
    return sent + (c("tp.start") + c("tp.start.gpu") * run.tp)


def context_s(machine: Machine, a: Architecture, run: Layout) -> float:
    """Keys and values of a layer around the context-parallel ring, forward."""
    kv = max(a.kv_heads / run.tp, 1) * a.head_dim * 2
    tokens = run.micro_batch * run.sequence
    return ring_s(machine, 2 * tokens * kv, run.cp, run.tp)


def experts_s(machine: Machine, a: Architecture, run: Layout, tokens: float) -> float:
    """Tokens to their experts and back, forward; a token once to each other node.

    `tokens` are those of a tensor-parallel group, whose GPUs are among the `ep` that
    share the experts: each has a part of the tokens, and whole experts.
    """
    if run.ep < 2:
        return 0.0
    sent = tokens / run.tp * a.experts_per_token * a.hidden * 2
    away, cut = (run.ep - 1) / run.ep, run.experts.cut
    gathered = 2 * ring_s(machine, sent * cut, cut)  # where several cut an expert
    if run.ep * cut <= machine.domain:
        return 2 * sent * away / machine.link_bytes_per_s + gathered
    nodes = max(1.0, run.ep * cut / machine.domain)
    k = a.experts_per_token
    reached = nodes * (1 - (1 - 1 / nodes) ** k)  # of nodes, its own included
    other = tokens / run.tp * a.hidden * 2 * reached * (1 - 1 / nodes)
    inside = sent * away / nodes / machine.link_bytes_per_s
    return 2 * (other / machine.share_bytes_per_s + inside) + gathered


def hop_s(machine: Machine, a: Architecture, run: Layout, tokens: float) -> float:
    """One micro-batch's activations to the next stage, one way.

    Each GPU of a stage sends its part: with sequence parallelism, by Megatron-LM's
    `scatter_gather_tensors_in_pipeline` of 2021, DeepSpeed's `is_pipe_partitioned`.
    """
    volume = 2 * tokens * a.hidden / run.tp
    inside = run.tp * run.cp * run.dp * run.pp <= machine.domain
    if inside or (run.dp == 1 and 2 * run.tp * run.cp <= machine.domain):
        rate = machine.link_bytes_per_s
    else:
        rate = machine.share_bytes_per_s
    return volume / min(rate, machine.link_bytes_per_s)
