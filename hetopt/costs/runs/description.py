"""Meanings of the words of a run: its machine, architecture and layout.

Nothing is guessed in silence: what a run does not tell and cannot be derived makes it
`NotModelled`, with the reason; what is usual where a row says nothing is written here.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from ...schema.groups import rule_of
from ...schema.layers import ATTENTION, DENSE, EXPERTS, MAMBA, LatentAttention
from ..constants import Table
from ..formulas import memory, step
from ..formulas.architecture import Architecture, Layer, mamba_2
from ..formulas.frameworks import (
    FRAMEWORKS,
    Framework,
    adapting,
    by_pytorch,
    first,
    framework,
    kernel_of,
)
from ..formulas.layout import BESIDE_ALL, Layout, half_years
from ..formulas.machine import Machine
from . import machines
from .rows import Run


class NotModelled(Exception):
    """A run that the model cannot express; the text says why, and what would help."""


def untold(fields: Sequence[str], what: str = "") -> NotModelled:
    """Return the refusal of a run that leaves fields out; `what` says what to give."""
    it = what or ("it" if len(fields) == 1 else "them")
    return NotModelled(f"{', '.join(fields)} missing: give {it}")


class Described(NamedTuple):
    """A run in the model's terms."""

    machine: Machine
    architecture: Architecture
    layout: Layout

    def terms(self, c: Table) -> Mapping[str, float]:
        """Return the seconds of an iteration by term."""
        return step.terms(c, *self)

    def peak(self, c: Table) -> memory.Terms:
        """Return the bytes by term of the fullest GPU, as they show."""
        return memory.peak(c, *self)

    def died(self, c: Table) -> float:
        """Return the chance that the run dies of memory."""
        return memory.died(c, *self)

    def systems(self, model: str | None) -> tuple[str, ...]:
        """Return what one run tells of another: framework and card, and model."""
        own = f"{self.layout.framework}/{self.machine.card}"
        return own, f"{own}/{self.layout.precision}", f"{own}/{model}"

    @property
    def configuration(self) -> Hashable:
        """Return what runs have in common that differ in batches alone."""
        return replace(self.layout, micro_batch=1, micro_batches=1)

    def recomputing(self) -> Self:
        """Return the run if it recomputed everything."""
        layout = replace(self.layout, recompute="full", recomputed=1.0)
        return self._replace(layout=layout)


#: Widths of the latent attention of DeepSeek-V3 (arXiv 2412.19437, section 4.2).
_DEEPSEEK_V3 = LatentAttention(
    query_rank=1536, key_rank=512, plain=128, rotary=64, value_dim=128
)


def described(run: Run) -> Described:
    """The run in the model's terms; `NotModelled` with the reason where it has none."""
    if run.layout_consistent is False:
        raise NotModelled("its layout contradicts itself, as the row says")
    if run.plan is not None:
        raise NotModelled("its plan is judged, and no constants are fitted to it")
    run = _on_equal_nodes(run)
    architecture = architecture_of(run)
    machine = machines.of(run, NotModelled)
    layout = layout_of(run, machine, framework_of(run))
    for fault in _faults(run, architecture, layout):
        raise NotModelled(fault)
    return Described(machine, architecture, layout)


def _on_equal_nodes(run: Run) -> Run:
    """Return a row whose nodes are counted in place of listed."""
    if not isinstance(run.nodes, tuple):
        return run
    one, *others = run.nodes
    if any(node.model_copy(update={"name": one.name}) != one for node in others):
        raise untold(["plan"], "it, as the nodes are not alike")
    told = {
        "gpu": run.gpu or one.gpu,
        "gpus": run.gpus or sum(node.gpus for node in run.nodes),
        "nodes": len(run.nodes),
        "network": run.network or one.network,
        "intra_gbytes_per_s": run.intra_gbytes_per_s or one.intra_gbytes_per_s,
    }
    return run.model_copy(update=told)


