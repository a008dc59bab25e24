"""A run is the same, in whichever trainer's file people keep it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from assembled import assembled, instance_of
from command_line import typed
from exporter_plans import instance
from places import TESTS

from hetopt.api import boxes
from hetopt.errors import InstanceError, Unsupported
from hetopt.formats.importing import changes
from hetopt.formats.importing.placing import Claim, Settings
from hetopt.problems import training_plan
from hetopt.schema import Instance, ModelSpec

# 24 GPUs, two micro-batches of one sequence of 128 tokens on each: ZeRO 3, recomputed.
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 3},
    "gradient_checkpointing": True,
    "bf16": {"enabled": True},
}
AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
}
TRAINER = """\
model_name_or_path: some/model
output_dir: out
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
gradient_checkpointing: true
bf16: true
optim: adamw_torch_fused
deepspeed: configs/ds.json
"""
FACTORY = TRAINER.replace("gradient_checkpointing: true\n", "")
FACTORY += "stage: sft\nfinetuning_type: full\ncutoff_len: 128\n"
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
mixed_precision: bf16
num_machines: 3
num_processes: 24
"""
FORMS: dict[str, dict[str, str]] = {
    "DeepSpeed": {"ds.json": json.dumps(DEEPSPEED, indent=2)},
    "transformers": {"run.yaml": TRAINER, "ds.json": json.dumps(AUTO)},
    "LLaMA-Factory": {
        "run.yaml": f"{FACTORY}template: llama3\n",
        "ds.json": json.dumps(AUTO),
    },
    "TRL by Accelerate": {
        "run.sh": "accelerate launch --config_file fsdp.yaml trl/scripts/sft.py \\\n"
        "  --model_name_or_path some/model --max_length 128 --bf16 \\\n"
        "  --per_device_train_batch_size 1 \\\n  --gradient_accumulation_steps 2 \\\n"
        "  --gradient_checkpointing True\n",
        "fsdp.yaml": ACCELERATE,
    },
    "LLaMA-Factory, with other words": {
        "run.sh": "FORCE_TORCHRUN=1 llamafactory-cli train run.yaml "
        "per_device_train_batch_size=1\n",
        "run.yaml": FACTORY.replace("batch_size: 1", "batch_size: 4"),
        "ds.json": json.dumps(AUTO),
    },
    "log": {
        "train.log": "loading ...\nINFO TrainingArguments(\n_n_gpu=1,\n"
        "accelerator_config={'split_batches': False},\nbf16=True,\n"
        "deepspeed=configs/zero3.json,\ngradient_accumulation_steps=2,\n"
        "gradient_checkpointing=True,\neval_strategy=IntervalStrategy.NO,\n"
        "hub_strategy=<HubStrategy.EVERY_SAVE: 'every_save'>,\n"
        "optim=OptimizerNames.ADAMW_TORCH,\n"
        "per_device_train_batch_size=1,\n)\n{'loss': 1}\n"
    },
    "Python": {
        "train.py": "from trl import SFTConfig, SFTTrainer\n\nargs = SFTConfig(\n"
        "    output_dir='out',\n    per_device_train_batch_size=1,\n"
        "    gradient_accumulation_steps=2,\n    gradient_checkpointing=True,\n"
        "    bf16=True,\n    max_length=128,\n    deepspeed='ds_z3.json',\n)\n"
        "SFTTrainer(args=args).train()\n"
    },
}
WANTED = Settings(1, 1, 1, 1, 1, 1, 1, "full", 3)


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / next(iter(files))


def judged(*paths: Path, data: Instance | None = None) -> Claim:
    module, asked = changes.recognise([*paths])
    return module.claimed(asked, data or instance(48))


