"""Seconds of one GPU's layers, gradients and updates, and of an iteration, by term.

One pipeline of a symmetric run stands for all: it takes as long as its slowest stage
for each micro-batch, and what fills and drains it. The slowest sum of gradients and
update come after.
"""

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from operator import mul
from statistics import NormalDist
from typing import NamedTuple

from ...schema.layers import ATTENDING, DENSE, EXPERTS, FURTHER, MODULE_OF
from ...schema.states import Offload
from . import activations, kernels, memory, wires
from .architecture import Architecture
from .frameworks import framework
from .kernels import Constants
from .layout import Layout
from .machine import Machine

_BACKWARD_ATTENTION = 2.5  # five products in place of two
_BACKWARD_TRAFFIC = 1.4
#: Kernels of an expert in a loop, forward (three products, function, product, tokens
#: chosen, scaled, summed), and how many a gather of its weights takes the time of.
_LOOPED, _GATHERED = 11, 15
#: Qualities of what is sent: after computing, or beside it.
_BESIDE = ("plain", "overlapped")
UPDATE_BYTES = 40  # of a parameter, at which the constant `update` is 1
#: Of a host's memory, unless it is told.
HOST_BYTES_PER_S = Offload().memory_gbytes_per_s * 1e9


class LayerTimes(NamedTuple):
    """Times of one layer and micro-batch on one GPU, both passes, by term."""

    products: float
    attention: float
    traffic: float
    experts: float  # products of experts
    permutation: float
    tensor: float
    context: float
    exchange: float
    weights: float  # casts and sums of gradients, whatever the micro-batch
    launches: float

    @property
    def device(self) -> float:
        """Without what the host takes to launch it."""
        return sum(self) - self.launches


class Again(NamedTuple):
    """Shares of a part's forward pass that the backward pass computes again."""

    products: float = 0.0
    experts: float = 0.0  # their products, and the exchange
    attention: float = 0.0
    traffic: float = 0.0
    tensor: float = 0.0


def again(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str
) -> Again:
    """Return what is computed again; what modules drop by name is written once more."""
    if run.recompute in ("full", "block"):
        alike = Again(*(run.recomputed,) * len(Again._fields))
        ends = part == DENSE and framework(run.framework).stops_early
        if not ends or memory.beside(a, run, part).products:
            return alike
        # The last product, and what sums it up, give nothing that autograd keeps;
        # adapters keep their input after it.
        up, down = (m.parameters for m in a.matrices(part))
        return alike._replace(
            products=run.recomputed * up / (up + down),
            tensor=run.recomputed / 2 if run.split_sequence else 0.0,
        )
    if run.recompute == "ops":
        products = c("recompute.ops")
        # What is gathered is not kept, what is scattered is.
        return Again(products, products, traffic=1.0, tensor=0.5)
    if MODULE_OF.get(part) in run.modules:
        return Again(1.0, 1.0, 0.0, 1.0, 1.0)
    if not run.modules:
        return Again()
    gone = activations.dropped(a, run, part, activations.kept(a, run, part))
    wide = gone.normed + gone.function * (1.5 if a.gated else 1)
    each = 4 * wide / activations.narrow(run) + 2 * gone.projected
    moved = each * run.tokens * c("traffic", run.style, run.framework)
    whole = kernels.traffic_s(c, machine, a, run, part) * machine.memory_bytes_per_s
    scores = float("core_attn" in run.modules)
    traffic = moved / whole + 0.1 * scores
    repeated = 0.0  # of products that are not routed
    if a.latent and part in ATTENDING and "mla_up_proj" in run.modules:
        repeated = a.latent.raised(a.hidden, a.heads) / run.tp
    elif part == EXPERTS and "shared_experts" in run.modules:
        repeated = (3 if a.gated else 2) * a.shared_intermediate * a.hidden / run.tp
    every = a.matrices(part, run.tp, run.experts)
    alone = sum(one.parameters * one.rows for one in every if not one.routed)
    return Again(repeated and repeated / alone, 0.0, scores, traffic)


