"""transformers' Trainer: unequal shares lose as one process does; its parsers read."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import ran
from conftest import need
from exporter_plans import instance, whole

from hetopt.formats import exporting
from hetopt.schema import Instance

pytestmark = [pytest.mark.targets, pytest.mark.tool("transformers")]
Launched = Callable[..., "subprocess.CompletedProcess[str]"]
SHARES = {
    "ddp": (0, [("a0:0", 4, 3), ("a0:1", 3, 5), ("b0:0", 1, 5)]),
    "zero 2": (2, [("a0:0", 5, 4), ("a0:1", 2, 4), ("b0:0", 1, 4)]),
    "zero 3": (3, [("a0:0", 19, 1), ("a0:1", 8, 1), ("b0:0", 5, 1)]),
}
ONE = [("a0:0", 8, 4)]
WORDS = ["--max_steps", "3", "--use_cpu", "true", "--logging_steps", "1"]
WORDS += ["--report_to", "none", "--learning_rate", "0.01", "--save_strategy", "no"]
WORDS += ["--lr_scheduler_type", "constant", "--disable_tqdm", "true"]
MADE = """\
import json, sys
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(**json.loads(sys.argv[1]))).save_pretrained("model")
tokens = np.random.default_rng(0).integers(0, 512, 128 * 64)
np.save("tokens.npy", tokens.astype(np.uint16))
print(json.dumps({}))
"""
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 128,
}


def offering(zero: int) -> Instance:
    """The machines, with every size of micro-batches."""
    costs = {"precision": "fp32", "zero": zero, "recompute": "full"}
    tree = json.loads(instance(32, costs).model_dump_json())
    tree["workload"]["micro_batch_sizes"] = [*range(1, 33)]
    return Instance.model_validate_json(json.dumps(tree))


def trained(
    launched: Launched, folder: Path, zero: int, shares: list[Any], *words: str
) -> list[float]:
    """The losses of a run of an export, all of whose hosts are this machine."""
    files = exporting.export_plan("transformers", offering(zero), whole(shares))
    script = files["launch.sh"].replace("--master-addr a0", "--master-addr 127.0.0.1")
    exporting.write(folder, files | {"launch.sh": script})
    model = ["--model_name_or_path", "../model", "--data", "../tokens.npy"]
    ended = launched(folder, *model, *WORDS, *words)
    assert ended.returncode == 0, ended.stderr[-4000:]
    # The first rank of each host prints what all lose together.
    hosts = len({gpu.partition(":")[0] for gpu, *_ in shares})
    return [float(x) for x in re.findall(r"'loss': '?([0-9.]+)", ended.stdout)][::hosts]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    need("torch", "transformers", "accelerate")
    made = [sys.executable, "-c", MADE, json.dumps(SMALL)]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@pytest.mark.parametrize("name", list(SHARES))
def test_unequal_shares_lose_as_one_process_does(
    name: str, model: Path, launched: Launched, note: Callable[[object], None]
) -> None:
    zero, shares = SHARES[name]
    one = trained(launched, model / "one", 0, ONE)
    several = trained(launched, model / "several", zero, shares)
    note(f"{name}: losses {several}")
    assert len(one) == 3
    assert several == pytest.approx(one, abs=2e-3)  # of which four digits are shown


def test_every_argument_is_one_of_transformers_or_trl() -> None:
    need("torch", "transformers", "trl")
    from transformers import TrainingArguments

    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    known |= {"max_length"} | _fields_of_trl()
    files = exporting.export_plan("transformers", offering(3), whole(ONE * 1))
    told = yaml.safe_load(files["arguments.yaml"])
    assert set(told) <= known
    for rank in json.loads(files["ranks.json"])["ranks"]:
        assert set(rank) - {"gpu"} <= known


def _fields_of_trl() -> set[str]:
    """Fields of its ModelConfig, which need not be imported with all that it needs."""
    from importlib import util

    found = util.find_spec("trl")
    assert found.origin is not None
    text = Path(found.origin).with_name("trainer") / "model_config.py"
    return set(re.findall(r"^    (\w+): .* = field\($", text.read_text("utf-8"), re.M))


@pytest.mark.tool("accelerate")
@pytest.mark.parametrize("zero", [0, 3])
def test_accelerate_reads_its_configuration(zero: int, tmp_path: Path) -> None:
    need("torch", "accelerate")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import (
        _validate_launch_command,
        launch_command_parser,
    )

    shares = [(f"{node}:{i}", 4, 2) for node in ("a0", "b0") for i in range(2)]
    files = exporting.export_plan("accelerate", offering(zero), whole(shares))
    exporting.write(tmp_path, files)
    path = str(tmp_path / "accelerate.yaml")
    read = load_config_from_file(path)
    assert read.num_processes == len(shares)
    assert read.num_machines == 2
    parser = launch_command_parser()
    words = ["--config_file", path, "--machine_rank", "1", "train.py"]
    args, _, _ = _validate_launch_command(parser.parse_args(words))
    assert args.use_fsdp == (zero == 3)
    assert args.machine_rank == 1
    assert args.num_processes == len(shares)
    if zero == 3:
        assert args.fsdp_reshard_after_forward == "false" or not (
            args.fsdp_reshard_after_forward
        )


READ = """\
from llamafactory.hparams import get_train_args
_, data, training, finetuning, _ = get_train_args()
print(training.per_device_train_batch_size, training.gradient_accumulation_steps)
print(data.cutoff_len, finetuning.stage, finetuning.finetuning_type)
"""
BESIDE = ["model_name_or_path=m", "dataset=d", "use_cpu=true"]


@pytest.mark.tool("llamafactory")
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_llamafactorys_parser_reads_the_plan(zero: int, tmp_path: Path) -> None:
    need("torch", "transformers", "llamafactory", *(["deepspeed"] if zero else []))
    data, shares = offering(zero), [("a0:0", 4, 4), ("b0:0", 4, 4)]
    exporting.write(
        tmp_path, exporting.export_plan("llamafactory", data, whole(shares))
    )
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "0"}
    here = {"MASTER_ADDR": "127.0.0.1", "DISABLE_VERSION_CHECK": "1"}
    ended = ran(
        *(sys.executable, "-c", READ, "plan.yaml", *BESIDE),
        cwd=tmp_path,
        env={**os.environ, **one, **here},
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    length = data.workload.sequence_length
    assert ended.stdout.split()[-5:] == ["4", "4", str(length), "sft", "full"]
