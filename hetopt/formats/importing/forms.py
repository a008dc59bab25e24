"""A file of a run as names and values, in whichever form it is kept.

These are YAML, JSON and TOML, whose branches are `a.b`; a Python configuration
(`importing.constants` says how much of it is read); what a log prints of its arguments;
a command or a launch script. Nothing of a file is run.
"""

import re
import tomllib
from itertools import islice
from typing import NamedTuple

from ...errors import InstanceError
from ...text.documents import Document, Fields
from ..runs import is_log
from ..runs.logs import printed_arguments, printed_config
from ..runs.source import Source
from . import constants, flags

#: Arguments one of which has every run, with dashes; other commands have none of them.
OF_A_RUN = frozenset(
    {
        *("num-layers", "micro-batch-size", "per-device-train-batch-size"),
        *("gradient-accumulation-steps", "local-batch-size", "deepspeed-config"),
        *("tensor-model-parallel-size", "pipeline-model-parallel-size"),
        *("tensor-parallel-degree", "pipeline-parallel-degree"),
        *("num-tokens-per-microbatch-per-dp-rank", "max-context-length"),
    }
)
_COMMAND = "command or launch script"
# `TrainingArguments(` on a line of a log, then a field a line or all in one.
_PRINTED = re.compile(r"\b\w{0,40}(?:Arguments|Config)\(")
_FIELD = re.compile(r"\b(?:micro_batch_size|per_device_train_batch_size)=")
_MOST_PRINTED, _MOST_TRIED = 40_000, 50  # characters, objects of a log


class Form(NamedTuple):
    """A form says in words what kind of file it is, and holds its values.

    `program` are the words of a command before its first argument, `ranks` the GPUs of
    ranks in their order, where a launch script of our own has them.
    """

    kind: str
    values: Document
    program: str = ""
    notes: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()

    @property
    def is_command(self) -> bool:
        """Return whether names are flags of a command."""
        return self.kind == _COMMAND


#: A host and its GPUs, in the scripts that `hetopt export` writes.
_STARTED = re.compile(
    r'^ssh -ntt (\S+) "\$here CUDA_VISIBLE_DEVICES=([0-9,]+) ', re.MULTILINE
)


def read(source: Source) -> Form:
    """Return what a file holds; `InstanceError` where it cannot be read."""
    place, suffix = str(source.path), source.path.suffix.lower()
    if parts := _STARTED.findall(source.text):
        ranks = (f"{host}:{gpu}" for host, those in parts for gpu in those.split(","))
        return Form("launch script of hetopt", {}, ranks=tuple(ranks))
    if suffix == ".toml":
        return Form("TOML", flat(_toml(source.text, place)))
    if suffix == ".py":
        held = constants.read(source.text, place, source.part, is_run=_is_run)
        return Form("Python", *held)
    if source.kind == "tree":
        tree = source.tree
        if not isinstance(tree, dict):
            raise InstanceError(f"{place}: found no object, expected named fields")
        kind = "YAML" if suffix in (".yaml", ".yml") else "JSON"
        return Form(kind, flat(tree))
    if arguments := printed_arguments(source):
        return Form("arguments that a log prints", dict(arguments))
    if found := _of_log(source.text):
        return Form("arguments that a log prints", found)
    # Scripts and logs of them have a flag of a run.
    dashed = source.text.replace("_", "-")
    starts_a_run = any(f"--{name}" in dashed for name in OF_A_RUN)
    if is_log(source) and not starts_a_run:
        return Form("a log", flat(printed_config(source)))
    told = flags.read(source.text, place, OF_A_RUN)
    return Form(_COMMAND, dict(told.given), told.program, told.notes)


def _is_run(values: Fields) -> bool:
    names = {name.rpartition(".")[2].replace("_", "-") for name in values}
    return not OF_A_RUN.isdisjoint(names)


def _of_log(text: str) -> Document:
    """Return the fields of the object of arguments that a log prints."""
    for match in islice(_PRINTED.finditer(text), _MOST_TRIED):
        part = text[match.start() : match.start() + _MOST_PRINTED]
        if _FIELD.search(part):
            return constants.printed(part)
    return {}


def flat(tree: Fields, before: str = "") -> Document:
    """Return the leaves of a tree by their dotted names."""
    found: Document = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def _toml(text: str, place: str) -> Document:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise InstanceError(f"{place}: {error}; expected TOML") from None
    except RecursionError:
        raise InstanceError(
            f"{place}: found values nested too deep, expected a few levels; flatten it"
        ) from None
