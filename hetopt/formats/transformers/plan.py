"""A run of a trainer built on transformers that goes on, against its instance.

That is transformers' Trainer, TRL or LLaMA-Factory, with what DeepSpeed or Accelerate
are told beside it (`names` has whose names are read). GPUs are
replicas, but for those that tensors or sequences are divided among; there are no
pipelines. ZeRO is DeepSpeed's stage, or what FSDP amounts to: 3 where weights are
divided again after use, else 2. `ranks.json`, which our exporter writes, has what each
rank is told of its own; it is read where it lies beside.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import InstanceError, Unsupported, quoted
from ...schema import Instance, Recompute, Split, Workload
from ...text.documents import Document, own_data
from ..importing.asked import Asked, File, commands_first, opened
from ..importing.current import (
    Layout,
    RunAs,
    Share,
    claim_of,
    divisors,
    gpus,
    replicas_of,
    same_adapters,
    same_optimiser,
    same_sizes,
    same_world,
)
from ..importing.forms import Form
from ..importing.placing import Claim, Settings
from . import names

OPTIONS: Document = {"hosts": str}
#: No program of ours trains so; the model's own rules of degrees hold.
TRAINER = "architecture"
_TREE = own_data(__file__)
_STRATEGIES: Mapping[str, int] = _TREE["strategies"]
_BY_ZERO = {3: "full_shard", 2: "shard_grad_op", 0: "no_shard"}
_ALONE = ("multi_gpu", "no", "mp", "")
#: What a tool has where nothing is told.
_USUAL: Mapping[str, Mapping[str, str]] = _TREE["usual"]
_OPTIMISERS: Mapping[str, str] = _TREE["optimisers"]
#: What names of AdamW have whose states are neither 32 bits wide nor eight.
_OTHER_STATES = re.compile("4bit|anyprecision|mini|fp8|schedule|galore|apollo|badam")


def claims(path: Path, data: Instance, hosts: str = "") -> Iterator[Claim]:
    """Yield the one plan of the file."""
    found = asked(opened([path]))
    if found is None:
        raise InstanceError(
            f"{path}: found no per_device_train_batch_size and no settings of "
            "DeepSpeed or Accelerate, expected a run of a trainer built on transformers"
        )
    yield claimed(found, data, hosts)


def asked(files: Sequence[File]) -> Asked | None:
    """Return what files of a run ask of such a trainer; None for those of others."""
    files = names.with_ranks(files)
    if not any(names.is_one(file.form) or _is_started(file) for file in files):
        return None
    found, notes = names.with_references(files)
    if not any(names.is_one(file.form) for file in found):
        return None
    tools = [name for file in found if (name := names.tool_of(file.form))]
    if "ms-swift" in tools:
        raise Unsupported(
            f"{found[0].place}: found a run of ms-swift without Megatron-LM, which is "
            "not supported by hetopt; write it by the names of transformers' Trainer"
        )
    tool = tools[0] if tools else "transformers"
    told = _Told(found)
    for number, file in commands_first(found):
        told.take(number, file)
        notes += file.form.notes
        if unread := list(names.not_read(file.form)):
            notes.append(f"not read: {', '.join(unread)}")
    values = told.values
    if "zero" not in values:
        values |= names.told_by_name(found)
    if "zero" not in values and names.uses_deepspeed(found):
        values["zero"] = "2"
        notes.append("zero_stage 2 (Accelerate's default)")
    notes += _add_usual(values, tool, is_named=bool(tools))
    if "model" in values:
        notes.append(
            f"model {values['model']}: only a name, so not compared with the instance's"
        )
    kinds = ", ".join(dict.fromkeys(file.form.kind for file in found))
    parts = dict.fromkeys(names.settings_of(file.form) for file in found)
    what = f"{kinds} of {tool if tools else ', '.join(parts)}"
    return Asked(what, tuple(found), values, told.written, tuple(notes), names.USUAL)


class _Told:
    """What files of a run tell of a trainer's settings, by our names, and where."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self.values: Document = {}
        #: The number of a file, and the key there.
        self.written: dict[str, tuple[int, str]] = {}

    def take(self, number: int, file: File) -> None:
        """Take what a file tells; `InstanceError` where it disagrees with others."""
        form = file.form
        for key, value in form.values.items():
            if key == names.RANKS and names.has_ranks(form):
                self._set(key, value, number, key)
            elif (setting := self._setting(form, key, value)) is not None:
                own, text = setting
                if own == "fsdp" and "offload" in str(value):
                    self._set("hosted_weights", "offload", number, key)
                self._agree(own, text, number, key)
        for own, key in names.of_adapters(form).items():
            self.values.setdefault(own, str(form.values[key]))
            self.values.setdefault("adapter", "lora")
            self.written.setdefault(own, (number, key))
        if chosen := names.optimiser_of(form):
            self._set("optimiser", chosen[1], number, chosen[0])

    def _set(self, own: str, value: object, number: int, key: str) -> None:
        self.values[own], self.written[own] = value, (number, key)

    def _setting(self, form: Form, key: str, value: object) -> tuple[str, str] | None:
        """Return our name of a setting and what is told; None where that is nothing."""
        if value == "" and not form.is_command:
            return None  # says nothing, but as a flag of a command
        own, text = names.name_of(key), _text(value)
        if own is None or text is None:
            return None
        if names.plain(key) == "use_fsdp" and text != "false":
            text = "full_shard"  # a flag, which the program may stand behind
        return own, text

    def _agree(self, own: str, text: str, number: int, key: str) -> None:
        """Take a value, unless another one is told that goes before it."""
        first = self.values.setdefault(own, text)
        if own == "checkpointing" and {first, text} == {"true", "false"}:
            self._set(own, "true", number, key)  # by FSDP where not by the trainer
            return
        if _kind(own, first) != _kind(own, text) and own != "model":
            file, (before, where) = self._files[number], self.written[own]
            is_told = self._files[before].form.is_command and before != number
            is_part = not names.tool_of(file.form)
            if is_told and not (is_part and own in names.OF_BOTH):
                return  # a command's words go before those of its file
            raise InstanceError(
                f"{file.place}: {key}: found {text}, and {first} in "
                f"{self._files[before].place} ({where}), expected one value; "
                "correct one"
            )
        self.written.setdefault(own, (number, key))


