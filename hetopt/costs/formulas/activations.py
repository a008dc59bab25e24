"""Bytes that passes leave for their backward passes, operator by operator.

A product keeps its input, a norm its input, fused attention its queries, keys, values
and output, unfused attention the probabilities (with dropout also their mask and the
masked ones), an activation function what it was given. For a GPT in 16 bits without
parallelism that is the 34 s b h + 5 a s^2 b of Korthikanti et al. (arXiv 2205.05198).
"""

from typing import NamedTuple

from ...schema.layers import ATTENDING, DENSE, EXPERTS, FURTHER, MODULE_OF
from .architecture import Architecture, Layer, Mixer
from .kernels import ELEMENT, Constants
from .layout import Layout

#: Their losses of models in fp16 are not converted to 32 bits.
_IN_HALVES = ("trainer", "trainer-2021")


class Kept(NamedTuple):
    """Bytes of a token that a part of a layer keeps, by what would compute it again."""

    stream: float  # what the part is added to, as its norm was given it
    normed: float  # the norm's output, as products are given it
    projected: float  # queries, keys and values; what a function is given
    probabilities: float
    attended: float  # attention's output, low ranks, what a state space holds
    function: float  # the activation function's output
    routed: float  # tokens as sorted for experts
    mask: float
    width: float  # elements of the widest tensors, for gradients


class Activations(NamedTuple):
    """Bytes of a stage: of each micro-batch in flight, and of the pass at hand."""

    held: float
    working: float


def element(run: Layout) -> float:
    """Bytes of an element of what is not a product's operand."""
    return 4.0 if run.precision in ("fp32", "tf32") else 2.0


def narrow(run: Layout) -> float:
    """Bytes of an element of a product's input, as it is kept.

    Transformer Engine keeps the converted one; torchtitan converts it once more.
    """
    if run.framework != "megatron":
        return element(run)
    return ELEMENT.get(run.precision, 2.0)


def _split(run: Layout) -> int:
    return run.tp if run.split_sequence else 1


def widened(run: Layout) -> bool:
    """Return whether what is not a product is in 32 bits though products are in 16.

    PEFT prepares a quantised model so that norms and embeddings have 32 bits, and
    products of bitsandbytes give what they were given. It leaves models of GPTQ as they
    are, whose kernels are of fp16.
    """
    quantised = run.framework == "trainer" and run.frozen_bits is not None
    return quantised and run.precision != "fp16"


def _inputs(run: Layout) -> int:
    """Return how often an adapted product's input is kept.

    Adapters that drop from it keep what is left; bitsandbytes keeps the input, too.
    """
    return 2 if run.framework == "litgpt" and run.frozen_bits is not None else 1


def _between(run: Layout) -> float:
    """Bytes of an element of what passes from one product to the next."""
    return 4.0 if widened(run) else element(run)


def _stream(a: Architecture, run: Layout) -> float:
    """Return the bytes of a token between parts; autocast adds in 32 bits."""
    return (4.0 if run.states == "amp" else _between(run)) * a.hidden / _split(run)


def _in_norm(a: Architecture, run: Layout) -> float:
    """Return what a norm of transformers keeps beside the stream of a token.

    It works on a copy in 32 bits, and keeps what it scales where the scale is trained;
    so do litgpt's of Llamas, and torchtune's.
    """
    by_operator = run.framework == "torchtune" and run.style == "eager"
    by_operator |= run.framework == "litgpt" and a.gated
    if run.framework != "trainer" and not by_operator:
        return 0.0
    stream = _stream(a, run)
    return 4.0 * a.hidden - stream + (0.0 if run.lora else stream)


def _adapted(run: Layout, part: str) -> bool:
    """Return whether each product of a part keeps its input for an adapter of PEFT."""
    return run.lora and run.framework == "trainer" and part in run.adapted


def kept(a: Architecture, run: Layout, part: str) -> Kept:
    """Return what backward passes need of a part."""
    if part in ATTENDING:
        return _attention(a, run)
    if part == FURTHER:
        joined = 2 * a.hidden / _split(run)
        inputs, e = 2 * _stream(a, run), element(run)
        return Kept(inputs, e * joined, 0, 0, 0, 0, 0, 0, joined)
    if (mixer := a.mixers.get(part)) is not None:
        return _mixed(a, run, mixer)
    return _mlp(a, run, part)


