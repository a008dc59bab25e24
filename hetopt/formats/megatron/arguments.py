"""The arguments of a Megatron-LM run, in whichever form they are kept.

These are the words of a command, or a launch script (`importing.shell` says how much of
bash is read); the arguments that a log begins with; a YAML or JSON file of them, with
or without dashes, as `MODEL_ARGS:` of Megatron's own tests; and the files of its
relatives, whose names `hetopt.trainers.megatron` has. Names are those of flags, with
dashes.
"""

from typing import TYPE_CHECKING

from ...errors import InstanceError
from ...trainers.megatron import TABLE
from ...trainers.megatron.relatives import MEGATRON, NAMES, NEMO
from ..importing import flags
from .relatives import OF_RECIPES, dialect_of, others_of
from .values import Arguments, Read, plain

if TYPE_CHECKING:
    from ..importing.forms import Form


def arguments(form: "Form", place: str) -> Arguments:
    """Return what a file holds, by flags; the values of a flag are empty.

    `InstanceError` for a file without any, and for flags that Megatron-LM refuses
    together. A log has what it derives from them beside them.
    """
    keys = [key for key in form.values if not key.endswith(".class")]
    dialect = dialect_of(keys, form.program)
    read = Read(place, dialect)
    for key in keys:
        read.add(key, form.values[key])
    if dialect is NEMO:  # what a recipe is called with; parts may be set afterwards
        for key in keys:
            name = plain(key)
            if "." not in key and name in OF_RECIPES:
                read.put(NAMES.get(name, name), key, form.values[key], is_first=True)
    if not read.given:
        raise InstanceError(
            f"{place}: found no argument, expected some as --num-layers; "
            f"{flags.REMEDY}, or the arguments that the log begins with"
        )
    notes = tuple(others_of(read))  # which adds to what was read
    made = read.done(f"{form.kind} of {dialect.title}", notes)
    if dialect is MEGATRON and "log" not in form.kind:
        for wrong in TABLE.violations(made.given, exclusions_only=True):
            raise InstanceError(
                f"{place}: found {wrong}, which Megatron-LM does not start with; "
                "remove one of them"
            )
    return made
