"""The arguments of a Megatron-LM run, in whichever form they are kept.

These are the words of a command, or a launch script (`importing.shell` says how much of
bash is read); the arguments that a log begins with; a YAML or JSON file of them, with
or without dashes, as `MODEL_ARGS:` of Megatron's own tests; and the files of its
relatives, whose names `hetopt.trainers.megatron` has. Names are those of flags, with
dashes.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from ...errors import InstanceError
from ...trainers.megatron import TABLE
from ...trainers.megatron.relatives import FLAGSCALE, MEGATRON, NAMES, NEMO, SWIFT
from ...trainers.megatron.stages import LAYOUT, layout_of
from ...trainers.table import Dialect
from ..importing import flags
from ..importing.forms import Form
from .values import Arguments, Read, plain

_DEGREES = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
#: Where FlagScale has the degrees of stages, and whose these are.
MESHES = "hetero-process-meshes"
_OF_MESHES = (
    *("tensor-model-parallel-size", "context-parallel-size"),
    *("expert-model-parallel-size", "pipeline-model-parallel-size"),
)
_DEFAULTED = re.compile(r"\$\{[A-Z][A-Z0-9_]*:([^${}]+)\}")  # ${NAME:default}, Primus
_DISTRIBUTED = {"use-distributed-optimizer": ""}
#: What recipes set themselves, as it is taken where no file tells it.
_BY_RECIPES = {
    "tensor-model-parallel-size": "1",
    "pipeline-model-parallel-size": "1",
    "context-parallel-size": "1",
    "recompute-granularity": "none",
}
#: Arguments that recipes take, and functions around them.
_OF_RECIPES = frozenset(
    {
        *(*_OF_MESHES, "virtual-pipeline-model-parallel-size"),
        *("sequence-parallel", "seq-length"),
        *("micro-batch-size", "global-batch-size", "recompute-granularity"),
        *("recompute-method", "recompute-num-layers"),
        *("num-nodes", "num-gpus-per-node"),
    }
)
#: Names that ms-swift has beside Megatron-LM's, which has none of them.
_OF_SWIFT = frozenset({"tuner-type", "max-length", "mcore-model"})


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
    silent = {k: v for k, v in _BY_RECIPES.items() if k not in told}
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


def _of_megatron(read: Read) -> Iterator[str]:
    """Primus and LLaMA-Factory have defaults; DeepSpeed's one expert is an MLP."""
    if any("pre_trainer" in key.split(".") for key in read.written.values()):
        yield from read.usual({**_DISTRIBUTED, "bf16": ""}, "Primus")
    if read.given.get("tuner-type") == "lora":
        yield from read.usual({"lora-rank": "8"}, "LLaMA-Factory")
    if "deepspeed" in read.given and read.given.get("num-experts") == "1":
        del read.given["num-experts"]


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
    MEGATRON.title: _of_megatron,
    NEMO.title: _of_nemo,
    SWIFT.title: _of_swift,
    FLAGSCALE.title: _of_flagscale,
}


def _dialect_of(keys: Collection[str], program: str) -> Dialect:
    own = (key for key in keys if "system" in key.split(".")[:-1])
    if any(plain(key) in TABLE.names for key in own):
        return FLAGSCALE
    names = {plain(key) for key in keys}
    sections = {key.partition(".")[0] for key in keys if "." in key}
    if not names.isdisjoint(_DEGREES) and not NEMO.sections.isdisjoint(sections):
        return NEMO
    if "megatron" in program.split() or not _OF_SWIFT.isdisjoint(names):
        return SWIFT
    return MEGATRON


def arguments(form: Form, place: str) -> Arguments:
    """Return what a file holds, by flags; the values of a flag are empty.

    `InstanceError` for a file without any, and for flags that Megatron-LM refuses
    together. A log has what it derives from them beside them.
    """
    keys = [key for key in form.values if not key.endswith(".class")]
    dialect = _dialect_of(keys, form.program)
    read = Read(place, dialect)
    for key in keys:
        value = form.values[key]
        told = None if form.is_command else _DEFAULTED.fullmatch(str(value))
        read.add(key, told[1] if told else value)
    if dialect is NEMO:  # what a recipe is called with; parts may be set afterwards
        for key in keys:
            name = plain(key)
            if "." not in key and name in _OF_RECIPES:
                read.put(NAMES.get(name, name), key, form.values[key], is_first=True)
    if not read.given:
        raise InstanceError(
            f"{place}: found no argument, expected some as --num-layers; "
            f"{flags.REMEDY}, or the arguments that the log begins with"
        )
    others = _OTHERS.get(dialect.title)
    notes = tuple(others(read)) if others else ()  # which adds to what was read
    made = read.done(f"{form.kind} of {dialect.title}", notes)
    if dialect is MEGATRON and "log" not in form.kind:
        for wrong in TABLE.violations(made.given, exclusions_only=True):
            raise InstanceError(
                f"{place}: found {wrong}, which Megatron-LM does not start with; "
                "remove one of them"
            )
    return made