def _faults(run: Run, a: Architecture, layout: Layout) -> Iterator[str]:
    if run.gpus is not None and layout.gpus != run.gpus:
        yield f"dp x tp x pp x cp is {layout.gpus}, gpus {run.gpus}: correct one"
    if a.latent is None and a.head_dim < 1:
        yield f"hidden {a.hidden} is less than heads {a.heads}: give head_dim"
    told = a.experts and a.experts_per_token and a.expert_intermediate
    if not told and any(EXPERTS in layer for layer in a.layers):
        yield "experts, experts_per_token or moe_intermediate missing: give all three"
    if layout.ep > max(1, a.experts):
        yield f"ep {layout.ep} of {a.experts} experts: each GPU has one at the least"
    if layout.pp > len(a.layers) + 2:
        yield f"{layout.pp} pipeline stages of {len(a.layers)} layers: correct pp"
    held = layout.stage_layers
    if held is not None and (len(held), sum(held)) != (layout.pp, len(a.layers)):
        yield (
            f"stage_layers tells {sum(held)} layers in {len(held)} stages, the run has "
            f"{len(a.layers)} in {layout.pp}: correct it"
        )


def architecture_of(run: Run) -> Architecture:
    """Return the shape of a run's model; `NotModelled` where it is not told."""
    missing = [
        field
        for field in ("layers", "hidden", "heads", "vocabulary", "seq")
        if getattr(run, field) is None
    ]
    if missing:
        raise untold(missing)
    assert run.layers is not None
    assert run.hidden is not None
    assert run.heads is not None
    assert run.vocabulary is not None
    notes = run.shape_notes or ""
    if "FFN_HIDDEN_SIZE" in notes or "intermediate unknown" in notes:
        raise untold(["intermediate"], "it, the width of an MLP")
    latent, mixers = None, {}
    if "MLA" in notes or (run.head_dim is None and run.experts and run.hidden == 7168):
        latent = _DEEPSEEK_V3
    shared = (run.shared_experts or 0) * (run.moe_intermediate or 0)
    if found := re.search(r"Mamba (\d+) heads x (\d+), state (\d+)", notes):
        mixers[MAMBA] = mamba_2(run.hidden, *map(int, found.groups()))
    width = re.search(r"shared expert of (\d+)", notes)
    window = re.search(r"sliding window of (\d+)", notes)
    return Architecture(
        layers=_layers(run, notes),
        hidden=run.hidden,
        heads=run.heads,
        kv_heads=run.kv_heads or run.heads,
        head_dim=run.head_dim or run.hidden // run.heads,
        intermediate=run.intermediate or 4 * run.hidden,
        gated=bool(run.gated),
        vocabulary=run.vocabulary,
        tied=_is_tied(run, notes),
        experts=run.experts or 0,
        experts_per_token=run.experts_per_token or 0,
        expert_intermediate=run.moe_intermediate or 0,
        expert_hidden=run.moe_latent_size or 0,
        shared_intermediate=int(width[1]) if width else shared,
        latent=latent,
        mixers=mixers,
        window=int(window[1]) if window else None,
    )


def _is_tied(run: Run, notes: str) -> bool:
    """Return whether embedding and head are one matrix; GPTs of collections have it."""
    if run.tied is not None:
        return run.tied
    if found := re.search(r"\b(un)?tied\b", notes):
        return found.group(1) is None
    names = _TIED if run.gated else _UNTIED
    return (names.search(run.model or "") is not None) is bool(run.gated)


#: Models by name, as their configurations have it: gated ones with one matrix for
#: embedding and head, and plain ones with two.
_TIED = re.compile(
    r"gemma|llama[-_ ]?3\.2[-_ ]?[13]b|qwen[-_ ]?2(\.5)?[-_ ]?(0\.5|1\.5|3)b"
    r"|qwen[-_ ]?3[-_ ]?(0\.6|1\.7|4)b|qwen1\.5[-_ ]?0\.5b|smollm|minicpm"
    r"|command[-_ ]?r|phi[-_ ]?4[-_ ]?mini|granite[-_ ]?3|olmo[-_ ]?1b",
    re.IGNORECASE,
)
_UNTIED = re.compile(r"phi[-_ ]?[12]|pythia|neox|gpt-?j", re.IGNORECASE)


