"""Decoding: the time of a generated token on an inference engine, and its memory.

An engine is a group of GPUs that generates tokens of several answers at once. A step, a
token of each, takes a sum of seconds by the data sheets, each times a constant of
`constants/decoding.yaml`; [the formula](README.md#decoding).
"""

import math
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..catalogue import Gpu, called, find_gpu
from ..errors import InstanceError
from ..schema import Generation, GpuType, ModelSpec
from ..schema.layers import ATTENDING, EXPERTS, FURTHER, MIXERS, WINDOW
from ..text.parsing import read_tree

#: Bytes of a weight, scales of blocks included.
BYTES = {
    **{"bf16": 2.0, "fp16": 2.0, "mxfp8": 1.03125, "fp8": 1.0, "int8": 1.0},
    **{"nvfp4": 0.5625, "fp4": 0.5625, "mxfp4": 0.53125, "int4": 0.53125},
}
_PEAKS = {"fp4": "nvfp4", "mxfp4": "nvfp4", "mxfp8": "fp8"}
#: Precisions of the rows that the constants were fitted to, by card.
SEEN = {
    "H100-80GB-SXM5": "bf16 fp8 nvfp4",
    "H200-141GB-SXM5": "fp8 int4",
    "B200-180GB-SXM": "bf16 fp8 nvfp4 int4",
    "B300-270GB-SXM": "bf16 fp8 nvfp4",
    "GB200-186GB": "bf16 nvfp4",
}
Lengths = tuple[int, int]  # tokens of a prompt, and of an answer
_SHARE = 0.9  # of a GPU's memory that engines take (vLLM's gpu_memory_utilization)
_RESERVE = 2 * 2**30  # of it, bytes for activations and graphs of launches
_REACHED = 2  # experts that answers ask for, over all, where most are reached


class Engine(NamedTuple):
    """An engine's times in ns, rounded up, and the answers that its memory holds."""

    step_ns: int  # a step of generation, whatever the number of answers
    answer_ns: int  # more for each answer in flight, in the middle of its generation
    prompt_ns: int  # once an answer: its prompt
    at_once: int  # answers at the longest length
    few: tuple[int, int] | None = None  # the first two, of a mixture with few answers

    def ns(self, steps: int, tokens: int) -> int:
        """Return what so many steps take that generate so many tokens in all."""
        found = self.step_ns * steps + self.answer_ns * tokens
        if self.few is None:
            return found
        return min(found, self.few[0] * steps + self.few[1] * tokens)


class Links(NamedTuple):
    """Links of an engine, one direction: of GPUs in a node, and of nodes."""

    gbytes_per_s: float
    nodes: int = 1  # whole ones
    between_gbytes_per_s: float = 1.0
    latency_s: float = 0.0

    def seconds(self, degree: int, size: float, times: int) -> float:
        """Return what a group sums so many bytes in, in so many all-reduces.

        It is a ring in each node, and one of the nodes, which starts in a tree.
        """
        n, k = degree / self.nodes, self.nodes
        each = (n - 1) / n / self.gbytes_per_s + (k - 1) / k / self.between_gbytes_per_s
        return 2 * size * each / 1e9 + times * 2 * math.log2(k) * self.latency_s


class Serving(NamedTuple):
    """How a model is served: rates of one GPU, and how the model lies on them."""

    tflops: float  # dense, in the precision of the weights
    wide_tflops: float  # in 16 bits
    memory_gbytes_per_s: float
    links: Links
    gpus: int
    degree: int  # tensor-parallel GPUs; each group attends to answers of its own
    precision: str
    program: str = "vllm"


class _Kept(NamedTuple):
    """Elements that a layer keeps of each answer, and the width of its attention."""

    of_token: int
    heads: int  # that a tensor-parallel group can divide
    most: float  # tokens that are kept, of a window
    state: float = 0.0  # elements whatever the length
    width: int = 0
    scored: int = 0  # FLOPs of a token for each that it attends to

    @classmethod
    def of(cls, model: ModelSpec, part: str) -> Self:
        """Return those of a part; FLOPs of a scan are 7 for each element of a state."""
        if (mixer := model.mixer(part)) is not None:
            return cls(0, 1, 0, mixer.sizes.scan / 7)
        heads, width = model.kv_heads or model.heads, model.kv_products * model.kv_width
        scored = 4 * model.attention_width
        if (x := model.latent) is not None:  # every head multiplies with what is kept
            heads, width = 1, x.key_rank + x.rotary
            scored = 2 * model.heads * (width + x.key_rank)
        most = (model.window if part == WINDOW else None) or math.inf
        return cls(width, heads, most, width=model.attention_width, scored=scored)


