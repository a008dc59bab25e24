"""What Megatron-LM's relatives say otherwise than by other names."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from ...errors import InstanceError
from ...trainers.megatron import TABLE
from ...trainers.megatron.relatives import FLAGSCALE, MEGATRON, NEMO, SWIFT
from ...trainers.megatron.stages import LAYOUT, layout_of
from ...trainers.table import Dialect
from .values import Read, plain

_DEGREES = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
#: Where FlagScale has the degrees of stages, and whose these are.
MESHES = "hetero-process-meshes"
_OF_MESHES = (
    *("tensor-model-parallel-size", "context-parallel-size"),
    *("expert-model-parallel-size", "pipeline-model-parallel-size"),
)
_DISTRIBUTED = {"use-distributed-optimizer": ""}


def _precision(read: Read) -> None:
    kind = read.given.pop("mixed-precision", read.given.pop("precision", ""))
    if kind in ("16", "16-mixed", "fp16_mixed"):
        read.given["fp16"] = ""
    elif "bf16" in kind:
        read.given["bf16"] = ""
    elif kind in ("32", "32-true", "fp32") or "mixed-precision" in read.none:
        read.off.add("bf16")  # which is not what a recipe has anyway
    if "fp8" in kind:
        read.given["fp8-format"] = "hybrid"
        if "mxfp8" in kind:
            read.given["fp8-recipe"] = "mxfp8"
    # NeMo's own rule: gradients are reduced in fp32 where it says just that.
    in_narrow = read.given.pop("grad-sync-dtype", "fp32") != "fp32"
    if in_narrow or "grad-reduce-in-fp32" in read.off:
        read.given["grad-reduce-in-bf16"] = ""


def _of_nemo(read: Read) -> Iterator[str]:
    _precision(read)
    given = read.given
    if "num-query-groups" in given:  # whose number is all that configurations tell
        given["group-query-attention"] = ""
    nodes, devices = given.get("num-nodes", ""), given.get("devices", "")
    if all(re.fullmatch(r"[0-9]{1,6}", one) for one in (nodes, devices)):
        given["world-size"] = str(int(nodes) * int(devices))
    if "lora-rank" in given or given.get("peft") == "lora":
        given["tuner-type"] = "lora"
        given.setdefault("lora-rank", "32")
    told = given.keys() | read.none | read.off
    silent = {k: v for k, v in BY_RECIPES.items() if k not in told}
    yield from read.usual(_DISTRIBUTED, "a recipe of NeMo or Megatron-Bridge")
    if silent:
        listed = ", ".join(f"--{name} {value}" for name, value in silent.items())
        yield (
            f"settings made by the recipe itself are not read: assumed {listed}; if "
            "they differ, give the configuration that the run printed or saved"
        )
    if "fp16" not in given:
        yield from read.usual({"bf16": ""}, "a recipe of NeMo or Megatron-Bridge")


def _of_swift(read: Read) -> Iterator[str]:
    given = read.given
    if "max-length" in given:
        given.setdefault("seq-length", given["max-length"])
        read.written.setdefault("seq-length", read.written["max-length"])
    if given.get("torch-dtype") == "float16":
        given["fp16"] = ""
    taken = {
        **_DISTRIBUTED,
        "recompute-granularity": "selective",
        "micro-batch-size": "1",
    }
    taken |= {} if "fp16" in given else {"bf16": ""}
    taken |= {"lora-rank": "8"} if given.get("tuner-type") == "lora" else {}
    yield from read.usual(taken, "ms-swift")


def _of_flagscale(read: Read) -> Iterator[str]:
    """Stages of process meshes [tp, cp, ep, dp, pp] are a layout and its degrees."""
    yield from ()
    given = read.given
    if "enable-hetero" not in given:
        return
    numbers = [int(one) for one in re.findall("[0-9]{1,9}", given.get(MESHES, ""))]
    meshes = [tuple(numbers[at : at + 5]) for at in range(0, len(numbers), 5)]
    if not meshes or len(numbers) % 5 or len({mesh[:4] for mesh in meshes}) > 1:
        raise InstanceError(
            f"{read.place}: hetero_process_meshes: found stages of several degrees, or "
            "none, which are not supported by readers of runs; give the plan itself"
        )
    degrees = (*meshes[0][:3], sum(mesh[4] for mesh in meshes))
    given |= {name: str(n) for name, n in zip(_OF_MESHES, degrees, strict=True)}
    if split := re.findall("[0-9]{1,9}", given.get("hetero-pipeline-layer-split", "")):
        given[LAYOUT] = layout_of([int(one) for one in split])


_OTHERS: Mapping[str, Callable[[Read], Iterator[str]]] = {
    NEMO.title: _of_nemo,
    SWIFT.title: _of_swift,
    FLAGSCALE.title: _of_flagscale,
}


def others_of(read: Read) -> Iterator[str]:
    """Put what is no renaming into Megatron-LM's names, and yield notes of it."""
    if (adapt := _OTHERS.get(read.dialect.title)) is not None:
        yield from adapt(read)


#: What recipes set themselves, as it is taken where no file tells it.
BY_RECIPES = {
    "tensor-model-parallel-size": "1",
    "pipeline-model-parallel-size": "1",
    "context-parallel-size": "1",
    "recompute-granularity": "none",
}
#: Arguments that recipes take, and functions around them.
OF_RECIPES = frozenset(
    {
        *("tensor-model-parallel-size", "pipeline-model-parallel-size"),
        *("virtual-pipeline-model-parallel-size", "context-parallel-size"),
        *("expert-model-parallel-size", "sequence-parallel", "seq-length"),
        *("micro-batch-size", "global-batch-size", "recompute-granularity"),
        *("recompute-method", "recompute-num-layers"),
        *("num-nodes", "num-gpus-per-node"),
    }
)
#: Names that ms-swift has beside Megatron-LM's, which has none of them.
OF_SWIFT = frozenset({"tuner-type", "max-length", "mcore-model"})


def dialect_of(keys: Collection[str], program: str) -> Dialect:
    """Return which of the programs has such keys, in such a command."""
    own = (key for key in keys if "system" in key.split(".")[:-1])
    if any(plain(key) in TABLE.names for key in own):
        return FLAGSCALE
    names = {plain(key) for key in keys}
    sections = {key.partition(".")[0] for key in keys if "." in key}
    if not names.isdisjoint(_DEGREES) and not NEMO.sections.isdisjoint(sections):
        return NEMO
    if "megatron" in program.split() or not OF_SWIFT.isdisjoint(names):
        return SWIFT
    return MEGATRON