def _layers(run: Run, notes: str) -> tuple[Layer, ...]:
    assert run.layers
    if found := re.search(r"hybrid pattern ([ME*-]+)", notes):
        kinds = {"M": (MAMBA,), "E": (EXPERTS,), "*": (ATTENTION,), "-": (DENSE,)}
        return tuple(kinds[letter] for letter in found.group(1))
    if "mamba" in (run.kind or ""):
        raise NotModelled(
            "a hybrid of Mamba and attention whose pattern is missing: give "
            "`hybrid pattern M*ME` in shape_notes, of M, E (experts), * and - (MLP)"
        )
    if not run.experts:
        return ((ATTENTION, DENSE),) * run.layers
    if run.moe_intermediate is None or run.experts_per_token is None:
        raise untold(["moe_intermediate or experts_per_token"], "both")
    dense = 0
    if found := re.search(r"first (\d+)? ?layers? dense", notes):
        dense = int(found.group(1) or 1)
    first = ((ATTENTION, DENSE),) * dense
    return first + ((ATTENTION, EXPERTS),) * (run.layers - dense)


#: Frameworks by a word of their name, the first that fits.
WORDS = {
    "hetopt executor": "executor",
    **{name: name for name in ("automodel", "llm.c")},
    **dict.fromkeys(("zero-3", "zero, old"), "deepspeed"),
    "unsloth": "unsloth",
    **dict.fromkeys(("hf trainer", "peft", "trl"), "trainer"),
    **dict.fromkeys(("llama-factory", "axolotl"), "trainer"),
    "megatron": "megatron",
    "bigscience": "megatron-2021",
    **dict.fromkeys(("nemo", "mlperf", "primus"), "megatron"),
    **{name: name for name in ("llm-foundry", "fms", "torchtitan", "internevo")},
    **{name: name for name in ("litgpt", "torchtune", "nanotron", "deepspeed")},
    **dict.fromkeys(("swift", "transformers"), "trainer"),
    "torch": "torch",
}
#: The year of software, by its own words, and by collections of runs of it.
_YEARS = {
    r"megatron-deepspeed|old branch|1\.1\.5|\n(bigscience|vtrain)": 2021,
    r"\ntorchtitan-h100$": 2024,
}
#: The first year of software that has FlashAttention.
_FLASH = 2023
#: The first year in which programs that compile a model compile its loss.
_LOSS_COMPILED = 2025


def _text(*words: str | None) -> str:
    """Return words of a row as one text to search in; what is not told is left out."""
    return " ".join(filter(None, words)).lower()


def framework_of(run: Run) -> str:
    """Return the framework of a run, from its own words or its set's; or `other`.

    Software before 2023 goes by other names, where a row tells its year or version.
    """
    name = first(WORDS, _text(run.framework)) or first(WORDS, _text(run.set)) or "other"
    old = f"{name}-2021"
    return old if old in FRAMEWORKS and _year(run) < _FLASH else name


def _year(run: Run) -> int:
    """Return the year of the software, as a row tells it, else a late one."""
    words = _text(run.framework, run.release)
    if told := re.search(r"\b20\d\d\b", words):
        return int(told[0])
    found = (re.search(pattern, f"{words}\n{_text(run.set)}") for pattern in _YEARS)
    every = (year for year, one in zip(_YEARS.values(), found, strict=True) if one)
    return next(every, _LOSS_COMPILED)


_KNOWN = "bf16, fp16, fp8, mxfp8, nvfp4, tf32 or fp32"
#: Precisions by a word of theirs, the first that fits.
_PRECISIONS = {
    **{name: name for name in ("nvfp4", "mxfp8", "fp8")},
    "float8": "fp8",
    **{name: name for name in ("bf16", "fp16", "tf32", "fp32")},
}


def precision_of(run: Run) -> str:
    """The precision of the products."""
    if not run.precision:
        raise untold(["precision"], _KNOWN)
    if found := first(_PRECISIONS, _text(run.precision)):
        return found
    raise NotModelled(
        f"precision {run.precision!r} is none that is known: give {_KNOWN}"
    )