class DecoderShape(NamedTuple):
    """A model, as far as decoding depends on it."""

    layers: int
    sparse: int  # layers with experts
    plain: int  # parameters of layers that every token uses
    routed: int  # of experts
    share: float  # of its experts that a token uses
    head: int
    beside: int  # parameters that are held and not read
    hidden: int
    kept: tuple[tuple[_Kept, int], ...]  # and in how many layers
    chosen: float  # tokens that an indexer has attention read
    indexed: int  # elements of a token that the indexer reads

    @classmethod
    def of(cls, model: ModelSpec) -> Self:
        """Return what decoding depends on, without layers that predict further."""
        rows = zip(model.kinds, model.parameters, model.routed_parameters, strict=True)
        layers = [row for row in rows if FURTHER not in row[0]]
        mixing = [(k, x) for k, *_ in layers for x in k if x in (*ATTENDING, *MIXERS)]
        routed, looks = sum(row[2] for row in layers), model.indexer
        head = model.embedding_parameters
        return cls(
            len(layers),
            sum(EXPERTS in row[0] for row in layers),
            sum(row[1] for row in layers) - routed,
            routed,
            (model.active_experts or 1) / (model.experts or 1),
            head,
            model.total_parameters - sum(model.parameters) - head,
            model.hidden,
            (*Counter(_Kept.of(model.of(k), x) for k, x in mixing).items(),),
            *((looks.chosen, looks.head_dim) if looks else (math.inf, 0)),
        )

    def bytes_of(self, precision: str) -> tuple[float, float]:
        """Return the bytes of a plain weight and of an expert's, alone in 4 bits."""
        found = BYTES[precision]
        return (BYTES["bf16"] if self.routed and found < 1 else found), found

    def cache(self, tokens: float, degree: int, precision: str, most: float) -> float:
        """Return the bytes that a GPU of `degree` reads of an answer of so many tokens.

        Attention reads `most` of them. States are read and written, in 32 bits; they
        count twice in memory, too.
        """
        element = 2 if precision in ("bf16", "fp16", "int4", "int8") else 1
        found = 0.0
        for one, layers in self.kept:
            part = max(1, one.heads / degree) / one.heads * element
            keys = self.indexed * tokens if one.of_token else 0
            kept = part * one.of_token * min(tokens, one.most, most) + keys
            found += layers * (kept + 8 * one.state / degree)
        return found

    def scores(self, answers: float, prompts: float, lengths: Lengths) -> float:
        """Return the FLOPs of attention, of a token of each answer and of prompts."""
        found, (prompt, mean) = 0.0, lengths
        for x, layers in self.kept:
            most = min(x.most, self.chosen)
            found += layers * answers * x.scored * min(prompt + mean / 2, most)
            found += layers * prompts * prompt * 4 * x.width * min(prompt / 2, most)
        return found


def terms(
    model: DecoderShape, on: Serving, answers: float, prompts: float, lengths: Lengths
) -> dict[str, float]:
    """Return the seconds of a step by constant, before the constants.

    `answers` are in flight, and of those that begin, `prompts` fall on a step.
    """
    (plain, expert), (prompt, mean) = model.bytes_of(on.precision), lengths
    rate, t = on.memory_gbytes_per_s * 1e9, on.degree
    wide, narrow = "weights.16bit", "weights" if expert == plain else "experts.4bit"
    reached = model.routed * (1 - (1 - model.share) ** answers)
    read = {wide: model.head * BYTES["bf16"] / on.gpus, narrow: 0.0}
    read[wide if plain == BYTES["bf16"] else narrow] += model.plain * plain / t
    read[wide if expert == BYTES["bf16"] else narrow] += reached * expert / on.gpus
    context = model.cache(prompt + mean / 2, t, on.precision, model.chosen)
    us = model.layers / 1e6
    tokens, each = answers + prompts * prompt, 1e12 * on.gpus  # FLOP/s of a TFLOP/s
    rates = each * on.tflops, each * on.wide_tflops
    summed = 4 * model.layers * tokens * model.hidden
    return {name: size / rate for name, size in read.items()} | {
        "cache": answers * t / on.gpus * context / rate,
        "products": 2 * model.plain * tokens / rates[plain != expert],
        "products.experts": 2 * model.routed * model.share * tokens / rates[0],
        "attention": model.scores(answers, prompts, lengths) / rates[1],
        "all_reduce": on.links.seconds(t, summed, 2 * model.layers),
        "layer": us,
        "layer.group": us * math.log2(t),
        f"layer.experts@{on.program}": model.sparse / 1e6,
        "layer.indexer": us if model.indexed else 0.0,
    }