def part_times(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str
) -> LayerTimes:
    """Times of a part of a layer for one micro-batch."""
    fw, tokens = run.framework, run.tokens
    twice = again(c, machine, a, run, part)
    dense, grouped = _products_s(c, machine, a, run, part)
    passes = c("lora.passes") if run.lora else 3
    attention = context = exchange = 0.0
    if part in ATTENDING:
        context = 3 * wires.context_s(machine, a, run) * c("context", fw)
        forward = kernels.attention_s(c, machine, a, run, part)
        attention = forward * (1 + _BACKWARD_ATTENTION + twice.attention)
        if run.sinks:
            attention /= c("attention.sinks")
    passed = 1 + _BACKWARD_TRAFFIC + twice.traffic
    moved = kernels.traffic_s(c, machine, a, run, part) * passed
    hooks = ["gathered"] if run.zero == 3 and memory.of_deepspeed(run) else []
    launch, waits = c("launch", run.style, fw, *hooks), 0.0
    launch *= 1 + c("launch.again") * max(twice.products, twice.traffic)
    if (beside := memory.beside(a, run, part)).products:
        launch *= 1 + c("lora.launch") * beside.products
        plain = ["plain"] * (not run.drops and run.style != "fused")
        each = c("lora.traffic", run.style, fw, *plain) * 2 * tokens
        moved += each * beside.elements * (passed / machine.memory_bytes_per_s)
    if part == EXPERTS:
        exchange = wires.experts_s(machine, a, run, tokens)
        exchange *= (2 + twice.experts) * c("exchange", fw, *["deepep"] * run.flexible)
        if run.overlap_ep is None:
            exchange *= c("exchange.untold")
        elif run.overlap_ep:
            exchange *= c("exchange.overlapped")
        most = fullest(c, a, run)
        exchange, grouped = most * exchange, most * grouped / c("experts.share")
        waits = c("launch.experts", machine.host)
        if run.flexible:
            moved *= c("experts.flexible")
        if run.captured(part) == 1:
            moved *= c("experts.fused")
        # Grouped products of Transformer Engine and plain exchanges take counts of
        # tokens that are copied to the host.
        if fw != "megatron" and (run.ep < 2 or run.flexible):
            launch, waits = launch + waits, 0.0
        if run.looped:
            each = _LOOPED * (3 + twice.experts)
            each += _GATHERED * (2 + twice.experts) * len(hooks)
            launch += c("launch.kernel") * each * a.experts / run.experts.groups
    captured = run.captured(part)
    launch *= 1 - captured * (1 - c("launch.graphs"))
    waits *= 1 - captured * (1 - c("launch.graphs"))
    return LayerTimes(
        dense * (passes + twice.products),
        attention,
        0.0 if part == EXPERTS else moved,
        grouped * (passes + twice.experts),
        moved if part == EXPERTS else 0.0,
        _collectives_s(c, machine, a, run, part, 2 + twice.tensor),
        context,
        exchange + waits,
        weights_s(c, machine, a, run, part),
        launch,
    )


def fullest(c: Constants, a: Architecture, run: Layout) -> float:
    """Return how many times its part the GPU has that most tokens are sent to.

    The others of `ep` wait for it, in every layer. Experts' shares are normal, of the
    deviation `experts.uneven`, and a GPU's the mean of its E / ep; of the greatest of
    ep normal numbers Blom's approximation is taken, 0 of one.
    """
    uneven = 0.0 if run.balanced else c("experts.uneven")
    highest = NormalDist().inv_cdf((run.ep - 0.375) / (run.ep + 0.25))
    return 1 + uneven * highest * math.sqrt(run.ep / a.experts)


def _products_s(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str
) -> tuple[float, float]:
    """Seconds of one pass over a part's matrices: those alone, those of experts."""
    dense, grouped, fw = 0.0, 0.0, run.framework
    for matrix in a.matrices(part, run.tp, run.experts):
        once = kernels.product_s(c, machine, run.precision, run.tokens, matrix, fw)
        if run.rowwise:
            once /= c("product.rowwise")
        if matrix.routed:
            grouped += once
        else:
            dense += once
    return dense, grouped