def _normed(a: Architecture, run: Layout, products: int, part: str) -> float:
    """A norm's output: nanotron keeps it gathered, Megatron gathers it anew.

    Autocast makes a copy for each product where nothing joins them, and so does PEFT
    for each adapter.
    """
    apart = run.states == "amp" and run.style == "eager"
    copies = products if apart or _adapted(run, part) else _inputs(run)
    gathered = 1 if run.framework == "nanotron" else _split(run)
    return copies * narrow(run) * a.hidden / gathered


def _mask(a: Architecture, run: Layout) -> float:
    return a.hidden / _split(run) if run.dropout else 0.0


def _attention(a: Architecture, run: Layout) -> Kept:
    e, heads = element(run), a.heads / run.tp
    if (x := a.latent) is not None:
        low = narrow(run) * (x.query_rank + x.key_rank + x.rotary)
        inputs = heads * (2 * a.score_width + x.value_dim)
    else:
        low = 0.0
        inputs = heads * a.head_dim + a.keyed(run.tp) + 2 * a.gate / run.tp
        if run.framework == "torchtune":  # copies keys and values for every head
            inputs = 3 * heads * a.head_dim
    if (y := a.indexer) is not None:
        low += e * (y.heads * (y.head_dim + 1) + y.head_dim)
    copies = 2 if run.framework == "nanotron" else 1  # for the rotation, contiguous
    out, probabilities = heads * a.value_width, 0.0
    if run.kernel is None:
        each = 2 * e + 1 if run.dropout else e
        if run.framework == "trainer":  # of a softmax in 32 bits, and a copy
            each = 4 + e
        probabilities = each * heads * run.sequence
    attended = 2 if _adapted(run, "attention") else 1
    return Kept(
        _stream(a, run),
        _normed(a, run, 3, "attention") + _in_norm(a, run),
        copies * e * inputs,
        probabilities,
        low + attended * e * out + (4 * heads if not probabilities else 0),
        0.0,
        0.0,
        _mask(a, run),
        2 * a.hidden + 2 * probabilities / e,
    )


def _mixed(a: Architecture, run: Layout, mixer: Mixer) -> Kept:
    """Projections before and after the convolution; the scan's output, gated."""
    e, inner = element(run), mixer.inner / run.tp
    stream, normed = _stream(a, run), _normed(a, run, 1, "mamba")
    inputs = mixer.kept / run.tp - 2 * inner
    return Kept(stream, normed, e * inputs, 0, e * 2 * inner, 0, 0, 0, 3 * inner)


def _mlp(a: Architecture, run: Layout, part: str) -> Kept:
    """Function and product apart keep one tensor more than a kernel of both.

    A plain ReLU knows its gradient from its output alone. A frozen product does not
    need its input, an adapter beside it does; litgpt was measured to keep it.
    """
    e, stream = element(run), _stream(a, run)
    if run.states == "amp" and run.style == "compiled":
        stream = e * a.hidden / _split(run)  # the sum is made again from its part
    width, routed = a.intermediate / run.tp, 0.0
    if part == EXPERTS:
        width = _expert_width(a, run)
        # A GPU that cuts experts with others is given the tokens of all of them.
        given = (run.experts.cut if run.ep > 1 else 1) / run.tp
        routed = narrow(run) * a.experts_per_token * a.routed_width * given
    entered = (2 if a.gated else 1) * _between(run) * width
    if a.relu and not a.gated:
        entered = 0.0
    apart = _between(run) * width if a.gated and run.style == "eager" else 0.0
    function = _inputs(run) * narrow(run) * width
    normed = _normed(a, run, 2 if a.gated else 1, "mlp")
    if run.lora and not {"mlp", "litgpt"} & {*run.adapted, run.framework}:
        function = normed = 0.0
    normed += _in_norm(a, run)
    return Kept(
        stream, normed, entered, 0, 0, apart + function, routed, _mask(a, run),
        (3 if a.gated else 2) * width + a.hidden / _split(run),
    )  # fmt: skip


