"""The language model of a `config.json` that is around it, and of no other model.

Models that see or hear keep their language model's configuration in one of their own.
Models that are none of language alone are refused by the name of their class.
"""

import re

from ...errors import InstanceError, cut
from .keys import ISSUE, Fields

#: Keys of a configuration whose object is the language model's, or is around it.
LANGUAGE = ("text_config", "llm_config", "language_config", "thinker_config")
#: What a model has beside its language model, by the keys that tell of it.
TOWERS = (
    *("vision_config", "audio_config", "thinker_config", "visual_tokenizer_config"),
    *("img_processor", "audio_processor", "vision_tower", "mm_vision_tower", "visual"),
)
SPEECH = ("talker_config", "token2wav_config", "code2wav_config")
#: What the classes of transformers have where such an inner configuration is silent.
_LLAMA: Fields = {
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32_000,
    "tie_word_embeddings": False,
}
_SILENT: dict[str, Fields] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "intermediate_size": 14_336, "num_key_value_heads": 8},
}
_CLASSES = re.compile(
    "For((Sequence|Token)Classification|QuestionAnswering|MultipleChoice|RewardModel)$"
)


def language(config: Fields) -> tuple[Fields, list[Fields]]:
    """Return the language model's configuration with all around it, and those alone.

    What an inner one tells holds; the last of the list is the innermost, and the list
    has the whole configuration alone where none is inside it.
    """
    around = [config]
    found = config
    while inner := next(
        (x for key in LANGUAGE if (x := found.get(key)) and isinstance(x, dict)), None
    ):
        if len(around) == len(LANGUAGE):
            break
        around.append(inner)
        found = {k: x for k, x in found.items() if k not in LANGUAGE} | inner
    if len(around) > 1:
        found = _SILENT.get(str(found.get("model_type")), {}) | found
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