ALONE = {
    "Accelerate": {"fsdp.yaml": ACCELERATE + "gradient_accumulation_steps: 2\n"},
    "DeepSpeed": {
        "ds.json": '{"train_batch_size": 48, "gradient_accumulation_steps": 2, '
        '"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    },
}


@pytest.mark.parametrize("tokens", [128, 256])
def test_the_blocks_of_transformers_examples_are_sequences(
    tokens: int, tmp_path: Path
) -> None:
    command = f"run_clm.py --per_device_train_batch_size 1 --block_size {tokens}"
    text = f"torchrun {command} --gradient_accumulation_steps 2\n"
    path = put(tmp_path, {"run.sh": text})
    if tokens != instance(48).workload.sequence_length:
        with pytest.raises(InstanceError, match="256"):
            judged(path)
        return
    assert "tokens of a sequence" not in str(judged(path).notes)


@pytest.mark.parametrize("name", ALONE)
def test_micro_batches_that_no_file_tells_make_up_the_batch(
    name: str, tmp_path: Path
) -> None:
    """A script of one's own has no default of the Trainer."""
    claim = judged(put(tmp_path, ALONE[name]))
    assert claim.settings == WANTED._replace(recompute="none")
    (note,) = [note for note in claim.notes if "no micro-batch size" in note]
    assert "assumed 1" in note
    text = "model_name_or_path: m\nlearning_rate: 1e-5\nfsdp: full_shard\n"
    with pytest.raises(InstanceError, match="sequences of a step: found 192"):
        judged(put(tmp_path, {"run.yaml": text}))


FILES: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(
    (TESTS / "formats" / "runs_of_people.yaml").read_text("utf-8")
)
MEGATRON = Settings(4, 3, 1, 1, 1, 1, 2, "full", 1)
OF_MEGATRON = FILES["OF_MEGATRON"]


@pytest.mark.parametrize("told", ["bf16", "fp32", None])
def test_nemo_says_how_wide_gradients_are_that_it_reduces(
    told: str | None, tmp_path: Path
) -> None:
    (name, text), *_ = OF_MEGATRON["NeMo"].items()
    line = "" if told is None else f"    grad_sync_dtype: {told}\n"
    _, asked = changes.recognise([put(tmp_path, {name: text + line})])
    assert ("grad-reduce-in-bf16" in asked.values) == (told == "bf16")


TITAN = Settings(4, 1, 1, 1, 1, 1, 1, "selective", 3)
OF_TITAN = FILES["OF_TITAN"]


#: Texts that no word on their own replaces.
WORDLESS = ("log", "Python", "command", "TOML of a command")
RUNS = [
    (name, files, wanted)
    for forms, wanted in ((FORMS, WANTED), (OF_MEGATRON, MEGATRON), (OF_TITAN, TITAN))
    for name, files in forms.items()
]


@pytest.mark.parametrize(("name", "files", "wanted"), RUNS)
def test_a_run_is_the_same_in_every_trainers_file(
    name: str, files: dict[str, str], wanted: Settings, tmp_path: Path
) -> None:
    path = put(tmp_path, files)
    if path.name == "config_registry.py":
        with pytest.raises(InstanceError, match=r"config_registry\.py:llama3_debug"):
            changes.recognise([path])
        path = Path(f"{path}:llama3_8b")
    claim = judged(path)
    assert claim.settings == wanted
    assert training_plan.evaluate(claim.data, claim.plan).objective is not None
    if wanted is WANTED:
        (pipeline, *_) = claim.plan.pipelines
        assert (len(claim.plan.pipelines), pipeline.micro_batches) == (24, 2)


@pytest.mark.parametrize(
    ("name", "files", "own"),
    [row for row in RUNS if row[2] is not MEGATRON and row[0] not in WORDLESS],
)
def test_settings_have_words_in_every_form(
    name: str, files: dict[str, str], own: Settings, tmp_path: Path
) -> None:
    data = instance(48)
    module, asked = changes.recognise([put(tmp_path, files)])
    search = changes._Search(module, asked, data, "")
    wanted = own._replace(micro_batch_size=2, recompute="none")
    if own is TITAN:
        wanted = wanted._replace(tensor_parallel=2)
    elif "zero" in module.choices(asked, data):
        wanted = wanted._replace(zero=2)
    assert module.claimed(search.asked_for(wanted), data).settings == wanted


def test_a_configuration_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    text = "torchrun -m torchtitan.train --job.config_file configs/a.toml\n"
    path = put(tmp_path, {"run.sh": text})
    with pytest.raises(InstanceError, match=r"--from configs/a\.toml"):
        changes.recognise([path])


def run(old: str, new: str, text: str = TRAINER.replace("ds.json", "z2.json")) -> Any:
    return {"run.yaml": text.replace(old, new)}


def hosted(part: str) -> dict[str, str]:
    """A run with a part of it in the memory of hosts, by DeepSpeed's JSON."""
    zero = {"stage": 3, part: {"device": "cpu"}}
    return {"run.yaml": TRAINER, "ds.json": json.dumps({"zero_optimization": zero})}


_SMALL = "--per_device_train_batch_size 1 --gradient_accumulation_steps 2"
NO_WEIGHTS = "plans here have no such weights"
SWIFT = OF_MEGATRON["ms-swift"]["run.sh"][:-1]
BY_TITAN = OF_TITAN["command"]["run.sh"]
OF_FLAGS = (
    ("--use_lora True --lora_r 8", "found adapters of rank 8, expected all"),
    ("--bits 4 --lora_r 8", "found adapters of rank 8 on 4-bit weights"),
    ("--load_in_8bit --lora_r 8", "write weight_bits: 8 next to the rank"),
    ("--optim adamw_torch_4bit", "found adamw_torch_4bit, expected adamw"),
    ("--optim adamw_anyprecision", "found adamw_anyprecision, expected adamw"),
    ("--use_galore", "--use_galore: found galore, expected adamw"),
    ("--mixed_precision fp8", "found fp8, expected 16-bit products"),
)
FOUR = json.dumps({**DEEPSPEED, "gradient_accumulation_steps": 4})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (run("ds.json", "own.json", TRAINER), "--from configs/own.json"),
        (run("_steps: 2", "_steps: 3"), "found 72, expected 48"),
        ({"run.yaml": TRAINER, "ds.json": FOUR}, "found 4, and 2 in"),
        (run("bf16", "finetuning_type: lora\nbf16"), "-o finetune=lora -o rank=8"),
        (run("adamw_torch_fused", "adamw_bnb_8bit"), "-o optimiser=adamw_8bit"),
        (run("adamw_torch_fused", "lion"), "the memory of others is unknown"),
        (hosted("offload_optimizer"), "with -o offload=optimiser"),
        (hosted("offload_param"), NO_WEIGHTS),
        (run("bf16", "fp16"), "precision: found fp16"),
        (
            {
                "run.py": "from peft import LoraConfig\nfrom trl import SFTConfig\n"
                "a = SFTConfig(output_dir='o', per_device_train_batch_size=1, "
                "gradient_accumulation_steps=2)\n"
                "p = LoraConfig(r=64, lora_alpha=16, target_modules='all-linear')\n"
            },
            "-o finetune=lora -o rank=64",
        ),
        (run("configs/ds.json", "zero3_offload", TRAINER), "-o offload=optimiser"),
        (run("deepspeed: configs/z2.json", "fsdp: full_shard offload"), NO_WEIGHTS),
        (
            {
                "b.yaml": OF_MEGATRON["Bridge"]["overrides.yaml"].replace(
                    "bf16_mixed", "bf16_with_fp8_delayed_scaling_mixed"
                )
            },
            "-o products=fp8",
        ),
        (
            {"run.sh": f"{SWIFT} --optimizer_cpu_offload true\n"},
            "with -o offload=optimiser",
        ),
        (
            {
                "run.yaml": "per_device_train_batch_size: 1\n",
                "acc.yaml": "distributed_type: MEGATRON_LM\n",
            },
            "give the arguments of that trainer",
        ),
        *(
            ({"run.sh": f"torchrun train.py {_SMALL} --bf16 True {more}\n"}, told)
            for more, told in OF_FLAGS
        ),
        *(
            (
                {"run.sh": BY_TITAN.replace("\n", f" {more}\n")},
                told,
            )
            for more, told in (
                ("--training.enable_cpu_offload=true", "enable_cpu_offload: found"),
                ("--optimizer.name Muon", "optimizer.name: found Muon, expected adamw"),
                ("--model.converters lora", "hetopt does not plan adapters"),
            )
        ),
    ],
)
def test_what_differs_from_the_instance_is_refused_by_name(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    data = instance(48, costs={"precision": "bf16_mixed"})
    put(tmp_path, files)
    paths = [tmp_path / name for name in files if not name.startswith("ds")]
    with pytest.raises(InstanceError) as caught:
        judged(*paths, data=data)
    assert message in str(caught.value)


_NOTHING = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
_NOTHING |= {"fsdp": "", "deepspeed": None, "output_dir": "o"}
DIVIDED = [
    *(
        ({"run.sh": f"{words} {_SMALL}\n"}, zero)
        for words, zero in (
            ("accelerate launch --use_deepspeed train.py", 2),
            ("accelerate launch --use_deepspeed --zero_stage 3 train.py", 3),
            ("accelerate launch --use_fsdp train.py", 3),
            ("trl sft --accelerate_config zero2", 2),
            ("trl sft --accelerate_config zero1", 1),
            ("torchrun train.py", 0),
        )
    ),
    *(
        (
            {
                "run.yaml": TRAINER.replace("deepspeed: configs/ds.json\n", ""),
                "fsdp.yaml": ACCELERATE.replace(
                    "fsdp_sharding_strategy: FULL_SHARD", line
                ),
            },
            zero,
        )
        for line, zero in (
            ("fsdp_sharding_strategy: FULL_SHARD", 3),
            ("fsdp_sharding_strategy: 2", 2),
            ("fsdp_reshard_after_forward: SHARD_GRAD_OP", 2),
            ("fsdp_reshard_after_forward: NO_SHARD", 0),
            ("fsdp_version: 2\n  fsdp_reshard_after_forward: false", 2),
            ("fsdp_version: 2\n  fsdp_reshard_after_forward: true", 3),
            ("fsdp_version: 2", 3),
        )
    ),
    ({"args.json": json.dumps(_NOTHING)}, 0),
]


@pytest.mark.parametrize(("files", "zero"), DIVIDED)
def test_states_are_divided_as_launchers_and_files_say(
    files: dict[str, str], zero: int, tmp_path: Path
) -> None:
    put(tmp_path, files)
    claim = judged(*(tmp_path / name for name in files))
    assert claim.settings.zero == zero


def test_ranks_that_share_sequences_share_states_of_fsdp(tmp_path: Path) -> None:
    work = {"global_batch": 2, "sequence_length": 4096}
    made = assembled(tmp_path, ["a0 slots=2 type=H100-80GB-SXM5"], work=work)
    files = {
        "run.yaml": TRAINER.partition("deepspeed")[0],
        "fsdp.yaml": ACCELERATE.replace("3\nnum_processes: 24", "1")
        + "parallelism_config:\n  parallelism_config_cp_size: 2\n",
    }
    put(tmp_path, files)
    claim = judged(*(tmp_path / name for name in files), data=instance_of(made))
    assert (claim.settings.context_parallel, claim.settings.zero) == (2, 3)


def test_what_changes_time_and_is_not_read_is_told(tmp_path: Path) -> None:
    text = f"{TRAINER}packing: true\nuse_unsloth: true\nreport_to: wandb\n"
    path = put(tmp_path, {"run.yaml": text, "ds.json": json.dumps(AUTO)})
    told = " ".join(judged(path).notes)
    assert "not read: packing True, use_unsloth True" in told
    assert "report_to" not in told
    assert "ds.json was also read" in told


def test_flags_without_a_value_are_told(tmp_path: Path) -> None:
    text = "torchrun train.py --per_device_train_batch_size 1 --use_unsloth \\\n"
    text += "  --gradient_accumulation_steps 2 --some_flag --bf16\n"
    module, asked = changes.recognise([put(tmp_path, {"run.sh": text})])
    told = module.claimed(asked, instance(48)).notes
    assert "not read: use-unsloth" in told
    assert {"use-unsloth", "some-flag"} <= {*asked.unread}


def test_what_a_recipe_sets_itself_is_told_and_its_parts_are_read(
    tmp_path: Path,
) -> None:
    text = OF_MEGATRON["NeMo recipe"]["recipe.py"]
    path = put(tmp_path, {"recipe.py": text})
    told = " ".join(judged(path).notes)
    assert "assumed --context-parallel-size 1;" in told
    plugins = "    recipe.trainer.plugins = bf16_with_fp8_mixed()\n"
    text = text.replace("    return", f"{plugins}    return")
    with pytest.raises(InstanceError, match="products of layers: found fp8"):
        judged(put(tmp_path, {"recipe.py": text}))
    text = text.replace("num_nodes=3", "num_nodes=3, num_gpus_per_node=4")
    with pytest.raises(InstanceError, match="world_size: found 12, expected 24"):
        judged(put(tmp_path, {"recipe.py": text}))


_ARGS = "--model_name_or_path m --per_device_train_batch_size 2 --learning_rate 1e-5"
_YAML = "model_name_or_path: m\nper_device_train_batch_size: 1\nlearning_rate: 1e-5\n"
OF_PAIRS = {
    "run.py": (TESTS / "defects" / "preference_trainer.py").read_text(),
    "attribute.py": "import trl\na = trl.GRPOConfig(per_device_train_batch_size=2)\n",
    "reward.py": "class T(RewardTrainer):\n    x = 1\nT(local_batch_size=2)\n",
    "trl.sh": f"trl dpo {_ARGS}\n",
    "flags.sh": f"torchrun train.py {_ARGS} --max_prompt_length 8\n",
    "program.sh": f"torchrun --nproc_per_node 8 my/run_dpo.py {_ARGS}\n",
    "script.sh": f"accelerate launch --config_file a.yaml trl/orpo.py {_ARGS}\n",
    "module.sh": f"torchrun --nproc_per_node 8 -m trl.scripts.kto {_ARGS}\n",
    "slime.sh": f"{SWIFT} --rollout-batch-size 8\n",
    "step.sh": f"{SWIFT} --perform-rl-step\n",
    "megatron.sh": f"{SWIFT} --rlhf_type grpo\n",
    "openrlhf.sh": "deepspeed --module openrlhf.cli.train_rm --save_path x",
    "ray.sh": "ray job submit --address=x -- python3 -m openrlhf.cli.train_ppo_ray "
    "--actor.num_nodes 1 --train.micro_batch_size 2\n",
    "roles.sh": "python3 my.py --actor.num_nodes 1 --train.micro_batch_size 2\n",
    "aligner.sh": "python nlp/gpt/train_gpt_dpo.py model.micro_batch_size=1\n",
    "stage.yaml": f"{_YAML}stage: dpo\n",
    "rewards.yaml": f"{_YAML}stage: rm\n",
    "loss.yaml": f"{_YAML}beta: 0.1\nloss_type: sigmoid\n",
    "losses.yaml": f"{_YAML}loss_type: [sigmoid, sft]\n",
    "beta.yaml": f"{_YAML}beta: 0.1\n",
    "beta.sh": f"torchrun train.py {_ARGS} --beta 0.1\n",
    "preference.yaml": f"{_YAML}pref_beta: 0.1\n",
    "distilled.sh": f"torchrun train.py {_ARGS} --teacher_model_name_or_path t\n",
    "model.yaml": f"{_YAML}reward_model: true\n",
    "nemo_rl.yaml": "grpo: {num_prompts_per_step: 32}\n"
    "policy: {train_micro_batch_size: 4}\n",
    "args.json": '{"rlhf_type": "kto", "per_device_train_batch_size": 1}',
    "printed.log": "INFO DPOConfig(\nbeta=0.9,\nper_device_train_batch_size=2,\n)",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "run.sh",
            "rm -rf out\ntorchrun --nproc_per_node 8 train_sft.py --model_name_or_path "
            "a/m-dpo --dataset a/dpo-pairs ppo_data --output_dir out/dpo "
            "--per_device_train_batch_size 2 --learning_rate 1e-5\n",
        ),
        (
            "run.py",
            "from trl import DPOConfig, SFTConfig\n"
            "a = SFTConfig(per_device_train_batch_size=2)\n",
        ),
        ("run.yaml", f"{_YAML}stage: sft\nreward_model: null\noutput_dir: x/grpo\n"),
        ("run.yaml", f"{_YAML}stage: sft\npref_beta: 0.1\npref_loss: sigmoid\n"),
        ("run.yaml", f"{_YAML}loss_type: nll\nadam_beta2: 0.95\n"),
    ],
)
def test_names_of_methods_elsewhere_refuse_no_run(
    name: str, text: str, tmp_path: Path
) -> None:
    _, asked = changes.recognise([put(tmp_path, {name: text})])
    assert asked.values["samples"] in ("1", "2")


