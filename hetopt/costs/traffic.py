"""Time in which arithmetic waits for the memory of a GPU: bytes moved over its rate.

Matrix products are counted as FLOPs; everything else moves its operands once through
memory, which is what it takes time for. It counts where the instance gives the rate,
`memory_gbytes_per_s`. Bytes a token of one layer, with the letters of `saved`; an
operator reads its inputs and writes its output once:

              forward                          backward
    norms     4 H e                            6 H e
    sums      6 H e + 2 H dropout              6 H e + (4 H e + 2 H) dropout
    MLP       2 I e, gated 3 I e               3 I e, gated 5 I e
    context   2 W e                            2 W e
    q/k norms 2 (W + K) e                      3 (W + K) e, where there are
    gate      2 G e                            3 G e    of attention's output
    mixer     M e                              10/7 M e (convolution, scan, gate, norm)
    scores    a S 4 e + a S (2 e + 1) dropout  a S 7 e + a S (2 e + 1) dropout

M is what a mixer without scores moves (`hetopt.schema.layers`), 7 times its width for
Mamba-2. A layer of one part has half of the norms and sums; norms behind a part, too,
add a norm each. Where `layer_kinds` tell them, experts have the I of those that a token
uses and move the token 4 A e H more, A being their number.

Norms and sums are shared among the t GPUs under sequence parallelism only, the others
always. Scores are written, softmaxed, and read by the product with the values: their
products are as short as a head is wide and hide none of it. With flash attention they
never leave the chip. Recomputation repeats the forward column, selectively the scores.

The optimiser reads and writes its states and the weights; gradients pass memory five
times: their norm, clipping (twice), the update and setting them to zero.
"""

from fractions import Fraction

from ..schema import CostSettings, GpuType, ModelSpec, StateBytes, Workload, exact
from ..schema.layers import ATTENDING, DENSE, EXPERTS, FURTHER, Parts


def bytes_per_s(gpu: GpuType) -> Fraction | None:
    """The rate of a GPU's memory, None where the instance does not give it."""
    if gpu.memory_gbytes_per_s is None:
        return None
    return exact(gpu.memory_gbytes_per_s) * 10**9


def layer_bytes(
    model: ModelSpec, workload: Workload, layer: int, t: int, b: int
) -> Fraction:
    """Bytes that the kernels of a layer move, both passes, on each of `t` GPUs."""
    costs, kind = workload.costs, model.kinds[layer]
    model = model.of(kind)
    again = 2 if costs.compute.recompute == "full" else 1
    whole = _pair(_whole(model, kind, costs.memory.element_bytes), again)
    shared = _pair(_shared(model, kind, costs.memory.element_bytes), again)
    scores = 0
    if not costs.compute.flash and (many := sum(part in ATTENDING for part in kind)):
        twice = 1 if costs.compute.recompute == "none" else 2
        scores = many * _pair(_scores(model, workload), twice)
    parts = Fraction(whole, t if costs.compute.sequence_parallel else 1)
    return b * workload.sequence_length * (parts + Fraction(shared + scores, t))


def dequantised_bytes(
    model: ModelSpec, costs: CostSettings, layer: int
) -> Fraction | int:
    """Bytes that a micro-batch moves to widen quantised weights, on all GPUs.

    Each pass reads them and writes 16 bits of each, which its products read.
    """
    if costs.updates.lora is None or costs.updates.lora.weight_bits is None:
        return 0
    passes = 3 if costs.compute.recompute == "full" else 2
    return passes * (costs.layer_states.weight + 2) * model.parameters[layer]


def update_bytes(states: StateBytes) -> Fraction:
    """Bytes that the optimiser moves for a parameter with such states."""
    return Fraction(5 * states.gradient + 2 * (states.optimiser + states.weight))


def _pair(passes: tuple[int, int], forward: int) -> int:
    return forward * passes[0] + passes[1]


def _whole(model: ModelSpec, kind: Parts, e: int) -> tuple[int, int]:
    forward, backward = 5 * e, 6 * e
    if model.post_norm:
        forward, backward = forward + 2 * e, backward + 3 * e
    if model.dropout:
        forward, backward = forward + 1, backward + 2 * e + 1
    # What a layer that predicts further tokens joins and norms is about one part's.
    return len(kind) * forward * model.hidden, len(kind) * backward * model.hidden


def _shared(model: ModelSpec, kind: Parts, e: int) -> tuple[int, int]:
    each = [_of_part(model, part, e) for part in kind]
    return sum(forward for forward, _ in each), sum(backward for _, backward in each)


def _of_part(model: ModelSpec, part: str, e: int) -> tuple[int, int]:
    if part == FURTHER:
        return 0, 0
    if (mixer := model.mixer(part)) is not None:
        return mixer.sizes.moved * e, mixer.sizes.moved * 10 // 7 * e
    if part in (DENSE, EXPERTS):
        forward, backward = (3, 5) if model.gated else (2, 3)
        width, moved = inner_width(model, part), 0
        if part == EXPERTS and model.layer_kinds is not None:
            moved = 4 * (model.active_experts or 0) * routed_width(model)
        return e * (forward * width + moved), e * (backward * width + moved)
    context, normed = 2 * (model.attention_width + model.gate_width), 0
    if model.qk_norm:
        normed = model.attention_width + model.kv_width
    gate = model.gate_width
    return e * (context + 2 * normed), e * (context + 3 * normed + gate)


def routed_width(model: ModelSpec) -> int:
    """Width of a token as experts are given it."""
    return model.expert_hidden or model.hidden


def inner_width(model: ModelSpec, part: str) -> int:
    """Width between the matrices of an MLP, or of the experts that a token uses.

    Without `layer_kinds` experts are weighed as the dense MLP is.
    """
    if part == EXPERTS and model.layer_kinds is not None:
        return model.expert_width
    return model.mlp_width


def _scores(model: ModelSpec, workload: Workload) -> tuple[int, int]:
    e = workload.costs.memory.element_bytes
    dropout = 2 * e + 1 if model.attention_dropout else 0
    row = model.heads * workload.sequence_length
    return (4 * e + dropout) * row, (7 * e + dropout) * row