def _add_usual(values: Document, tool: str, *, is_named: bool) -> Iterator[str]:
    """Add what a trainer takes where nothing is told, and yield a note on each.

    `is_named` says that some file is the trainer's own.
    """
    for name, value in _USUAL[tool].items():
        if name == "samples" and (not is_named or names.RANKS in values):
            continue
        if name == "rank" and values.get("adapter", "full") in ("full", "false"):
            continue
        if name not in values:
            values[name] = value
            yield f"{names.USUAL.get(name, name)} {value} ({tool}'s default)"


def _kind(name: str, text: str) -> str | None:
    """Return the meaning of a value, one for all texts that mean the same."""
    return _optimiser(text) if name == "optimiser" else text


def _optimiser(text: str) -> str | None:
    text = text.lower().rpartition(".")[2]  # OptimizerNames.ADAMW_TORCH
    if _OTHER_STATES.search(text):
        return None
    eight = re.fullmatch(_OPTIMISERS["adamw_8bit"], text)
    if eight is not None:
        return "adamw_8bit"
    found = (k for k, v in _OPTIMISERS.items() if re.fullmatch(v, text))
    return next(found, None) if "8bit" not in text else None


def _is_started(file: File) -> bool:
    starters = ("llamafactory-cli", "accelerate", "deepspeed", "trl")
    text = file.form.program
    return file.form.is_command and any(word in text for word in starters)


def _text(value: object) -> str | None:
    """Return a value as text; None for one that says nothing, as `auto` does."""
    if isinstance(value, list):  # FSDP's words, the first of which divides
        value = value[0] if value else None
    if isinstance(value, dict) or value is None:
        return None
    text = str(value).strip()
    if text.lower() in ("auto", "none", "null"):
        return None
    if text == "" or text.lower() == "true":
        return "true"
    return "false" if text.lower() == "false" else text.split()[0]