def _collectives_s(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str, n: float
) -> float:
    """Seconds of `n` passes of what tensor-parallel GPUs exchange in a part."""
    took = wires.tensor_s(c, machine, a, run, run.tokens)
    if part in ATTENDING and a.latent is None and run.tp > a.kv_heads:
        # Megatron gathers what it cut, and each GPU takes its heads of it.
        joint = 2 * run.tokens * (a.heads * a.head_dim + a.keyed(1))
        took += wires.ring_s(machine, joint, run.tp)
    took = took * n * c("tp", run.framework, machine.site, _BESIDE[run.overlap_tp])
    if run.overlap_tp and run.precision in ("fp8", "mxfp8"):
        took *= 3 / 4  # gathered in 8 bits, scattered in 16
    divided = run.ep > 1 and not a.shared_intermediate and run.split_sequence
    # There tokens stay divided; what is joined is part of the layer that follows.
    return 0.0 if (part == EXPERTS and divided) or part == FURTHER else took


def weights_s(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str
) -> float:
    """Seconds of a micro-batch over the weights of a part: casts, gradients summed.

    Frozen weights have neither; quantised ones are read and widened for every pass.
    """
    held = a.parameters(part, run.tp, run.experts)
    halves = run.states in ("mixed", "16bit") and not (run.shard or run.zero == 3)
    uncast = halves and run.style == "eager"
    each = c("weights.bytes", run.style, run.framework, *["uncast"] * uncast)
    if not run.lora:
        return each * held / machine.memory_bytes_per_s
    moved = each * memory.beside(a, run, part).parameters
    if run.frozen_bits is not None:
        repeated = again(c, machine, a, run, part).products
        passes = (2 + repeated) * c("frozen.read", run.framework)
        moved += passes * (memory.QUANTISED[run.frozen_bits] + 2) * held
    return moved / machine.memory_bytes_per_s


def layer_times(
    c: Constants, machine: Machine, a: Architecture, run: Layout
) -> LayerTimes:
    """Return the times of the mean layer of a model."""
    often = Counter(part for layer in a.layers for part in layer)
    parts = [part_times(c, machine, a, run, part) for part in often]
    mean = (sum(map(mul, x, often.values())) for x in zip(*parts, strict=True))
    return LayerTimes(*(x / len(a.layers) for x in mean))


def by_release(c: Constants, a: Architecture, half_years: float) -> float:
    """Return how many times as long layers take by software so much newer."""
    return float(c("release.experts" if a.experts else "release") ** half_years)


def gradient_bytes(run: Layout) -> float:
    """Return the bytes of a gradient as it leaves its GPU."""
    return 4.0 if run.accumulate_fp32 else 2.0


def update_s(
    c: Constants, machine: Machine, run: Layout, dense: float, experts: float
) -> float:
    """Return what updating so many parameters of a GPU takes, before ZeRO divides.

    Where the optimiser is on the host, gradients go there and weights come back, and
    the GPUs of a node share the rate of its memory: as in a plan.
    """
    divided, fewer = memory.divisors(run)
    updated = dense / divided + experts / fewer
    if "optimizer" in run.hosted:
        sent = (gradient_bytes(run) + activations.element(run)) * updated
        moved = UPDATE_BYTES * updated * min(machine.gpus, run.gpus)
        return sent / machine.bus_bytes_per_s + moved / HOST_BYTES_PER_S
    moved = UPDATE_BYTES * updated
    return c("update", run.framework) * moved / machine.memory_bytes_per_s


def busy_s(times: LayerTimes) -> float:
    """Device and host side by side: the slower one, rounded where they are near."""
    return math.sqrt(times.device**2 + times.launches**2)