def _recompute(run: Run, usual: Framework) -> tuple[str, float]:
    text = (run.recompute or usual.recompute).lower()
    if "per op" in text or "per-op" in (run.activation_checkpointing or ""):
        return "ops", 1.0
    if found := re.search(r"block, (\d+) layers", text):
        return "block", int(found.group(1)) / (run.layers or 1)
    if text.startswith("full"):
        return "full", 1.0
    if "share of blocks" in text:
        return "block", 0.5
    if text.startswith("selective") and ":" not in text:
        text = "selective"
    try:
        rule = rule_of(text)
    except ValueError as error:
        if text.startswith("selective"):
            raise NotModelled(f"recompute: {error}") from None
        rule = "none"
    return (usual.selective if rule == "selective" else rule), 1.0


def layout_of(run: Run, machine: Machine, name: str) -> Layout:
    """Return how a run lies on its GPUs, and what its framework, by name, does."""
    if run.dp is None or run.tp is None or run.pp is None:
        raise untold(["dp, tp or pp"], "all three, 1 where nothing is divided")
    usual = framework(name)
    if not run.mbs or not (run.gbs or run.ga):
        raise untold(["micro-batch"], "mbs, and gbs or ga")
    counted = round(run.gbs / (run.mbs * run.dp)) if run.gbs else run.ga
    words = _overlap(run)
    loss, offload = map(_text, (run.loss, run.offload))
    program, of_set, model = map(_text, (run.framework, run.set, run.model))
    bucket = re.search(r"reduce_bucket_size=(\d+(?:\.\d*)?(?:e\+?\d+)?)", words)
    recompute, share = _recompute(run, usual)
    loss = loss or ("chunked" if usual.chunked_loss or "chunked" in words else "")
    zero = run.zero if run.zero is not None else (1 if name == "megatron" else 0)
    matrices, drops = adapting(_text(program, of_set))
    parts, attended = _adapted(run.lora_targets or matrices)
    # A rank alone says so, too.
    by_words = _LORA.search(_text(run.task, run.shape_notes, model))
    of_adapters = (run.lora_rank, run.lora_targets, run.frozen_bits)
    lora = by_words is not None or of_adapters != (None, None, None)
    frozen = run.frozen_bits or (4 if "qlora" in _text(run.task) else 16)
    optimiser = _text(run.optimizer)
    overlapped = re.findall(f"(?:{_OVERLAPPED_EXPERTS})(=true)?", words)
    mlperf = re.search(r"mlperf\D*(v\d\.\d)", _text(program, of_set))
    told_tp = re.search(r"tp_comm_overlap=(true|false)", words)
    big = (run.layers or 0) * (run.hidden or 0) ** 2 > 2e9 and not run.experts
    hidden_tp = "async tp" in words or (name == "megatron" and big)
    style = "compiled" if "torch.compile" in words else usual.style
    compiled = usual.compiled_loss and style == "compiled"
    compiled &= _year(run) >= _LOSS_COMPILED
    shard = 0
    by_fsdp = name == "trainer" and (
        "fsdp" in program or run.fsdp not in (None, 0, "No")
    )
    by_name = by_fsdp and run.zero is run.fsdp is None
    told = (isinstance(run.fsdp, int) and run.fsdp) or run.fsdp == "Yes"
    if zero == 3 or told or by_name:
        shard = run.dp * (run.cp or 1)
        if "HSDP" in str(run.fsdp):
            shard = min(shard, machine.gpus)
    return Layout(
        framework=name,
        # Whether element-wise operations are single kernels, compiled or fused.
        style=style,
        precision=precision_of(run),
        sequence=run.seq or 0,
        micro_batch=run.mbs,
        micro_batches=max(1, counted or 1),
        dp=run.dp,
        tp=run.tp,
        cp=run.cp or 1,
        pp=run.pp,
        vp=run.vp or 1,
        ep=_ep(run),
        etp=_etp(run, name),
        zero=zero,
        shard=shard,
        recompute=recompute,
        recomputed=share,
        split_sequence=usual.split_sequence,
        kernel=_kernel(run, machine, name),
        sinks=name == "megatron" and model.startswith("gpt-oss"),
        expert_biases=model.startswith("gpt-oss"),
        rowwise="rowwise" in (run.precision or ""),
        sharding="fsdp1" if by_fsdp else usual.sharding,
        accumulate_fp32=_gradients_fp32(run, usual),
        lora=lora,
        rank=run.lora_rank or _RANK,
        adapted=parts,
        attended=attended,
        drops=drops if run.lora_dropout is None else run.lora_dropout > 0,
        frozen_bits=frozen if lora and frozen < 16 else None,
        quantised_beside=_keeps_both_widths(run, words),
        offload=run.offload is not None,
        overlap_tp=told_tp[1] == "true" if told_tp else hidden_tp,
        overlap_ep=any(overlapped) if overlapped else None,
        overlap_dp=usual.overlapped,
        bucket=float(bucket[1]) if bucket else None,
        buckets=2 if "overlap_comm=true" in words else 1,
        graphs=_graphs(words),
        flexible=re.search("hybridep|deepep", words) is not None,
        looped=name == "trainer" and not _GROUPING.search(program),
        gathered_bytes=1.0 if _NARROW.search(words) else 2.0,
        in_switch=re.search(r"sharp=(true|1)", words) is not None,
        owners=_owners(run),
        half_years=half_years(run.release or _ROUNDS.get(mlperf[1] if mlperf else "")),
        stage_layers=run.stage_layers,
        states=_states(run, name, shard=bool(shard), lora=lora),
        updated_at_once=bool(
            re.search(_AT_ONCE, f"{optimiser} {words}".replace("_", " "))
        ),
        ragged=name == "trainer"
        and _RAGGED.search(program) is not None
        and not _EQUAL.search(_text(program, words, run.task, run.statistic)),
        listed=usual.listed and not _ONE_KERNEL.search(f"{optimiser} {program}"),
        moments_bits=8 if "8-bit" in optimiser else 32,
        dropout=usual.dropout,
        fused_loss="plain" not in loss if loss else usual.fused_loss or compiled,
        chunked_loss="chunk" in loss,
        balanced=_is_balanced(run),
        # The program's name, before what it is of: `InternEvo (PyTorch)` is its own.
        own=first(WORDS, re.split(r"[ (,+]*[(,+]", program or of_set)[0]) is not None,
        hosted=tuple(word for word in ("optimizer", "parameters") if word in offload),
        hosted_layers=_hosted_layers(run, words, offload),
    )


