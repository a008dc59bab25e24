"""Files for LLaMA-Factory: its YAML and DeepSpeed's JSON, and the plan they make."""

import json

import yaml

from hetopt.plans import TrainingPlan

from .grid import gpus_of, torchrun_parts, twice_held
from .replicas import plan_of
from .transformers import LAUNCH, SHARE

ARGUMENTS, CONFIG = "plan.yaml", "ds_config.json"


def validate(files: dict[str, str]) -> list[str]:
    """Rules of its parser, and of DeepSpeed, that the files break."""
    told = yaml.safe_load(files[ARGUMENTS])
    broken = twice_held(torchrun_parts(files[LAUNCH], LAUNCH))
    if told.get("deepspeed") not in (None, *files):
        broken.append("DeepSpeed's configuration is not among the files")
    if CONFIG in files:
        config = json.loads(files[CONFIG])
        sizes = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        if any(config[name] != "auto" for name in sizes):
            broken.append("DeepSpeed is told another batch than the trainer")
    if told["finetuning_type"] == "full" and "quantization_bit" in told:
        broken.append("quantised weights are trained")
    return broken


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that LLaMA-Factory would run."""
    told = yaml.safe_load(files[ARGUMENTS])
    share = [told[name] for name in SHARE]
    gpus = gpus_of(torchrun_parts(files[LAUNCH], LAUNCH))
    return plan_of((gpu, *share, None) for gpu in gpus)