@cache
def values() -> Mapping[str, float]:
    """Return the shipped constants by name."""
    found = read_tree(Path(__file__).parent / "constants" / "decoding.yaml")
    return {name: float(one["value"]) for name, one in found.items()}


def seconds(found: Mapping[str, float]) -> float:
    """Return the seconds of a step from its terms, by the shipped constants."""
    return sum(x * values()[name] for name, x in found.items())


def nearest_card(name: str, memory_gib: float = math.inf) -> Gpu | None:
    """Return the catalogue's card of a name, `A100` or `a100_sxm`; None if unknown.

    Of several it is that in this form, of the nearest memory, and the fastest of these.
    """
    short, _, form = name.lower().partition("_")

    def rank(one: Gpu) -> tuple[bool, float, float]:
        far = min(abs(one.memory_gib - memory_gib), 1e6 - one.memory_gib)  # none: most
        return form not in one.name.lower(), far, -one.memory_gbytes_per_s

    return find_gpu(name) or min(called(name) or called(short), key=rank, default=None)


def peak(sixteen: float, peaks: Mapping[Any, float], precision: str) -> float:
    """Return the rate of products; in 16 bits where a card has none in `precision`."""
    known = {} if BYTES.get(precision) == BYTES["bf16"] else peaks
    return known.get(_PEAKS.get(precision, precision), sixteen)


def not_calibrated(gpu: GpuType, name: str, precision: str) -> str | None:
    """Return the type, or it in this precision, if no measured row is alike."""
    card = nearest_card(gpu.card or name, gpu.memory_gib)
    seen = SEEN.get(card.name, "").split() if card else []
    alike = {**_PEAKS, "fp16": "bf16"}.get(precision, precision)
    return None if alike in seen else f"{name} in {precision}" if seen else name


def engine(
    model: ModelSpec, do: Generation, gpu: GpuType, name: str, degree: int, links: Links
) -> Engine | None:
    """Return the engine of `degree` GPUs of type `name`; None where weights do not fit.

    What `gpu` lacks, the rate of its memory and peaks by precision, is the catalogue's,
    by its name. A step of a answers takes `step_ns + answer_ns a`: exact for dense
    models; of a mixture it is the lesser of two lines, which meet where most experts
    are reached, below the concave curve by a fifth at most in what was tried. Raises
    `InstanceError` where the rate of the memory is not known.
    """
    card = nearest_card(gpu.card or name, gpu.memory_gib)
    rate = gpu.memory_gbytes_per_s or (card.memory_gbytes_per_s if card else None)
    if rate is None:
        fault = "found no memory_gbytes_per_s, nor the card in the catalogue; add it"
        raise InstanceError.at(None, f"cluster.gpus.{name}", fault)
    of, tokens, prompt = do.precision, do.answer_tokens, do.prompt_tokens
    tflops = peak(gpu.peak_tflops, gpu.peaks or (card.peaks if card else {}), of)
    on = Serving(tflops, gpu.peak_tflops, rate, links, degree, degree, of)
    shape = DecoderShape.of(model)
    plain, expert = shape.bytes_of(of)
    weights = shape.plain * plain + shape.routed * expert
    weights += BYTES["bf16"] * (shape.head + shape.beside)
    left = _SHARE * gpu.memory_gib * 2**30 - _RESERVE - weights / degree
    if left < 0:
        return None
    each = shape.cache(prompt + tokens.longest, degree, of, math.inf)
    at_once = int(left / max(1, each))

    def took(answers: int, prompts: int = 0) -> float:
        found = terms(shape, on, answers, prompts, (prompt, tokens.mean))
        return 1e9 * seconds(found)

    def line(low: int, high: int) -> tuple[int, int]:
        answer = (took(high) - took(low)) / (high - low)
        return math.ceil(took(low) - answer * low), math.ceil(answer)

    begun, most = math.ceil(took(1, 1) - took(1)), max(2, at_once)
    knee = round(_REACHED / shape.share) if shape.routed else most
    if knee >= most:
        return Engine(*line(1, most), begun, at_once)
    return Engine(*line(knee, most), begun, at_once, line(1, knee))