#: Programs that pad samples to the longest of a micro-batch (`seq` is the most), and
#: words by which they do not.
_RAGGED = re.compile("swift|llama-?factory|trl|axolotl|fastchat")
_EQUAL = re.compile("pack|padded|equal length|fixed length")
#: Words of optimisers that update a weight as its gradient is there.
_AT_ONCE = "optimi[sz]er( step)? in(to)? (the )?(backward|bwd)"
#: AdamW of bitsandbytes, or PyTorch's where asked, as transformers since 5 asks.
_ONE_KERNEL = re.compile(r"8-bit|fused|transformers[ =v]*([5-9]|\d\d)\.")
#: Tokens sent to experts while others are computed, as Megatron-Bridge and -LM say it.
_OVERLAPPED_EXPERTS = "moe_a2a_overlap|overlap_moe_expert_parallel_comm"
#: Releases of transformers that group products of experts, which older ones loop over.
_GROUPING = re.compile(r"transformers[ =]*v?([5-9]|\d\d)")


#: Recipes of Megatron-Bridge for mixtures in MXFP8, from a release on, which its rows
#: tell in part, as helpers of the recipes say it.
_RECIPE_OF_MIXTURES = "26.06"
_WHOLE = "; hybridep; moe_a2a_overlap=true; cuda_graph_impl=full_iteration"


def _overlap(run: Run) -> str:
    """Return what a run tells of overlap and graphs, or its recipes have.

    No tokens of hybrids are sent behind computing: Megatron-Bridge plans that order of
    micro-batches for decoders of attention alone.
    """
    words = _text(run.overlap)
    if not run.experts or re.search(_OVERLAPPED_EXPERTS, words):
        return words
    if "hybrid pattern" in (run.shape_notes or ""):
        return f"{words}; moe_a2a_overlap=false"
    bridge = "megatron-bridge" in _text(run.framework, run.set)
    newer = bridge and (run.release or "") >= _RECIPE_OF_MIXTURES
    whole = newer and "mxfp8" in _text(run.precision) and "graph_impl" not in words
    return words + _WHOLE if whole else words