@pytest.mark.parametrize(
    ("name", "text", "packed"),
    [
        ("run.yaml", _YAML, ""),
        ("run.yaml", f"{_YAML}packing: false\n", "packing: true\n"),
        ("run.yaml", f"{_YAML}finetuning_type: full\n", "neat_packing: true\n"),
        ("run.yaml", f"{_YAML}cutoff_len: 8\n", "stage: pt\n"),
        ("run.sh", f"trl sft {_ARGS}", " --packing"),
        ("run.sh", f"python run_clm.py {_ARGS}", " --block_size 1024"),
        ("run.sh", SWIFT, " --packing true"),
        ("run.sh", SWIFT, " --packing"),
    ],
)
def test_sequences_that_nothing_packs_may_be_shorter(
    name: str, text: str, packed: str, tmp_path: Path
) -> None:
    _, asked = changes.recognise([put(tmp_path, {name: text})])
    assert asked.has_short_sequences
    if packed:
        text = text.replace("packing: false\n", "")
        _, asked = changes.recognise([put(tmp_path, {name: text + packed})])
        assert not asked.has_short_sequences


def test_what_does_not_fit_at_full_length_is_said_to_be_of_that_length(
    tmp_path: Path,
) -> None:
    hosts, place = ["a slots=2 type=A100-80GB-SXM4"], tmp_path / "instance.json"
    defects = TESTS / "defects"
    model, run = defects / "short-sequences-model.json", defects / "short-sequences.sh"
    work = {"sequence_length": 2048, "global_batch": 16}
    made = assembled(tmp_path, hosts, work=work, model=model)
    place.write_text(json.dumps(made.document))
    words = ["check", "--from", str(run), "--instance", str(place)]
    shown = typed(*words, "--time-limit", "0.1")
    text = " ".join(shown.output.split())
    full = "with sequences of 2,048 tokens each"
    assert text.count("does not fit") - text.count("(does not fit)") == text.count(full)
    assert text.startswith(f"The run does not fit {full}, according to the model")
    assert "sequences are not packed, so each is counted at 2,048 tokens" in text
    told = typed(*words, "--time-limit", "0.1", "--json")
    assert json.loads(told.stdout)["counted_at_full_length"] == 2048


