"""The arguments of a Megatron-LM run, in whichever form they are kept.

These are the words of a command, or a launch script (`importing.shell` says how much of
bash is read); the arguments that a log begins with; a YAML or JSON file of them, with
or without dashes, as `MODEL_ARGS:` of Megatron's own tests; configurations and recipes
of NeMo and of Megatron-Bridge, and arguments of ms-swift, whose names are Megatron's or
have one there. Names are those of flags, with dashes.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...errors import InstanceError
from ..importing import flags
from ..importing.forms import Form

# Where the name that is printed is not the flag's.
_FLAGS = {"fp8": "fp8-format", "fp4": "fp4-format"}
_RUNS = "num-virtual-stages-per-pipeline-rank"
#: Names of NeMo, Megatron-Bridge, ms-swift and others that are Megatron-LM's flags.
_ALIASES = _FLAGS | {
    "virtual-pipeline-model-parallel-size": _RUNS,
    "activations-checkpoint-granularity": "recompute-granularity",
    "activations-checkpoint-method": "recompute-method",
    "activations-checkpoint-num-layers": "recompute-num-layers",
    "encoder-seq-length": "seq-length",
    "sequence-length": "seq-length",
    "train-type": "tuner-type",
    "per-device-train-batch-size": "micro-batch-size",  # LLaMA-Factory's adapter
    "cutoff-len": "seq-length",
    "plugins": "precision",  # of a recipe of NeMo, bf16_mixed()
    "num-gpus-per-node": "devices",
}
#: Arguments that recipes of NeMo and Megatron-Bridge take, and functions around them.
_OF_RECIPES = frozenset(
    {
        *("tensor-model-parallel-size", "pipeline-model-parallel-size"),
        *("virtual-pipeline-model-parallel-size", "context-parallel-size"),
        *("expert-model-parallel-size", "sequence-parallel", "seq-length"),
        *("micro-batch-size", "global-batch-size", "recompute-granularity"),
        *("recompute-method", "recompute-num-layers"),
        *("num-nodes", "num-gpus-per-node"),
    }
)
#: What recipes set themselves, as it is taken where no file tells it.
_BY_RECIPES = {
    "tensor-model-parallel-size": "1",
    "pipeline-model-parallel-size": "1",
    "context-parallel-size": "1",
    "recompute-granularity": "none",
}
#: Sections of the configurations of NeMo and Megatron-Bridge that are read.
_SECTIONS = frozenset(
    {
        *("model", "train", "trainer", "ddp", "optimizer", "optim", "strategy"),
        *("mixed_precision", "dataset", "data", "peft", "plugins", "comm_overlap"),
    }
)
#: Names that ms-swift has beside Megatron-LM's, which has none of them.
_SWIFT = frozenset({"tuner-type", "max-length", "mcore-model"})
_DEGREES = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
_OF_DATA = ("length", "batch-size")
_DISTRIBUTED = "use-distributed-optimizer"


class Arguments(NamedTuple):
    """The values by flags of Megatron-LM, and as what each is written.

    `conflicts` says in words which names have two values, such as seeds of two parts.
    """

    what: str
    given: dict[str, str]
    written: dict[str, str]
    notes: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = MappingProxyType({})


def arguments(form: Form, place: str) -> Arguments:
    """Return what a file holds, by flags; the values of a flag are empty.

    `InstanceError` for a file without any.
    """
    read = _Read(place)
    sections = {key.partition(".")[0] for key in form.values if "." in key}
    degrees = {key.rpartition(".")[2] for key in form.values}
    in_sections = not sections.isdisjoint(_SECTIONS) and not degrees.isdisjoint(
        [*_DEGREES, *(name.replace("_", "-") for name in _DEGREES)]
    )
    for key, value in form.values.items():
        if key.endswith(".class"):  # of a part of a configuration in Python
            continue
        if in_sections:
            read.of_section(key, value)
        else:
            read.add(key, value)
    if in_sections:  # what a recipe is called with; its parts may be set afterwards
        for key, value in form.values.items():
            if "." not in key and plain(key) in _OF_RECIPES:
                name = plain(key)
                read.put(_ALIASES.get(name, name), key, value, is_first=True)
    if not read.given:
        raise InstanceError(
            f"{place}: found no argument, expected some as --num-layers; "
            f"{flags.REMEDY}, or the arguments that the log begins with"
        )
    if in_sections:
        return read.done(f"{form.kind} of NeMo or Megatron-Bridge", _of_recipes(read))
    if "megatron" in form.program.split() or not _SWIFT.isdisjoint(read.given):
        return read.done(f"{form.kind} of ms-swift", _of_swift(read))
    return read.done(f"{form.kind} of Megatron-LM", ())


def plain(key: str) -> str:
    """Return the name of a flag, of the dotted name of a field or with its dashes."""
    return key.rpartition(".")[2].removeprefix("--").replace("_", "-")


class _Read:
    """Arguments as they are read, one after the other."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.given: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.off: set[str] = set()  # flags that are said to be off
        self.conflicts: dict[str, str] = {}  # in words, names with two values
        self.none: set[str] = set()  # names whose value is said to be None

    def usual(self, name: str, value: str, tool: str) -> Iterator[str]:
        """Take what a tool has where nothing is told, and say so."""
        if name not in self.given and name not in self.off:
            self.given[name] = value
            told = f"--{name} {value}".rstrip()
            yield f"{told}: as {tool} has it where nothing is told"

    def done(self, what: str, notes: tuple[str, ...]) -> Arguments:
        """All of them."""
        return Arguments(what, self.given, self.written, notes, self.conflicts)

    def add(self, key: str, value: object) -> None:
        """Take a name and its value."""
        name = plain(key)
        self.put(_ALIASES.get(name, name), key, value)
        if name == "activations-checkpoint-method" and value is not None:
            self.put("checkpoint-activations", key, True)  # Megatron-LM of 2022

    def of_section(self, key: str, value: object) -> None:
        """Take a name of a section; what others say is none of Megatron's."""
        name = plain(key)
        parts = {part.replace("-", "_") for part in key.split(".")[:-1]}
        is_whole = name in ("mixed-precision", "peft") and not parts
        if parts.isdisjoint(_SECTIONS) and not is_whole:
            return
        if name == "name" and not parts.isdisjoint({"optim", "optimizer"}):
            if "distributed" in str(value):
                self.put(_DISTRIBUTED, key, True)
            else:
                self.off.add(_DISTRIBUTED)
            return
        if "peft" in parts:
            name = "lora-rank" if name == "dim" else f"peft-{name}"
        if parts.isdisjoint({"dataset", "data"}) or name.endswith(_OF_DATA):
            self.put(_ALIASES.get(name, name), key, value, is_first=True)

    def put(
        self, name: str, key: str, value: object, *, is_first: bool = False
    ) -> None:
        """Take a value of a flag; `is_first` where an earlier one stands."""
        if value is None or str(value) in ("None", "null"):
            self.none.add(name)
            return
        if str(value).lower() == "false":
            self.off.add(name)
            self.written.setdefault(name, key)
            return
        is_flag = str(value).lower() == "true"
        text = "" if is_flag else _text(value)
        if name in self.given and self.given[name] != text and not is_first:
            self.conflicts[name] = (
                f"{self.place}: {key.rpartition('.')[2]}: found {self.given[name]} and "
                f"{text}, expected one value; remove one"
            )
        self.given.setdefault(name, text)
        self.written.setdefault(name, key)