def claimed(asked: Asked, data: Instance, hosts: str = "") -> Claim:
    """Return the run as a plan of an instance."""
    given, place = asked.values, asked.place
    _same_launcher(asked)
    ranks, shares = _ranks(asked, data, hosts)
    tensor, context = (_number(asked, name, 1) for name in ("tensor", "context"))
    replicas = replicas_of(len(ranks), tensor * context, place)
    told = []
    if "samples" not in given and not shares:
        # By DeepSpeed's rule: what a script of one's own loads, Accelerate's
        # configuration does not tell.
        batch = _number(asked, "batch", data.workload.global_batch)
        size = max(1, batch // (_number(asked, "accumulation", 1) * replicas))
        asked = asked.changed({"samples": str(size)})
        told.append(
            f"no micro-batch size was given: assumed {size}, which matches the batch"
        )
    samples, steps, found = _samples(asked, replicas, shares)
    length = _number(asked, "length", data.workload.sequence_length)
    workload = data.workload
    told_sizes = ("sequences of a step", found), ("tokens of a sequence", length)
    same_sizes(place, data, *told_sizes)
    _same_training(asked, data)
    zero, groups = _zero(asked, data, replicas)
    layout = Layout(
        layers=(data.model.layers,),
        replicas=replicas,
        degree=tensor * context,
        samples=samples,
        micro_batches=steps,
        recompute=shares[0].recompute if shares else _recompute(given),
        zero=zero,
        split=Split(context, 1, 1, groups),
        shares=shares,
    )
    few = [given.get(name) for name in ("four_bits", "eight_bits")]
    is_quantised = "true" in few or given.get("bits") in ("4", "8")
    if "rank" in given and "adapter" not in given and not is_quantised:
        told.append(
            f"{asked.spelled('rank')} {given['rank']}: use_peft is not set, so all "
            "weights are assumed to be trained"
        )
    if "length" not in given:
        told.append(f"no sequence length was given: assumed {length} tokens")
    weighed = _in_precision(given, data)
    own, kept = (x.workload.costs.memory.precision for x in (data, weighed))
    whose = "the instance's precision" if own == kept else "the run's precision"
    told.append(f"memory is computed in {whose}, {kept or '16 bits'}")
    how = layout, ranks, weighed, place
    timed = _timed(asked, workload, told)
    return claim_of(*how, RunAs(TRAINER, "trainer", timed), [*asked.notes, *told])


def _timed(asked: Asked, workload: Workload, told: list[str]) -> Document:
    """Return what times depend on besides, and tell how far it is counted."""
    if asked.values.get("liger") != "true":
        return {}
    what, counted = asked.spelled("liger"), "only its loss in chunks is counted"
    known = workload.costs.compute.calibration is not None
    told.append(f"{what}: {counted}" if known else f"not read: {what}")
    return {"loss": "chunked"}


def _same_launcher(asked: Asked) -> None:
    """Raise `InstanceError` where Accelerate hands over to another trainer."""
    kind = asked.values.get("distributed", "").lower()
    if kind in ("megatron_lm", "tp", "xla"):
        raise InstanceError(
            f"{asked.place}: {asked.spelled('distributed')}: found {kind.upper()}, "
            "expected FSDP, DEEPSPEED or MULTI_GPU: give the arguments of that trainer"
        )


def _ranks(
    asked: Asked, data: Instance, hosts: str
) -> tuple[list[str], tuple[Share, ...]]:
    """Return the GPUs of the ranks; where these differ, what each is told."""
    if names.RANKS in asked.values:
        ranks, shares = _shares(asked, data)
    else:
        ranks, shares = gpus(data, hosts or asked.hosts), ()
        for file in asked.files:
            same_world(file.form.values, ranks, file.place)
    world = _number(asked, "world", len(ranks))
    if world != len(ranks):
        raise InstanceError(
            f"{asked.place}: {asked.spelled('world')}: found {world}, expected "
            f"{len(ranks)}, the GPUs of the hosts; name the hosts of the run "
            "(hosts=A,B)"
        )
    return ranks, shares


def _samples(
    asked: Asked, replicas: int, shares: Sequence[Share]
) -> tuple[int, int, int]:
    batch = _number(asked, "batch", 0)
    if shares:
        samples, steps = shares[0].samples, shares[0].micro_batches
        found = sum(share.samples * share.micro_batches for share in shares)
    else:
        samples = _number(asked, "samples")
        steps = _number(asked, "accumulation", 0)
        if not steps:
            steps = max(1, batch // (samples * replicas)) if samples else 1
        found = samples * steps * replicas
    if batch and batch != found:
        raise InstanceError(
            f"{asked.place}: {asked.spelled('batch')}: found {batch}, expected "
            f"{samples} x {steps} x {replicas} replicas = {found}; correct it"
        )
    return samples, steps, found


def words(settings: Settings, asked: Asked, data: Instance) -> dict[str, str | None]:
    """Return the fields that settings have."""
    world = sum(node.count for node in data.planned_cluster.nodes)
    held = settings.tensor_parallel * settings.context_parallel
    replicas = max(1, world // held)
    steps = data.workload.global_batch // (replicas * settings.micro_batch_size)
    again = "true" if settings.recompute == "full" else "false"
    made: dict[str, str | None] = {
        "samples": str(settings.micro_batch_size),
        "accumulation": str(max(1, steps)),
    }
    if "no_checkpointing" in asked.values or asked.what.endswith("LLaMA-Factory"):
        made["no_checkpointing"] = "false" if again == "true" else "true"
    else:
        made["checkpointing"] = again
    for name in ("tensor", "context"):
        if name in asked.values:
            degree = settings.tensor_parallel if name == "tensor" else held
            made[name] = str(degree // (1 if name == "tensor" else settings[0]))
    if "zero" in asked.written:
        made["zero"] = str(settings.zero)
    elif "strategy" in asked.written:
        text = _BY_ZERO.get(settings.zero, "full_shard")
        is_upper = asked.values["strategy"].isupper()
        made["strategy"] = text.upper() if is_upper else text
    elif "reshard" in asked.written:
        made["reshard"] = "true" if settings.zero == 3 else "false"
    return made


def choices(asked: Asked, data: Instance) -> dict[str, Sequence[object]]:
    """Return the settings that the run may be given, with their values."""
    most = max(node.count for node in data.planned_cluster.nodes)
    found: dict[str, Sequence[object]] = {"recompute": ("none", "full")}
    if "zero" in asked.written:
        found["zero"] = (1, 2, 3)
    elif not {"strategy", "reshard"}.isdisjoint(asked.written):
        found["zero"] = (2, 3)
    if "tensor" in asked.values:
        found["tensor_parallel"] = divisors(most)
    return found


def _shares(asked: Asked, data: Instance) -> tuple[list[str], tuple[Share, ...]]:
    """Return the GPUs of the ranks, and what each is told; FSDP recomputes for all."""
    by_fsdp = _recompute(asked.values) == "full"
    ranks, shares = list[str](), list[Share]()
    known = set(data.planned_cluster.gpu_ids())
    for number, row in enumerate(asked.values[names.RANKS]):
        place = f"{asked.place}: {names.RANKS}[{number}]"
        told = {key: str(value) for key, value in row.items()}
        gpu = told.get("gpu", "")
        if gpu not in known or gpu in ranks:
            raise InstanceError(
                f"{place}: gpu: found {quoted(gpu)}, expected a GPU of the instance "
                "that no other rank has; correct it"
            )
        numbers = []
        for name in names.OF_RANKS:
            if not re.fullmatch(r"[1-9][0-9]{0,8}", told.get(name, "")):
                raise InstanceError(
                    f"{place}: {name}: found {quoted(told.get(name, ''))}, expected a "
                    "whole number of at least 1; correct it"
                )
            numbers.append(int(told[name]))
        again = by_fsdp or told.get("gradient_checkpointing") == "True"
        ranks.append(gpu)
        samples, steps = numbers
        shares.append(Share(samples, steps, "full" if again else "none"))
    return ranks, tuple(shares)


def _recompute(given: Mapping[str, str]) -> Recompute:
    if "no_checkpointing" in given:
        return "none" if given["no_checkpointing"] == "true" else "full"
    return "none" if given.get("checkpointing", "false") == "false" else "full"


def _zero(asked: Asked, data: Instance, replicas: int) -> tuple[int, int]:
    """The stage of ZeRO, and the groups of replicas that each divide all states."""
    given, groups = asked.values, _number(asked, "groups", 1)
    kind = given.get("distributed", "").lower()
    if "zero" in given:
        zero = _number(asked, "zero")
        if zero > 3:
            raise InstanceError(
                f"{asked.place}: {asked.spelled('zero')}: found {zero}, expected 0 to 3"
            )
    elif not {"strategy", "fsdp", "version"}.isdisjoint(given) or kind == "fsdp":
        text = (given.get("strategy") or given.get("fsdp") or "full_shard").lower()
        told = given.get("reshard", "").lower()
        if told in _STRATEGIES:  # FSDP 1 by a newer name than fsdp_sharding_strategy
            text = told
        if text in ("true", "fsdp"):
            text = "full_shard"
        if text not in _STRATEGIES:
            raise InstanceError(
                f"{asked.place}: {asked.spelled('strategy')}: found {text}, expected "
                f"one of {', '.join(one for one in _STRATEGIES if not one.isdigit())}"
            )
        zero = _STRATEGIES[text]
        if told == "false":
            zero = 2
        if text.startswith("hybrid") or text in ("4", "5"):
            groups = len(data.planned_cluster.nodes)
    else:
        zero = 0 if kind in _ALONE and "reshard" not in given else 3
        if given.get("reshard") == "false":
            zero = 2
    if groups >= replicas:  # where one divides nothing, DeepSpeed is still there
        divides = "zero" in given or _number(asked, "context", 1) > 1
        return zero if replicas == 1 and divides else 0, 1
    return zero, groups if zero else 1


def _same_training(asked: Asked, data: Instance) -> None:
    """Raise `InstanceError` where other weights are trained, or by another rule."""
    given, place = asked.values, asked.place
    where = asked.spelled("kind") if "kind" in asked.written else "what is trained"
    if (task := given.get("kind", "sft").lower()) not in ("pt", "sft"):
        raise InstanceError(
            f"{place}: {where}: found {task}, expected training by the model's own "
            "loss (pt, sft): hetopt plans no second model and no rollouts"
        )
    _same_weights(asked, data)
    _same_precision(asked, data)
    told = given.get("optimiser", "adamw")
    hosted = given.get("hosted", "none").lower() not in ("none", "false")
    rule = told, _optimiser(told)
    same_optimiser(rule, data, place, asked.spelled("optimiser"), hosted=hosted)
    if given.get("hosted_weights", "none").lower() not in ("none", "false"):
        raise InstanceError(
            f"{place}: {asked.spelled('hosted_weights')}: found weights in the memory "
            "of hosts, expected them on GPUs: plans here have no such weights"
        )


def _same_weights(asked: Asked, data: Instance) -> None:
    """Raise where all weights are trained and not adapters, or the other way round."""
    given, place = asked.values, asked.place
    bits = _number(asked, "bits", 0) or None
    if given.get("four_bits") == "true" or given.get("adapter", "").lower() == "qlora":
        bits = 4
    if given.get("eight_bits") == "true":
        bits = 8
    bits = bits if bits in (4, 8) else None
    # Weights of so few bits are not trained: there are adapters beside them.
    kind = given.get("adapter", "full" if bits is None else "lora").lower()
    if kind in ("lora", "qlora", "true"):
        rank = _number(asked, "rank", 16 if kind == "true" else 8)
        same_adapters(rank, data, place, bits)
    elif kind in ("full", "false", "none"):
        same_adapters(None, data, place)
    else:
        raise InstanceError(
            f"{place}: {asked.spelled('adapter')}: found {kind}, expected full or "
            "lora, which instances know (-o finetune=lora)"
        )


def _same_precision(asked: Asked, data: Instance) -> None:
    """Raise where products or weights have another precision than the instance's."""
    given, place, costs = asked.values, asked.place, data.workload.costs
    if given.get("mixed_precision") == "fp8":
        timed = costs.compute.calibration
        if timed is None or timed.precision not in ("fp8", "mxfp8"):
            raise InstanceError(
                f"{place}: {asked.spelled('mixed_precision')}: found fp8, expected "
                "16-bit products as in the instance; assemble one with -o products=fp8"
            )
    for name in ("fp16", "bf16"):
        is_told = given.get(name) == "true" or given.get("mixed_precision") == name
        own = costs.memory.precision or name
        if is_told and not own.startswith(name):
            raise InstanceError(
                f"{place}: precision: found {name}, expected {own} as in the "
                f"instance; assemble one with -o precision={name}_mixed"
            )


def _in_precision(given: Mapping[str, str], data: Instance) -> Instance:
    """Return the instance with weights and gradients as the run's program keeps them.

    DeepSpeed has gradients of the weights' width unless told, else they are of 32 bits
    beside autocast, but where weights of 16 bits are trained themselves: FSDP and PEFT
    widen these.
    """
    costs = data.workload.costs
    if not (own := costs.memory.precision or "").startswith("bf16"):
        return data
    halves = "bfloat16" in given.get("dtype", "") or own == "bf16"
    divided = not {"strategy", "fsdp", "version", "reshard"}.isdisjoint(given)
    if "zero" in given:
        wide = given.get("gradients", "") in ("fp32", "float32")
        kind = "bf16_fp32_gradients" if wide else "bf16_mixed"
    elif given.get("pure") == "true" or (
        halves and not divided and costs.updates.lora is None
    ):
        kind = "bf16"
    else:
        kind = "bf16_fp32_gradients"
    return data.in_precision(kind)


def _number(asked: Asked, name: str, default: int | None = None) -> int:
    if name not in asked.values and default is not None:
        return default
    text = asked.values.get(name, "")
    if not re.fullmatch(r"[0-9]{1,9}", text):
        remedy = "paste the expanded command" if "$" in text else "correct it"
        raise InstanceError(
            f"{asked.place}: {asked.spelled(name)}: found {text!r}, expected a whole "
            f"number; {remedy}"
        )
    return int(text)