def test_adapters_that_nothing_asks_for_are_told(tmp_path: Path) -> None:
    text = "torchrun train.py --per_device_train_batch_size 1 --lora_r 8 "
    text += "--gradient_accumulation_steps 2\n"
    told = judged(put(tmp_path, {"run.sh": text})).notes
    assert any("use_peft is not set" in note for note in told)


def test_what_torchtitan_does_beside_is_told(tmp_path: Path) -> None:
    more = " --parallelism.enable_async_tensor_parallel=true\n"
    text = BY_TITAN.replace("\n", more)
    (note,) = (x for x in judged(put(tmp_path, {"run.sh": text})).notes if "not r" in x)
    assert note == "not read: parallelism.enable_async_tensor_parallel True"


def test_two_seeds_are_no_two_values_of_a_run(tmp_path: Path) -> None:
    text = OF_MEGATRON["Bridge"]["overrides.yaml"].replace(
        "train:\n", "train:\n  seed: 1\n"
    )
    text = text.replace("ddp:\n", "dataset:\n  seed: 2\nddp:\n")
    claim = judged(put(tmp_path, {"overrides.yaml": text}))
    assert claim.settings == MEGATRON
    twice = "num_layers: 2\nmodel_num_layers: {num_layers: 4}\nhidden_size: 8\n"
    with pytest.raises(InstanceError, match="num_layers: found 2 and 4"):
        changes.recognise([put(tmp_path, {"twice.yaml": twice})])


