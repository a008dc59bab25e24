"""A stand-in until decoding is modelled: weights and cache over the memory's rate."""

from typing import NamedTuple

from ..schema import GpuType, ModelSpec, exact
from .formulas.kernels import ELEMENT


class Engine(NamedTuple):
    """Times of an engine in ns, and the answers that its memory keeps at once."""

    step_ns: int
    answer_ns: int
    prompt_ns: int
    at_once: int


def engine(
    model: ModelSpec,
    gpu: GpuType,
    name: str,
    degree: int,
    *,
    prompt: int,
    mean: int,
    longest: int,
    precision: str,
    link_gbytes_per_s: float | None,
) -> Engine | None:
    """Return an engine of `degree` GPUs; None where the weights do not fit."""
    each = exact(ELEMENT.get(precision, 2.0))
    weights = model.total_parameters * each
    heads = model.kv_heads or model.heads
    token = 4 * model.layers * heads * (model.head_dim or model.hidden // model.heads)
    rate = exact(gpu.memory_gbytes_per_s or 1000) * degree  # bytes a ns
    room = exact(gpu.memory_gib) * 2**30 * degree * 9 / 10 - weights
    at_once = int(room // (token * (prompt + longest))) if room > 0 else 0
    if at_once < 1:
        return None
    flops = exact(gpu.peak_tflops) * 1000 * degree / 2  # a ns
    work = 2 * model.total_parameters / flops
    step = -(-weights // rate) + 10_000 * (degree > 1)
    cache = token * (prompt + mean // 2) / rate
    return Engine(int(step), int(cache + work) + 1, int(work * prompt) + 1, at_once)
