"""How a symmetric run lies on its GPUs, and what its framework does."""

import re
from dataclasses import dataclass
from functools import cached_property

from ...schema.groups import modules_of
from ...schema.layers import DENSE, EXPERTS, MAMBA
from .architecture import Division

#: Adapters beside all matrices of a layer.
BESIDE_ALL = ("attention", "mlp")


def half_years(release: str | None) -> float:
    """Return the half-years of a release `26.02.01` since 2026-02."""
    if release is None or not (found := re.match(r"(\d\d)\.(\d\d)", release)):
        return 0.0
    year, month = map(int, found.groups())
    return ((year - 26) * 12 + month - 2) / 6


@dataclass(frozen=True)
class Layout:
    """One model, split alike everywhere."""

    framework: str  # that of the program, or that it is made of
    style: str  # eager, compiled, fused
    precision: str  # of the products of layers
    sequence: int
    micro_batch: int  # sequences
    micro_batches: int  # of each pipeline
    dp: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    vp: int = 1
    ep: int = 1
    etp: int | None = None  # GPUs that cut an expert; None: as `Division.of` has it
    zero: int = 0
    shard: int = 0  # GPUs that divide the weights: FSDP, ZeRO-3; 0: none
    sharding: str = "fsdp"  # who gathers: fsdp, fsdp1 (of transformers), deepspeed
    recompute: str = "none"  # a rule of plans, block (some layers), ops (per operator)
    recomputed: float = 1.0  # share of layers that "block" recomputes
    split_sequence: bool = True  # sequence parallelism along with tp
    kernel: str | None = "flash2"  # of attention; None: scores in memory
    sinks: bool = False  # of attention, which its kernel was not written for
    expert_biases: bool = False  # added to what their products give
    rowwise: bool = False  # scales of fp8 by row
    accumulate_fp32: bool = True
    lora: bool = False  # frozen weights, adapters beside them
    rank: int = 0  # of adapters
    adapted: tuple[str, ...] = BESIDE_ALL  # what has adapters beside it
    attended: str = "qkvo"  # matrices of attention that have one, where it is adapted
    drops: bool = True  # adapters, from what they take
    frozen_bits: int | None = None  # of quantised frozen weights; None: 16
    quantised_beside: bool = False  # weights of fewer bits are kept beside those of 16
    offload: bool = False
    overlap_tp: bool = False
    overlap_ep: bool | None = False  # None: not told
    overlap_dp: bool = True
    bucket: float | None = None  # gradients that DeepSpeed sums at once; None: not told
    buckets: int = 1  # two where it fills one while another is summed
    graphs: tuple[str, ...] = ()  # that CUDA graphs launch, by Megatron's names
    flexible: bool = False  # a dispatcher of tokens that fuses permutation
    looped: bool = False  # experts, one after the other
    gathered_bytes: float = 2.0  # of an updated weight, as replicas get it
    in_switch: bool = False  # where gradients are summed
    owners: int = 0  # GPUs that each send all others what they updated, in turns
    half_years: float = 0.0  # of the release, from 2026-02
    stage_layers: tuple[int, ...] | None = None
    states: str = "mixed"  # of weights: mixed, fp32 (as the products), amp, 16bit
    moments_bits: int = 32
    updated_at_once: bool = False  # as each gradient is there, which then goes
    ragged: bool = False  # micro-batches differ in length
    listed: bool = False  # the optimiser makes lists as large as its moments
    dropout: bool = False  # with masks in memory
    fused_loss: bool = False  # logits without copies of 32 bits
    chunked_loss: bool = False  # logits of a part of the tokens at a time
    balanced: bool = False  # experts have equal parts of the tokens, by force
    own: bool = True  # whether the program is the framework itself
    hosted: tuple[str, ...] = ()  # on the host: optimizer, parameters
    hosted_layers: float = 0.0  # share of layers whose activations are on the host

    @property
    def gpus(self) -> int:
        """Return the number of all GPUs."""
        return self.dp * self.tp * self.cp * self.pp

    @property
    def tokens(self) -> float:
        """Return the tokens of a micro-batch that one GPU has."""
        return self.micro_batch * self.sequence / self.cp

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Return what of a layer is computed again by name."""
        return () if self.recompute in ("block", "ops") else modules_of(self.recompute)

    def captured(self, part: str) -> float:
        """Return the share of what a part launches that CUDA graphs launch.

        Of experts a graph may have the router and what sorts tokens: half of it.
        """
        if "full_iteration" in self.graphs:
            return 1.0
        if part == EXPERTS:
            return 0.5 * ("moe_router" in self.graphs)
        return float({DENSE: "mlp", MAMBA: "mamba"}.get(part, "attn") in self.graphs)

    @cached_property
    def experts(self) -> Division:
        """How experts are divided."""
        return Division.of(self.tp, self.ep, self.etp)

    def expert_replicas(self, replicas: float) -> float:
        """Return how many GPUs hold the same experts, of those of `replicas`."""
        return max(1.0, replicas * self.tp / (self.ep * self.experts.cut))
