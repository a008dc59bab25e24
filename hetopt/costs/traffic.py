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
    scores    a S 4 e + a S (2 e + 1) dropout  a S 7 e + a S (2 e + 1) dropout

Norms and sums are shared among the t GPUs under sequence parallelism only, the others
always. Scores are written, softmaxed, and read by the product with the values: their
products are as short as a head is wide and hide none of it. With flash attention they
never leave the chip. Recomputation repeats the forward column, selectively the scores.

The optimiser reads and writes its states and the weights; gradients pass memory five
times: their norm, clipping (twice), the update and setting them to zero.
"""

from fractions import Fraction

from ..schema import CostSettings, GpuType, ModelSpec, Workload, exact


def bytes_per_s(gpu: GpuType) -> Fraction | None:
    """The rate of a GPU's memory, None where the instance does not give it."""
    if gpu.memory_gbytes_per_s is None:
        return None
    return exact(gpu.memory_gbytes_per_s) * 10**9


def layer_bytes(model: ModelSpec, workload: Workload, t: int, b: int) -> Fraction:
    """Bytes that the kernels of a layer move, both passes, on each of `t` GPUs."""
    costs = workload.costs
    again = 2 if costs.recompute == "full" else 1
    whole = _pair(_whole(model, costs.element_bytes), again)
    shared = _pair(_shared(model, costs.element_bytes), again)
    scores = 0
    if not costs.flash:
        twice = 1 if costs.recompute == "none" else 2
        scores = _pair(_scores(model, workload), twice)
    parts = Fraction(whole, t if costs.sequence_parallel else 1)
    return b * workload.sequence_length * (parts + Fraction(shared + scores, t))


def update_bytes(costs: CostSettings, replicas: int) -> Fraction:
    """Bytes that the optimiser moves for a parameter held by so many replicas."""
    weight, gradient, optimiser = costs.states
    moved = 5 * gradient + 2 * (optimiser + weight)
    return Fraction(moved, replicas if costs.zero else 1)


def _pair(passes: tuple[int, int], forward: int) -> int:
    return forward * passes[0] + passes[1]


def _whole(model: ModelSpec, e: int) -> tuple[int, int]:
    forward, backward = 10 * e, 12 * e
    if model.dropout:
        forward, backward = forward + 2, backward + 4 * e + 2
    return forward * model.hidden, backward * model.hidden


def _shared(model: ModelSpec, e: int) -> tuple[int, int]:
    context = 2 * model.attention_width
    forward, backward = (3, 5) if model.gated else (2, 3)
    width = model.mlp_width
    return e * (forward * width + context), e * (backward * width + context)


def _scores(model: ModelSpec, workload: Workload) -> tuple[int, int]:
    e = workload.costs.element_bytes
    dropout = 2 * e + 1 if model.attention_dropout else 0
    row = model.heads * workload.sequence_length
    return (4 * e + dropout) * row, (7 * e + dropout) * row
