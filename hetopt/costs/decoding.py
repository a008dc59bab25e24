"""Decoding: the time of a generated token on an inference engine, and its memory.

An engine is a group of GPUs that generates tokens of several answers at once, and
computes the prompts of answers that begin meanwhile (continuous batching). The time of
a token is a sum of seconds by the data sheets, each times a constant of
`constants/decoding.yaml`, which were fitted to public measurements of vLLM, SGLang and
TensorRT-LLM:

    weights, ...   bytes of weights that a step reads / the memory's rate; of experts
                   those that B answers reach, E (1 - (1 - k / E)^B)
    cache          bytes of keys and values (or of states) of B answers in the middle
                   of their generation / the memory's rate
    products       2 x active parameters x tokens, and the prompts' attention / the peak
    all_reduce     two sums over the tensor-parallel group a layer / the links' rate
    layer, ...     microseconds a layer, whatever the number of answers

Sources: Pope et al., arXiv 2211.05102 (weights and cache against products); Kwon et
al., arXiv 2309.06180 (memory of answers); errors: benchmarks/results/decoding.md.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from ..catalogue import Gpu, called, find_gpu
from ..errors import InstanceError
from ..schema import GpuType, ModelSpec
from ..schema.layers import ATTENDING, EXPERTS, FURTHER, WINDOW
from ..text.documents import Fields
from ..text.parsing import read_tree

#: Bytes of a weight, scales of blocks included.
BYTES = {
    **{"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "mxfp8": 1.03125},
    **{"int8": 1.0, "nvfp4": 0.5625, "fp4": 0.5625, "mxfp4": 0.53125, "int4": 0.53125},
}
#: What programs of engines are known; the first stands for others.
PROGRAMS = ("vllm", "sglang", "trtllm")
_SHARE = 0.9  # of a GPU's memory that engines take (vLLM's gpu_memory_utilization)
_RESERVE = 2 * 2**30  # of it, bytes for activations and graphs of launches
_US = 1e-6


class Engine(NamedTuple):
    """An engine's times in ns, rounded up, and the answers that its memory holds."""

    step_ns: int  # a step of generation, whatever the number of answers
    answer_ns: int  # more for each answer in flight, in the middle of its generation
    prompt_ns: int  # once an answer: its prompt
    at_once: int  # answers at the longest length


class Serving(NamedTuple):
    """How a model is served: rates of one GPU, and how the model lies on them."""

    flops: float  # dense, in the precision of the weights
    memory_bytes_per_s: float
    link_bytes_per_s: float  # of a GPU, one direction
    gpus: int
    degree: (
        int  # tensor-parallel GPUs; groups of so many attend to answers of their own
    )
    precision: str
    program: str = PROGRAMS[0]