STRANGERS = {
    "GPT-NeoX": {
        **{"pipe_parallel_size": 2, "model_parallel_size": 2, "num_layers": 4},
        **{"hidden_size": 64, "num_attention_heads": 4, "seq_length": 128},
        "train_micro_batch_size_per_gpu": 1,
    },
    "nanotron": {
        "parallelism": {"dp": 2, "tp": 4, "pp": 1},
        "tokens": {"micro_batch_size": 1, "sequence_length": 128},
        "model": {"model_config": {"hidden_size": 64, "num_attention_heads": 4}},
    },
    "litgpt": {
        "precision": "bf16-true",
        "train": {"micro_batch_size": 1, "global_batch_size": 8, "lr_warmup_steps": 1},
    },
    "MosaicML Composer": {"device_train_microbatch_size": 4, "max_seq_len": 128},
    "torchtune": {"model": {"_component_": "torchtune.models.llama3"}, "batch_size": 1},
    "Axolotl": {"base_model": "m", "micro_batch_size": 1, "sequence_len": 128},
    "ms-swift": {"train_type": "lora", "per_device_train_batch_size": 1},
    "verl": {"actor_rollout_ref": {"actor": {"ppo_micro_batch_size_per_gpu": 1}}},
}


#: Keys of LLaMA-Factory's v1, which are not taken for those of 0.9.
OF_V1 = [
    f"model: a/m\ncutoff_len: 2048\nmicro_batch_size: 1\n{more}\n"
    for more in ("kernel_config: {name: auto}", "peft_config: {name: lora, r: 16}", "")
]
PAIRED = "training with pairs or rewards is not"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        *((name, text, PAIRED) for name, text in OF_PAIRS.items()),
        *(("run.yaml", text, "a run of LLaMA-Factory's v1") for text in OF_V1),
        *(("x.json", json.dumps(x), f"a run of {n}") for n, x in STRANGERS.items()),
    ],
)
def test_runs_that_are_not_read_are_refused_by_name(
    name: str, text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported, match=told) as caught:
        changes.recognise([put(tmp_path, {name: text})])
    assert "supported by hetopt" in str(caught.value) or told is PAIRED


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_file_is_judged_as_its_own_program_runs_it(zero: int, tmp_path: Path) -> None:
    """What the instance was assembled for makes no difference, nor is it silent."""
    spec = ModelSpec(name="few", layers=4, hidden=1024, heads=8, vocabulary=1000)
    shape = {"sequence_length": 512, "global_batch": 16, "micro_batch_sizes": [1]}
    ds = {**AUTO, "zero_optimization": {"stage": zero}}
    path = put(tmp_path, {"run.yaml": TRAINER, "ds.json": json.dumps(ds)})
    module, asked = changes.recognise([path])
    found = []
    for told in ("framework=trainer", "framework=megatron", "runs_on=llamafactory"):
        cards = [boxes.Cards("H100-80GB-SXM5", 8)]
        claim = module.claimed(asked, boxes.instance_of(spec, cards, shape, [told])[0])
        says = any("whose file it is, not of" in note for note in claim.notes)
        assert says == (told != "framework=trainer")
        parts = training_plan.evaluate(claim.data, claim.plan).parts
        us = parts["iteration_us"]
        found.append(
            [round(us, -2), parts["peak_memory_mib"], parts["oom_probability"]]
        )
    assert found[0] == found[1] == found[2]
    assert found[0][-1] < 1  # DeepSpeed's update and buckets are weighed
