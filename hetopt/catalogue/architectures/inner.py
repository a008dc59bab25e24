"""The language model of a `config.json` that is around it, and of no other model.

Models that see or hear keep their language model's configuration in one of their own.
Models that are none of language alone are refused by the name of their class.
"""

import re

from ...errors import InstanceError, cut
from .families import table
from .keys import ISSUE, Fields

_CLASSES = re.compile(
    "For((Sequence|Token)Classification|QuestionAnswering|MultipleChoice|RewardModel)$"
)


def words(of: str) -> list[str]:
    """Return the keys of what is around a language model: `towers`, `speech`."""
    found: str = table()["around"][of]
    return found.split()


def language(config: Fields) -> tuple[Fields, list[Fields]]:
    """Return the language model's configuration with all around it, and those alone.

    What an inner one tells holds; the last of the list is the innermost, and the list
    has the whole configuration alone where none is inside it.
    """
    around, keys = [config], words("language")
    found = config
    while inner := next(
        (x for key in keys if (x := found.get(key)) and isinstance(x, dict)), None
    ):
        if len(around) == len(keys):
            break
        around.append(inner)
        found = {k: x for k, x in found.items() if k not in keys} | inner
    if len(around) > 1:
        silent = table()["around"]["silent"]
        found = silent.get(str(found.get("model_type")), {}) | found
    return found, around


def class_of(config: Fields) -> str:
    """Return the model's class in transformers, else its family; "" where neither."""
    told = config.get("architectures")
    if isinstance(told, list) and told and isinstance(told[0], str):
        return told[0]
    return str(config.get("model_type", ""))


def refuse(config: Fields) -> None:
    """Raise `InstanceError` for encoders with decoders, and for heads of classes."""
    named = cut(class_of(config))
    if config.get("is_encoder_decoder") is True:
        raise InstanceError(
            f"is_encoder_decoder: hetopt does not support {named or 'a model'!r}, an "
            f"encoder with a decoder; expected a causal language model; {ISSUE}"
        )
    if _CLASSES.search(class_of(config)):
        raise InstanceError(
            f"architectures: hetopt does not support {named!r}, a model "
            "that classifies in place of predicting words; for somewhat more time and "
            "memory name the class of its language model (...ForCausalLM) in a copy "
            "of the file"
        )