class _Kept(NamedTuple):
    """Elements that layers of a kind keep of each answer."""

    layers: int
    of_token: int
    heads: int  # that a tensor-parallel group can divide
    most: float  # tokens that are kept, of a window
    state: float = 0.0  # elements whatever the length


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
    kept: tuple[_Kept, ...]
    chosen: float  # tokens that an indexer has attention read
    indexed: int  # elements of a token that the indexer reads
    attended: tuple[tuple[int, float], ...]  # width of a layer's heads, tokens seen

    @classmethod
    def of(cls, model: ModelSpec) -> "DecoderShape":
        """Return what decoding depends on, without layers that predict further."""
        rows = zip(model.kinds, model.parameters, model.routed_parameters, strict=True)
        layers = [row for row in rows if FURTHER not in row[0]]
        kept, attended = [], []
        for kind, _, _ in layers:
            own, window = model.of(kind), model.window or math.inf
            for part in kind:
                if (mixer := model.mixer(part)) is not None:
                    # The FLOPs of a scan are 7 for each element of the state.
                    heads, state = min(mixer.sizes.whole), mixer.sizes.scan / 7
                    kept.append(_Kept(1, 0, heads, 0, state))
                if part in ATTENDING:
                    seen = window if part == WINDOW else math.inf
                    width = own.kv_products * own.kv_width
                    heads = own.kv_heads or own.heads
                    if (x := own.latent) is not None:
                        width, heads = x.key_rank + x.rotary, 1
                    kept.append(_Kept(1, width, heads, seen))
                    attended.append((own.attention_width, seen))
        routed = sum(row[2] for row in layers)
        ends = model.total_parameters - sum(model.parameters)
        active = model.active_experts or 1
        looks = model.indexer
        return cls(
            layers=len(layers),
            sparse=sum(EXPERTS in row[0] for row in layers),
            plain=sum(row[1] for row in layers) - routed,
            routed=routed,
            share=active / (model.experts or active),
            head=model.embedding_parameters,
            beside=ends - model.embedding_parameters,
            hidden=model.hidden,
            kept=tuple(
                one._replace(layers=kept.count(one)) for one in dict.fromkeys(kept)
            ),
            chosen=looks.chosen if looks else math.inf,
            indexed=looks.head_dim if looks else 0,
            attended=tuple(attended),
        )

    def bytes_of(self, precision: str) -> tuple[float, float]:
        """Return the bytes of a plain weight and of an expert's.

        In 4 bits mixtures have only their experts. `InstanceError` if unknown.
        """
        if precision not in BYTES:
            known = ", ".join(BYTES)
            raise InstanceError(
                f"found precision {precision!r}, expected one of {known}"
            )
        found = BYTES[precision]
        return (BYTES["bf16"] if self.routed and found < 1 else found), found

    def cache(
        self, tokens: float, degree: int, precision: str, *, held: bool = False
    ) -> float:
        """Return the bytes that a GPU of `degree` reads of an answer of so many tokens.

        With `held` those that it holds: an indexer reads fewer; states are read and
        written, in 32 bits.
        """
        element = 2 if precision in ("fp32", "bf16", "fp16", "int4", "int8") else 1
        most = math.inf if held else self.chosen
        found = 0.0
        for one in self.kept:
            share = max(1, one.heads / degree) / one.heads
            kept = one.of_token * min(tokens, one.most, most) * element
            keys = self.indexed * tokens if one.of_token else 0
            state = (4 if held else 8) * one.state / degree
            found += one.layers * (share * kept + keys + state)
        return found

    def weights(self, gpus: int, degree: int, precision: str) -> float:
        """Return the bytes of all weights on one GPU, the ends in 16 bits."""
        plain, expert = self.bytes_of(precision)
        ends = BYTES["bf16"] * (self.head + self.beside) / degree
        return self.plain * plain / degree + self.routed * expert / gpus + ends

    def prompt_flops(self, tokens: int) -> float:
        """Return the FLOPs of a prompt, its attention included."""
        scores = sum(
            4 * width * tokens * min(tokens / 2, seen, self.chosen)
            for width, seen in self.attended
        )
        return 2 * self.active * tokens + scores

    @property
    def active(self) -> float:
        """Return the parameters of layers that a token is multiplied with."""
        return self.plain + self.routed * self.share


def terms(
    model: DecoderShape,
    on: Serving,
    answers: float,
    prompts: float,
    prompt: int,
    mean: float,
) -> dict[str, float]:
    """Return the seconds of a step by constant, before the constants.

    `answers` are in flight, of `mean` tokens each behind a prompt of `prompt`; of those
    that begin, `prompts` fall on a step.
    """
    plain, expert = model.bytes_of(on.precision)
    rate, t = on.memory_bytes_per_s, on.degree
    tokens = answers + prompts * prompt
    reached = model.routed * (1 - (1 - model.share) ** answers)
    read = {_reading(plain): model.plain * plain / t}
    for name, more in (
        (_reading(2.0), model.head * BYTES["bf16"] / on.gpus),
        (
            "experts.4bit" if expert < 1 else _reading(expert),
            reached * expert / on.gpus,
        ),
    ):
        read[name] = read.get(name, 0.0) + more
    flops = 2 * model.active * answers + prompts * model.prompt_flops(prompt)
    context = model.cache(prompt + mean / 2, t, on.precision)
    summed = 2 * model.layers * tokens * model.hidden * 2 * (2 * (t - 1) / t)
    return {
        **{x: y / rate for x, y in read.items()},
        "cache": answers * t / on.gpus * context / rate,
        "products": flops / on.gpus / on.flops,
        "all_reduce": summed / on.link_bytes_per_s,
        "layer": model.layers * _US,
        "layer.group": model.layers * math.log2(t) * _US,
        f"layer.experts@{on.program}": model.sparse * _US,
        "layer.indexer": model.layers * _US if model.indexed else 0.0,
    }