def _text(value: object) -> str:
    """Return a value as a command has it; a list of words is these words."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    is_list = re.fullmatch(r"\[('[\w.-]*'(, '[\w.-]*')*)\]", str(value))
    return re.sub("[',]", "", is_list[1]) if is_list else str(value)


def _of_recipes(read: _Read) -> tuple[str, ...]:
    """Say in flags what NeMo and Megatron-Bridge call otherwise; return notes."""
    tool, given = "a recipe of NeMo or Megatron-Bridge", read.given
    kind = given.pop("mixed-precision", given.pop("precision", ""))
    if kind in ("16", "16-mixed", "fp16_mixed"):
        given["fp16"] = ""
    elif "bf16" in kind:
        given["bf16"] = ""
    if "fp8" in kind:
        given["fp8-format"] = "hybrid"
        if "mxfp8" in kind:
            given["fp8-recipe"] = "mxfp8"
    # NeMo's own rule: gradients are reduced in fp32 where it says just that.
    in_narrow = given.pop("grad-sync-dtype", "fp32") != "fp32"
    if in_narrow or "grad-reduce-in-fp32" in read.off:
        given["grad-reduce-in-bf16"] = ""
    nodes, devices = given.get("num-nodes", ""), given.get("devices", "")
    if all(re.fullmatch(r"[0-9]{1,6}", one) for one in (nodes, devices)):
        given["world-size"] = str(int(nodes) * int(devices))
    if "lora-rank" in given or given.get("peft") == "lora":
        given["tuner-type"] = "lora"
        given.setdefault("lora-rank", "32")
    told = given.keys() | read.none | read.off
    silent = [f"--{n} {v}" for n, v in _BY_RECIPES.items() if n not in told]
    notes = list(read.usual(_DISTRIBUTED, "", tool))
    if silent:
        notes.append(
            f"what the recipe itself sets is not read: taken as {', '.join(silent)}; "
            "give what the run printed or saved of its configuration, if it has others"
        )
    if "fp16" not in given:
        notes += read.usual("bf16", "", tool)
    return tuple(notes)


def _of_swift(read: _Read) -> tuple[str, ...]:
    """Say in flags what ms-swift calls otherwise or has unless told; return notes."""
    tool, given = "ms-swift", read.given
    if "max-length" in given:
        given.setdefault("seq-length", given["max-length"])
        read.written.setdefault("seq-length", read.written["max-length"])
    notes = [
        *read.usual(_DISTRIBUTED, "", tool),
        *read.usual("recompute-granularity", "selective", tool),
        *read.usual("micro-batch-size", "1", tool),
    ]
    if given.get("torch-dtype") == "float16":
        given["fp16"] = ""
    if "fp16" not in given:
        notes += read.usual("bf16", "", tool)
    if given.get("tuner-type") == "lora":
        notes += read.usual("lora-rank", "8", tool)
    return tuple(notes)