def gradients_s(
    c: Constants,
    machine: Machine,
    run: Layout,
    held_by: memory.Parameters,
    compute: float,
) -> float:
    """Exposed time of gradients and weights between replicas, an iteration."""
    dense, experts, ends = held_by.dense, held_by.experts, held_by.ends
    group, ring = run.dp * run.cp, partial(wires.ring_s, machine)
    width = gradient_bytes(run)
    if run.lora and not run.shard:  # those of adapters are a thousandth
        return 0.0
    alike, apart = int(run.expert_replicas(group)), run.ep * run.experts.cut
    if run.shard:
        each = 2.0
        if run.lora:
            width = 0.0
        if run.frozen_bits is not None:
            each = memory.QUANTISED[run.frozen_bits]
        inside, comm = min(run.shard, group), 0.0
        for held, own, every, stride in (
            (dense + ends, inside, group, run.tp),
            (experts, max(1, int(run.expert_replicas(inside))), alike, apart),
        ):
            passed = ring((2 * each + width) * held, own, stride)
            outer = ring(2 * width * held / own, every // own, stride * own)
            comm += passed * run.micro_batches + outer
        shown = c("fsdp", run.sharding)
        return shown * comm + max(0.0, (1 - min(shown, 1)) * comm - compute)
    volume = (width + run.gathered_bytes) * (dense + ends)
    comm = ring(volume, group, run.tp)
    comm += ring((width + run.gathered_bytes) * experts, alike, apart)
    if run.in_switch:
        comm /= 2  # a GPU sends its gradient once
    comm *= c("dp", run.framework, machine.site, _BESIDE[run.overlap_dp])
    if run.owners:
        fills = c("broadcast") + (run.owners - 1) * c("broadcast.hop")
        comm += run.owners * fills
    return comm


def terms(
    c: Constants, machine: Machine, a: Architecture, run: Layout
) -> Mapping[str, float]:
    """Return the seconds of an iteration by term; they sum to it.

    Terms of layers are those of the slowest stage. Constants were fitted to the mean
    layer of a model.
    """
    stages, n, last = memory.spans(a, run), run.micro_batches, run.pp - 1
    each = layer_times(c, machine, a, run)
    # While all GPUs of a job compute; those that wait for a pipeline to fill leave the
    # others their clocks.
    crowded = c("pace", run.framework, run.style, machine.site) if run.gpus > 1 else 1.0
    once = busy_s(each) * crowded * by_release(c, a, run.half_years)
    busy = [once * len(layers) for layers in stages]
    by = (run.style, run.framework)
    head = kernels.head_s(c, machine, a, run.tokens, run.tp, by, lora=run.lora)
    hop = 0.0
    if last:
        exposed = c("hop", run.framework, "interleaved" if run.vp > 1 else "plain")
        hop = 2 * wires.hop_s(machine, a, run, run.tokens) * exposed * run.vp
    taus = [x + hop + (head if j == last else 0.0) for j, x in enumerate(busy)]
    most = max(taus)
    at = taus.index(most)
    crowding = (sum(busy) - busy[at]) * (1 - 1 / crowded)
    scale = n * busy[at] / busy_s(each)
    found = {name: x * scale for name, x in zip(each._fields, each, strict=True)}
    found["launches"] += n * busy[at] - sum(found.values())
    found["head"] = n * head if at == last else 0.0
    found["hops"] = n * hop
    found["bubble"] = (sum(taus) - most - crowding) / run.vp
    held = [
        memory.parameters(a, run, layers, first=j == 0, last=j == last)
        for j, layers in enumerate(stages)
    ]
    found["gradients"] = max(
        gradients_s(c, machine, run, own, n * x)
        for own, x in zip(held, busy, strict=True)
    )
    found["iteration"] = c("iteration", run.framework)
    if run.offload:
        found["offload"] = (c("offload") - 1) * sum(found.values())
    updated = (
        (own.adapters, 0.0) if run.lora else (own.dense + own.ends, own.experts)
        for own in held
    )
    found["update"] = max(update_s(c, machine, run, *own) for own in updated)
    return found