def _reading(size: float) -> str:
    """Return the constant of reading weights of so many bytes."""
    return "weights" if size < BYTES["bf16"] else "weights.16bit"


@cache
def entries() -> Mapping[str, Fields]:
    """Return the shipped constants: value, spread, prior and why, by name."""
    path = Path(__file__).parent / "constants" / "decoding.yaml"
    found: dict[str, Any] = read_tree(path)
    return found


def value(name: str) -> float:
    """Return the shipped value of a constant."""
    return float(entries()[name]["value"])


def seconds(found: Mapping[str, float]) -> float:
    """Return the seconds of a step from its terms, by the shipped constants."""
    return sum(x * value(name) for name, x in found.items())


def card_of(name: str, memory_gib: float | None = None) -> Gpu | None:
    """Return the catalogue's card of a name.

    Of several it is that of the nearest memory, and among these the fastest.
    """
    if (card := find_gpu(name)) is not None or memory_gib is None:
        return card

    def rank(one: Gpu) -> tuple[float, float]:
        return abs(one.memory_gib - memory_gib), -one.memory_gbytes_per_s

    return min(called(name), key=rank, default=None)


def peak(sixteen: float, peaks: Mapping[Any, float], precision: str) -> float:
    """Return the rate of products, in the unit given; in 16 bits where none is known.

    What a card cannot multiply is widened first, as are weights of whole numbers.
    """
    name = {"fp4": "nvfp4", "mxfp4": "nvfp4", "mxfp8": "fp8"}.get(precision, precision)
    return peaks.get(name, sixteen)


class EngineWork(TypedDict):
    """The work of an engine, its precision, and the rate of its links."""

    prompt: int
    mean: int
    longest: int
    precision: str
    link_gbytes_per_s: float


def engine(
    model: ModelSpec, gpu: GpuType, name: str, degree: int, **work: Unpack[EngineWork]
) -> Engine | None:
    """Return the engine of `degree` GPUs of type `name`; None where weights do not fit.

    Answers have `mean` tokens on average and `longest` at the most, behind prompts of
    `prompt`; `link_gbytes_per_s` is a GPU's to the others of the engine. What `gpu`
    lacks, the rate of its memory and peaks by precision, is the catalogue's, by its
    name. A step of a answers takes `step_ns + answer_ns a`: exact for dense models; of
    a mixture the line through one answer and `at_once`, below the concave curve of the
    experts that answers reach. `at_once` is 0 where one answer does not fit.
    `InstanceError` where the rate of the memory is not known.
    """
    card = card_of(gpu.card or name, gpu.memory_gib)
    rate = gpu.memory_gbytes_per_s or (card.memory_gbytes_per_s if card else None)
    if rate is None:
        raise InstanceError.at(
            None,
            f"cluster.gpus.{name}",
            "found no memory_gbytes_per_s and no such card in the catalogue, expected "
            "the rate of its memory, which generation depends on; add it",
        )
    prompt, mean, precision = work["prompt"], work["mean"], work["precision"]
    peaks: Mapping[Any, float] = gpu.peaks or (card.peaks if card else {})
    flops = peak(gpu.peak_tflops, peaks, precision) * 1e12
    link = work["link_gbytes_per_s"] * 1e9
    on = Serving(flops, rate * 1e9, link, degree, degree, precision)
    decoder = DecoderShape.of(model)
    left = _SHARE * gpu.memory_gib * 2**30 - _RESERVE
    left -= decoder.weights(degree, degree, precision)
    if left < 0:
        return None
    tokens = prompt + work["longest"]
    held = decoder.cache(tokens, degree, precision, held=True)
    at_once = int(left / held) if held else 1

    def time(answers: int, prompts: int) -> float:
        return seconds(terms(decoder, on, answers, prompts, prompt, mean)) * 1e9

    one = time(1, 0)
    answer = (time(max(2, at_once), 0) - one) / (max(2, at_once) - 1)
    step_ns, answer_ns, prompt_ns = map(
        math.ceil, (one - answer, answer, time(1, 1) - one)
    )
    return Engine(step_ns, answer_ns, prompt_ns, at_once)
