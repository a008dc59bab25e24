"""The names that trainers built on transformers have for the settings of a run.

Those of `TrainingArguments` (transformers 4.40 to 5.0), of Accelerate's configuration
(0.30 to 1.12), DeepSpeed's JSON, TRL and LLaMA-Factory (0.9). A file may refer to
another, such as `deepspeed: ds_z3.json`: it is read where it lies beside, or is given
as well.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import InstanceError, quoted
from ...text.documents import own_data
from ..importing.asked import File, is_there, opened
from ..importing.forms import Form

_TREE = own_data(__file__)
_NAMES: Mapping[str, Sequence[str]] = _TREE["names"]
_SETS: Mapping[str, Sequence[str]] = _TREE["sets"]
#: As what a name is written where no file has it.
USUAL: Mapping[str, str] = _TREE["usual"]
#: What our exporter writes for each rank, and in which file.
RANKS, _RANKS_FILE = "ranks", "ranks.json"
OF_RANKS = ("per_device_train_batch_size", "gradient_accumulation_steps")
_SILENT = ("", "none", "null", "false", "no", "auto", "disabled")
#: Settings of which transformers refuses two values, in its own file and in a part's:
#: DeepSpeed's or Accelerate's.
OF_BOTH = ("samples", "accumulation", "batch", "bf16", "fp16", "optimiser")
_BY_STAGE = ("deepspeed", "accelerate_config")  # may be a word such as zero2
_REFERENCES = (*_BY_STAGE, "deepspeed_config", "deepspeed_config_file", "config_file")
_OF_TRAINER = {"per_device_train_batch_size", "output_dir", "learning_rate"}
_BRANCHES = {name for those in _NAMES.values() for name in those if "." in name}
_FILE = re.compile(r"[^\s]{1,300}\.(?:json|ya?ml)")
_STAGE = re.compile(r"(?:^|[^a-z])z(?:ero)?_?([0-3])(?:[^0-9]|$)")
_MOST_FILES = 8  # that are referred to


def plain(key: str) -> str:
    """Return a name as it stands in YAML."""
    return key.removeprefix("--").replace("-", "_")


def has_ranks(form: Form) -> bool:
    """Return whether a file has a table of values of each rank."""
    rows = form.values.get(RANKS)
    return isinstance(rows, list) and all(
        isinstance(row, dict) and OF_RANKS[0] in row for row in rows
    )


def with_ranks(files: Sequence[File]) -> tuple[File, ...]:
    """Return the files, and that of the ranks where it lies beside one of them."""
    if any(has_ranks(file.form) for file in files):
        return tuple(files)
    beside = (file.source.path.with_name(_RANKS_FILE) for file in files)
    found = [file for path in beside if is_there(path) for file in opened([path])]
    return (*files, *(file for file in found[:1] if has_ranks(file.form)))


def is_one(form: Form) -> bool:
    """Return whether a file has names that no other trainer has."""
    if has_ranks(form):
        return True
    names = {plain(key).rpartition(".")[2] for key in form.values}
    full = {plain(key) for key in form.values}
    if {"model_name_or_path", "learning_rate"} <= full:
        return True
    return not names.isdisjoint(_SETS["own"]) or "zero_optimization.stage" in full


def tool_of(form: Form) -> str:
    """Return the trainer of a file; empty for a file with only a part of a run."""
    names = {plain(key).partition(".")[0] for key in form.values}
    words = form.program.split()
    if {"zero_optimization", "train_micro_batch_size_per_gpu"} & names:
        return ""
    if "compute_environment" in names or "distributed_type" in names:
        return ""
    if {"finetuning_type", "cutoff_len"} & names or "llamafactory-cli" in words:
        return "LLaMA-Factory"
    if {"tuner_type", "train_type"} & names or "swift" in words:
        return "ms-swift"
    return "transformers" if names & _OF_TRAINER else ""


def settings_of(form: Form) -> str:
    """Return whose settings a file has, where these are a part of a run alone."""
    names = {plain(key).partition(".")[0] for key in form.values}
    if {"compute_environment", "distributed_type"} & names:
        return "Accelerate"
    of_deepspeed = {"zero_optimization", "train_micro_batch_size_per_gpu"}
    return "DeepSpeed" if of_deepspeed & names else "transformers"


def of_adapters(form: Form) -> Mapping[str, str]:
    """Return the keys of a LoraConfig in a file, by our names."""
    for key in form.values:
        part, _, last = plain(key).rpartition(".")
        before = f"{part}." if part else ""
        near = {plain(one).removeprefix(before) for one in form.values}
        if last == "r" and not near.isdisjoint(_SETS["of_adapters"]):
            return {"rank": key}
    return {}


def name_of(key: str) -> str | None:
    """Our name of a key; None for one that is not read."""
    key = plain(key)
    last = key.rpartition(".")[2]
    behind = [one for one in _BRANCHES if key == one or key.endswith(f".{one}")]
    word = behind[0] if behind else last
    if not behind and "." in key and last in ("enabled", "stage", "type", "device"):
        return None
    if last == "model" and "." in key:
        return None
    return next((ours for ours, those in _NAMES.items() if word in those), None)


def optimiser_of(form: Form) -> tuple[str, str] | None:
    """Return the key that chooses another optimiser, and that optimiser."""
    for key, value in form.values.items():
        last = plain(key).rpartition(".")[2]
        is_on = str(value).lower() == "true" or (form.is_command and value == "")
        if last in _SETS["of_optimisers"] and is_on:
            return key, last.removeprefix("use_")
    return None


def not_read(form: Form) -> Iterator[str]:
    """Names that change time or memory and that are not read, with their values."""
    for key, value in form.values.items():
        last = plain(key).rpartition(".")[2]
        is_flag = form.is_command and value == ""
        if last in _SETS["not_read"] and (is_flag or str(value).lower() not in _SILENT):
            yield f"{key} {value}".rstrip()


def with_references(files: Sequence[File]) -> tuple[list[File], list[str]]:
    """The files, those that they refer to as well, and notes of what is not there.

    `InstanceError` for a file that is neither beside nor given and whose name does not
    say what is in it.
    """
    found, notes = list(files), []
    given = {file.source.path.name for file in files}
    for file in found:
        for key, name in _references(file.form):
            last = Path(name).name
            if last in given:
                continue
            path = file.beside(name)
            if path is not None and len(found) < _MOST_FILES:
                found += opened([path])
                given.add(last)
                notes.append(f"{key}: {path} was also read")
            elif match := _STAGE.search(last.lower()):
                hosted = ", partly on hosts," if "offload" in last.lower() else ""
                notes.append(
                    f"{key}: {name} was not found next to the file: assumed ZeRO "
                    f"{match[1]}{hosted} from its name; give it, too"
                )
            else:
                raise InstanceError(
                    f"{file.place}: {key}: found {quoted(name)}, which was not found "
                    f"next to the file; give it, too: --from {name}"
                )
    return found, notes


def told_by_name(files: Sequence[File]) -> dict[str, str]:
    """Return the stage of ZeRO that the name of a file says which is not there.

    A name such as `zero3_offload` says, too, what lies in the memory of hosts.
    """
    given = {file.source.path.name for file in files}
    for file in files:
        for _, name in _references(file.form):
            match = _STAGE.search(Path(name).name.lower())
            if Path(name).name not in given and match:
                told = {"zero": match[1]}
                if "offload" in Path(name).name.lower():
                    told["hosted"] = "cpu"
                    if match[1] == "3":
                        told["hosted_weights"] = "cpu"
                return told
    return {}


def uses_deepspeed(files: Sequence[File]) -> bool:
    """Return whether Accelerate is told to use DeepSpeed, without a stage of ZeRO."""
    return any(
        plain(key) == "use_deepspeed" and str(value).lower() not in _SILENT[1:]
        for file in files
        for key, value in file.form.values.items()
    )


def _references(form: Form) -> Iterator[tuple[str, str]]:
    """The files that a file refers to, with the key; words of a command as well."""
    for key, value in form.values.items():
        last = plain(key).rpartition(".")[2]
        if last not in (*_REFERENCES, "config") or not isinstance(value, str):
            continue
        word = value.split()[0] if value.split() else ""
        if _FILE.fullmatch(word) or (last in _BY_STAGE and _STAGE.search(word)):
            yield key, word
    for word in form.program.split():
        if _FILE.fullmatch(word):
            yield "the command", word
    # A flag of the launcher takes the words behind it: `--config-file a.yaml train.py`.
    for key, value in form.values.items():
        last = plain(key).rpartition(".")[2]
        if last not in _REFERENCES and isinstance(value, str) and " " in value:
            for word in value.split():
                if _FILE.fullmatch(word):
                    yield key, word