def _graphs(words: str) -> tuple[str, ...]:
    """Return what CUDA graphs launch; of Transformer Engine's all that they can."""
    told = re.search(r"graph_impl\W*(\w+)", words)
    if "full_iteration" in words and "graph" in words:
        return ("full_iteration",)
    if told is None or told[1] != "transformer_engine":
        return ()
    scopes = re.search(r"graph_(?:scope|modules)\W*\[([^]]+)", words)
    return tuple(re.findall(r"\w+", scopes[1] if scopes else _CAPTURED))


#: What graphs of Transformer Engine have where a run does not tell.
_CAPTURED = "attn mamba moe_router"


def _owners(run: Run) -> int:
    """Return how many replicas of InternEvo's ZeRO 1 send their part of the weights."""
    if run.zero != 1 or "internevo" not in _text(run.framework):
        return 0
    told = re.search(r"zero-1 over (\d+) gpus", _text(run.notes))
    return min(int(told[1]) if told else 10**9, run.dp or 1)


def _is_balanced(run: Run) -> bool:
    """Return whether experts have equal parts of the tokens, or no more than those.

    Pages of measured recipes have them so by force, as have AutoModel's of benchmarks
    (`fake_balanced_gate`); with a capacity what is above it is dropped.
    """
    if run.routing is not None:
        return bool(re.search("forced|capacity|drop(?!less)", run.routing.lower()))
    pages = _text(run.set, run.framework)
    return pages.startswith(_TUNED) or "automodel" in pages


#: Of adapters, where it is not told.
_RANK = 16
_OF_ATTENTION = re.compile("[qkvo]|attn|attention|c_(attn|proj)|linear_[qp]|w_?[qp]")
_SINGLE = re.compile(r"([qkvo]|query|key|value|out|output)(_(proj|lin|layer))?")


def _ep(run: Run) -> int:
    if run.experts and run.ep is None and run.gpus != 1:
        raise untold(
            ["ep"], "it, over how many GPUs experts are divided, 1 where they are not"
        )
    return run.ep or 1


def _etp(run: Run, name: str) -> int | None:
    """Return among how many GPUs each expert is cut.

    Megatron itself cuts as tensor parallelism does unless `etp` is told, where there
    are GPUs for it; its recipes and what is made of it (NeMo, Megatron-Bridge,
    ms-swift) tell one.
    """
    if run.etp is not None or name != "megatron" or not _is_plain_megatron(run):
        return run.etp
    tp, ep = run.tp or 1, _ep(run)
    members = (run.dp or 1) * tp * (run.cp or 1)
    return tp if ep > 1 and members % (ep * tp) == 0 else None


def _is_plain_megatron(run: Run) -> bool:
    """Return whether a run is of Megatron-LM by arguments, not of a recipe."""
    own = _text(run.framework)
    return "megatron" in own and not re.search("bridge|nemo|swift|primus", own)


def _keeps_both_widths(run: Run, words: str) -> bool:
    """Return whether weights of fewer bits are kept beside those of 16.

    Megatron has both unless it is told `--fp8-param-gather`, which recipes of
    Megatron-Bridge and NeMo have.
    """
    few = precision_of(run) in ("fp8", "mxfp8", "nvfp4")
    return few and _is_plain_megatron(run) and not _NARROW.search(words)


#: Weights that replicas get in eight bits.
_NARROW = re.compile("fp8[-_]params?(?:[-_]gather)?(?:=true|=1|$|[,; ])")


