"""`train.py`, which gives ranks of transformers' Trainer unequal shares of a batch."""

TRAIN = '''\
#!/usr/bin/env python3
"""Train by a plan of hetopt: a whole model on every GPU, each with its own share.

arguments.yaml has what all ranks are told, ranks.json what each is told besides; words
of the command line stand before both. Every global batch is shared by ranks.json.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, HfArgumentParser
from transformers import Trainer, TrainingArguments

HERE = Path(__file__).resolve().parent
RANK = int(os.environ.get("RANK", 0))


@dataclass
class Words:
    """The model and its data, by the names of TRL where it has them."""

    model_name_or_path: str = field(metadata={"help": "a model, or its folder"})
    data: str = field(metadata={"help": ".npy of token ids, or JSON lines"})
    max_length: int = field(metadata={"help": "tokens of a sequence"})
    dtype: str = "float32"
    use_peft: bool = False
    lora_r: int = 16
    lora_alpha: int = 16
    lora_target_modules: list[str] | None = None
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    bnb_4bit_quant_type: str = "nf4"
    use_bnb_nested_quant: bool = False


class Windows(torch.utils.data.Dataset):
    """Tokens in sequences of one length, whole ones alone."""

    def __init__(self, tokens, length):
        self.tokens, self.length = tokens, length

    def __len__(self):
        return len(self.tokens) // self.length

    def __getitem__(self, at):
        window = self.tokens[at * self.length : (at + 1) * self.length]
        tokens = torch.from_numpy(np.asarray(window).astype(np.int64))
        return {"input_ids": tokens, "labels": tokens}


class Shares:
    """Micro-batches of this rank: its share of every global batch, in one order."""

    def __init__(self, count, ranks, seed):
        held = [
            one["per_device_train_batch_size"] * one["gradient_accumulation_steps"]
            for one in ranks
        ]
        self.count, self.batch, self.seed, self.epoch = count, sum(held), seed, 0
        self.first, self.held = sum(held[:RANK]), held[RANK]
        self.samples = ranks[RANK]["per_device_train_batch_size"]
        if count < self.batch:
            raise SystemExit(f"found {count} sequences, expected {self.batch} or more")

    def __len__(self):
        return self.count // self.batch * (self.held // self.samples)

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + int(self.epoch))
        order = torch.randperm(self.count, generator=generator)
        for start in range(0, self.count - self.batch + 1, self.batch):
            first = start + self.first
            for mine in order[first : first + self.held].split(self.samples):
                yield mine.tolist()


class Loader(DataLoader):
    """It hands the number of an epoch on."""

    def set_epoch(self, epoch):
        self.batch_sampler.epoch = epoch


class PlannedTrainer(Trainer):
    """Trainer whose ranks take the shares of the plan."""

    def get_train_dataloader(self):
        ranks = json.loads((HERE / "ranks.json").read_text())["ranks"]
        shares = Shares(len(self.train_dataset), ranks, self.args.seed)
        return Loader(
            self.train_dataset,
            batch_sampler=shares,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )


def told():
    """The words of this rank and its TrainingArguments."""
    given = yaml.safe_load((HERE / "arguments.yaml").read_text())
    ranks = json.loads((HERE / "ranks.json").read_text())["ranks"]
    if len(ranks) != int(os.environ.get("WORLD_SIZE", 1)):
        raise SystemExit(f"found other ranks than the {len(ranks)} of ranks.json")
    own = {name: value for name, value in ranks[RANK].items() if name != "gpu"}
    parser = HfArgumentParser((Words, TrainingArguments))
    for action in parser._actions:
        if action.dest in (usual := {**given, **own}):
            action.required = False
            action.default = usual[action.dest]
    return parser.parse_args_into_dataclasses()


def tokens(words):
    """The tokens of the data, one after another."""
    if words.data.endswith(".npy"):
        return np.load(words.data, mmap_mode="r").reshape(-1)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(words.model_name_or_path)
    found = []
    with open(words.data, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            text, is_plain = row.get("text"), "text" in row
            if not is_plain:  # a template has the marks of beginnings itself
                text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
            found += tokenizer(text, add_special_tokens=is_plain)["input_ids"]
            found.append(tokenizer.eos_token_id)
    return np.array(found)


def model(words):
    """The released model, with adapters where the plan has them."""
    options, kind = {}, getattr(torch, words.dtype)
    if words.load_in_4bit or words.load_in_8bit:
        from transformers import BitsAndBytesConfig

        options["device_map"] = {"": int(os.environ.get("LOCAL_RANK", 0))}
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=words.load_in_4bit,
            load_in_8bit=words.load_in_8bit,
            bnb_4bit_quant_type=words.bnb_4bit_quant_type,
            bnb_4bit_use_double_quant=words.use_bnb_nested_quant,
            bnb_4bit_compute_dtype=kind,
            bnb_4bit_quant_storage=kind,
        )
    path = words.model_name_or_path
    made = AutoModelForCausalLM.from_pretrained(path, dtype=kind, **options)
    made.config.use_cache = False
    if not words.use_peft:
        return made
    from peft import LoraConfig, get_peft_model

    beside = words.lora_target_modules
    adapters = LoraConfig(
        r=words.lora_r,
        lora_alpha=words.lora_alpha,
        target_modules=beside[0] if beside == ["all-linear"] else beside,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(made, adapters)


if __name__ == "__main__":
    words, arguments = told()
    torch.manual_seed(arguments.seed)
    windows = Windows(tokens(words), words.max_length)
    trainer = PlannedTrainer(model(words), arguments, train_dataset=windows)
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_model()
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()
'''