def _under(a: Architecture, run: Layout, part: str, x: Kept) -> float:
    """Bytes of a token that a part keeps under the run's recomputation."""
    whole = sum(x) - x.width
    if run.recompute in ("full", "block"):
        entry = x.stream if part in ATTENDING else 0.0
        if run.framework in ("deepspeed", "deepspeed-2021"):
            entry /= run.tp  # it divides them as tensors are
        return run.recomputed * entry + (1 - run.recomputed) * whole
    if run.recompute == "ops":
        return _every_other(a, run, part)
    return whole - sum(dropped(a, run, part, x))


def dropped(a: Architecture, run: Layout, part: str, x: Kept) -> Kept:
    """Return what modules that are computed again by name leave out of a part's."""
    gone, named = dict.fromkeys(Kept._fields, 0.0), run.modules
    if "core_attn" in named:
        gone["probabilities"] = x.probabilities
    latent = a.latent is not None and part in ATTENDING
    # Norms are kernels of their own there alone, else joined to the product.
    if "layernorm" in named and (latent or part == EXPERTS):
        gone["normed"] = x.normed
    if "mla_up_proj" in named and latent:
        gone["projected"] = x.projected
    if MODULE_OF.get(part) in named:
        own = ("projected", "function", "routed", "normed")[: 4 if part == DENSE else 3]
        gone |= {name: getattr(x, name) for name in own}
    elif part == EXPERTS:
        shared = a.shared_intermediate / run.tp / (_expert_width(a, run) or 1)
        beside = shared * ("shared_experts" in named)
        gone["projected"] = beside * x.projected
        gone["function"] = (beside + (1 - shared) * ("moe_act" in named)) * x.function
    return Kept(**gone)


def _expert_width(a: Architecture, run: Layout) -> float:
    """Return the width of experts, routed and shared, for a token of a micro-batch."""
    routed = a.experts_per_token * a.expert_intermediate / run.tp
    return routed + a.shared_intermediate / run.tp


def _every_other(a: Architecture, run: Layout, part: str) -> float:
    """torchtitan's policy: outputs of every other product, of attention, the input.

    Of queries, keys, values, output, and gate, up and down: the odd ones. Grouped
    products of experts are none of its list: of those their input is kept alone.
    """
    e = element(run)
    if part in ATTENDING:
        heads = a.heads / run.tp
        kv = max(a.kv_heads / run.tp, 1)
        inner = (2 * heads + kv) * a.value_width
        return e * inner + 4 * heads + _stream(a, run)
    width = a.shared_intermediate if part == EXPERTS else a.intermediate
    return e * width / run.tp + e * a.hidden / _split(run)


def of_stage(
    c: Constants, a: Architecture, run: Layout, layers: tuple[Layer, ...]
) -> Activations:
    """Return those of one micro-batch of a stage, and of a layer's backward pass."""
    scale = run.tokens * c("memory.activations", run.style, run.framework)
    held = working = 0.0
    for layer in set(layers):
        whole = each = widest = 0.0
        for part in layer:
            x = kept(a, run, part)
            whole += sum(x) - x.width
            each += _under(a, run, part, x)
            widest = max(widest, element(run) * x.width)
        held += layers.count(layer) * each
        again = whole if run.recompute == "block" else whole - each
        working = max(working, again + c("memory.working") * widest)
    return Activations(scale * held, scale * working)


def head(c: Constants, a: Architecture, run: Layout) -> float:
    """Logits, their copies and gradients while the loss is made; the last norm's."""
    by = ".chunked" if run.chunked_loss else ".fused" if run.fused_loss else ""
    halves = not by and run.framework in _IN_HALVES and run.precision == "fp16"
    qualities = "halves" if halves else f"{run.framework}-{run.style}"
    each = c(f"memory.head{by}", run.framework, qualities)
    ends = run.tokens * (_stream(a, run) + element(run) * a.hidden)
    return logits(a, run) * each * element(run) / 2 + ends


def logits(a: Architecture, run: Layout) -> float:
    """Their number for a micro-batch on one GPU."""
    return run.tokens * a.vocabulary / run.tp