def _adapted(told: str | tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the parts with adapters, and the matrices of attention that have one.

    Of `all`, `attention`, `q_proj, v_proj` ...; what joins matrices stands for each.
    """
    names = told if isinstance(told, tuple) else re.split(r"[\s,;+]+", told)
    words = [name.strip().lower() for name in names if name.strip()]
    if any(word.startswith(("all", "*")) for word in words):
        return BESIDE_ALL, "qkvo"
    attending = [word for word in words if _OF_ATTENTION.match(word)]
    single = "".join(word[0] for word in attending if _SINGLE.fullmatch(word))
    parts = ((bool(attending), "attention"), (len(attending) < len(words), "mlp"))
    beside = single if len(single) == len(attending) else "qkvo"
    return tuple(part for has, part in parts if has), beside


#: Pages of measured recipes, which have gradients of 16 bits.
_TUNED = ("megatron-bridge", "nemo", "mlperf")


def _gradients_fp32(run: Run, usual: Framework) -> bool:
    """Return whether gradients are of 32 bits as replicas exchange them.

    Megatron itself has them so where products are not in fp16 (its `arguments.py`), and
    so have recipes of Megatron-Bridge and NeMo, but for those of the pages on speed.
    """
    if run.gradient_bits is not None:
        return run.gradient_bits == 32
    if re.search("grad_accum_dtype.{1,4}fp32", run.overlap or ""):
        return True
    own = re.search("megatron|nemo", _text(run.framework))
    measured = _text(run.set).startswith(_TUNED)
    by_recipe = own and not measured and precision_of(run) not in ("fp16", "fp32")
    return usual.fp32_gradients or bool(by_recipe)


#: Words of frozen weights with adapters; ranks of latent attention, a `q_lora_rank`,
#: are widths of the model's own.
_LORA = re.compile(r"(?<![a-z_])(?:q|r|rs)?lora(?![a-z])")


def _states(run: Run, name: str, *, shard: bool, lora: bool) -> str:
    """Return what the optimiser works on.

    Mixed precision of PyTorch without ZeRO is autocast's, of weights in 32 bits;
    weights beside adapters have 16.
    """
    if precision_of(run) in ("fp32", "tf32"):
        return "fp32"
    told = _text(run.precision)
    alone = framework(name).narrow_states and not re.search("mixed|fp32", told)
    if alone or "16-bit states" in (run.optimizer or ""):
        return "16bit"
    by_torch = name == "torch" or (name == "trainer" and not (run.zero or lora))
    autocast = by_torch and not shard and "mixed" in (run.precision or "")
    return "amp" if autocast else "mixed"


#: Kernels of attention by a word of theirs, the first that fits; "": scores are in
#: memory.
_KERNELS = {
    "flash1": "flash1",
    "flash3": "cudnn",
    "cudnn": "cudnn",
    "flash": "flash2",
    "sdpa": "sdpa",
    **dict.fromkeys(("unfused", "eager", "math"), ""),
}


def _kernel(run: Run, machine: Machine, name: str) -> str | None:
    """Return the family of attention kernels; None where scores pass through memory.

    `NotModelled` where no such card runs it: FlashAttention 2 and 3 and cuDNN's want
    compute capability 8.0, which came with bf16, and FlashAttention 1 wants 7.5.
    PyTorch's `sdpa` chooses what there is.
    """
    known, told = "bf16" in machine.flops, run.attention
    program = _text(run.framework)
    words = re.sub("[ -]|attention", "", program if told is None else told.lower())
    kernel = first(_KERNELS, words)
    if told is None:
        if "flash" in program:
            return kernel
        # PyTorch has a memory-efficient kernel for older cards, others have none.
        runs = known or by_pytorch(name)
        return kernel_of(name, machine.generation) if runs else None
    if kernel is None:
        raise NotModelled(
            f"attention {told!r} is no kernel that is known: give unfused, flash1, "
            "flash2, flash3, cudnn or sdpa"
        )
    if kernel == "sdpa":
        return kernel_of("torch", machine.generation)
    oldest = "7.5" if kernel == "flash1" else "8.0"
    if not kernel or known or (oldest == "7.5" and machine.generation == "Turing"):
        return kernel or None
    raise NotModelled(
        f"attention {told!r} wants compute capability {oldest}, which this GPU has "
        "not: give sdpa or unfused"
    )


def _hosted_layers(run: Run, words: str, offload: str) -> float:
    """Return the layers that Megatron offloads, or DeepSpeed's inputs."""
    if found := re.search(r"cpu_offloading_num_layers=(\d+)", words):
        return int(found.group(1)) / (run.layers or 1)
    if "activation" in offload:
        return 1.0
    # The scripts of Megatron-LM 1.1.5 for ZeRO-3 ask for it.
    return float("1.1.5 + deepspeed zero" in _text(run.framework))


#: Rounds of MLPerf by the release that they are like: code that is submitted is in
#: recipes a year later.
_ROUNDS = {"v5.0": "26.04", "v5.1": "26.09"}
