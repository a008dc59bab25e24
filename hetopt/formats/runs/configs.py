"""Files beside a log: what it leaves out stands in a trainer's or a model's own.

    model       Hugging Face `config.json`: the shape
    torchtitan  TOML, the JSON that it saves, or its options as on a command line
    deepspeed   its JSON configuration

Which one a file is, is seen by its fields.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from ...catalogue.architectures import from_config, inner
from ...errors import InstanceError, cut
from ...problems.training_plan.shapes import of_layers
from ...schema import ModelSpec
from ...schema.targets import Feature
from ...text.parsing import parse_tree, read_text
from ..documents import Document, Values

Fields = Values
_OPTION = re.compile(r"--([a-z_\-]{1,60}(?:\.[a-z0-9_\-]{1,60}){1,3})(?:=(.{0,1000}))?")
_SECTIONS = ("--training.", "--parallelism.", "--model.", "--job.")
_DEEPSPEED = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "zero_optimization",
)
_MODEL = ("model_type", "hidden_size", "n_embd", "d_model", *inner.LANGUAGE)
# Without these keys, from_config describes the rest of a model with latent attention.
_LATENT = (
    *("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"),
    *("qk_head_dim", "v_head_dim"),
)


#: What a run has no words for.
_UNTOLD = (
    *(Feature.MAMBA, Feature.MAMBA_1, Feature.LINEAR, Feature.CONVOLUTIONS),
    *(Feature.INDEXED, Feature.GATED_ATTENTION, Feature.FEWER_KEYS),
    *(Feature.VALUE_WIDTH, Feature.NARROW_EXPERTS, Feature.UNLIKE_WIDTHS),
    *(Feature.MORE_PARTS, Feature.LAYER_TABLES),
)
_BLOCKS: dict[tuple[str, ...], str] = {
    ("mamba",): "M",
    ("experts",): "E",
    ("attention",): "*",
    ("dense",): "-",
}
_GROUPS = 8  # of the Mamba-2 mixers that a run has words for


class Config(NamedTuple):
    """A file beside a log: its kind, and fields, a run's or the trainer's own."""

    kind: str
    path: Path
    tree: Fields

    @property
    def source(self) -> str:
        """Return the file's name, as messages have it."""
        return self.path.name


def config(path: Path) -> Config:
    """The configuration in a file; `InstanceError` where it is of no known kind."""
    text = read_text(path)
    if path.suffix.lower() == ".toml":
        return Config("torchtitan", path, flat(_toml(text, path)))
    if any(section in text for section in _SECTIONS):
        return Config("torchtitan", path, _options(text))
    tree = parse_tree(text, str(path), is_json=path.suffix.lower() == ".json")
    if "parallelism" in tree and "training" in tree:
        return Config("torchtitan", path, flat(tree))
    if any(key in tree for key in _DEEPSPEED):
        return Config("deepspeed", path, tree)
    if any(key in tree for key in _MODEL):
        return Config("model", path, shape(tree, path))
    raise InstanceError.at(
        path,
        None,
        f"found the fields {cut(', '.join(tree) or 'none')}, expected a model's "
        "config.json or a configuration of torchtitan or DeepSpeed; give the one that "
        "the run was started with",
    )


def shape(tree: Fields, path: Path) -> Document:
    """Return the fields of a run that a model's Hugging Face `config.json` tells."""
    latent = tree.get(_LATENT[0]) is not None
    try:
        spec = from_config({k: v for k, v in tree.items() if k not in _LATENT}, "model")
    except InstanceError as error:
        raise InstanceError.at(path, error.field, str(error)) from None
    fields: Document = {
        "kind": "moe" if spec.experts else "dense",
        "layers": spec.layers,
        "hidden": spec.hidden,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.attention_width // spec.heads,
        "intermediate": spec.mlp_width,
        "gated": spec.gated,
        "vocabulary": spec.vocabulary,
    }
    if spec.experts:
        fields |= {
            "experts": spec.experts,
            "experts_per_token": spec.active_experts,
            "shared_experts": spec.shared_experts,
            "moe_intermediate": spec.expert_intermediate or spec.mlp_width,
        }
    notes = [*_hybrid(spec, path), *(["MLA attention"] if latent else [])]
    if spec.dense_layers:
        notes.append(f"first {spec.dense_layers} layers dense")
    return fields | ({"shape_notes": "; ".join(notes)} if notes else {})


def _hybrid(spec: ModelSpec, path: Path) -> list[str]:
    """Return the words of a run for layers of one part; refuse what it has none for."""
    mixer, letters = spec.mamba, [_BLOCKS.get(tuple(kind)) for kind in spec.kinds]
    told = None not in letters and mixer is not None and mixer.groups == _GROUPS
    asked = of_layers(spec, 1) - ({Feature.MAMBA} if told else set())
    if untold := [feature.value for feature in _UNTOLD if feature in asked]:
        raise InstanceError.at(
            path,
            None,
            f"hetopt does not support runs of models with {', '.join(untold)}; plan "
            "such a model with hetopt assemble, which times its layers",
        )
    if not told or mixer is None:
        return []
    pattern = "".join(letter or "" for letter in letters)
    widths = f"Mamba {mixer.heads} heads x {mixer.head_dim}, state {mixer.state}"
    return [f"hybrid pattern {pattern}", widths]


def _toml(text: str, path: Path) -> Document:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InstanceError.at(path, None, f"not TOML: {error}; correct it") from None
    except RecursionError:
        raise InstanceError.at(
            path, None, "found values nested too deep, expected a few levels; flatten"
        ) from None


def _options(text: str) -> Document:
    """`--training.seq_len 8192 --compile.enable`; dashes of names are underscores."""
    fields: Document = {}
    words = text.replace("\\\n", " ").split()
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if (option := _OPTION.fullmatch(word)) is None:
            continue
        said = "true" if following.startswith("--") else following
        said = said if option[2] is None else option[2]
        fields[option[1].replace("-", "_")] = _value(said.strip("'\""))
    return fields


def flat(tree: Fields) -> Document:
    """Return the fields of sections by their dotted names, `training.seq_len`."""
    fields: Document = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            fields |= {f"{name}.{inner}": v for inner, v in flat(value).items()}
        else:
            fields[name] = value
    return fields


def _value(text: str) -> object:
    match text.lower():
        case "true" | "false":
            return text.lower() == "true"
        case "none" | "null":
            return None
    try:
        return int(text) if len(text) < 19 else text
    except ValueError:
        return text
