"""Two steps of a planned Llama by DeepSpeed on processors; every rank's losses."""

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
from pipeline_plan import CUTS, PlannedPipeline
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

CONFIG = LlamaConfig(**json.loads(Path("config.json").read_text()))


class Layer(LlamaDecoderLayer):
    """One that knows the places of its words."""

    def __init__(self, number):
        super().__init__(CONFIG, number)
        self.rotary = LlamaRotaryEmbedding(CONFIG)

    def forward(self, x):
        places = torch.arange(x.shape[1]).unsqueeze(0)
        return super().forward(x, position_embeddings=self.rotary(x, places))


def loss(logits, words):
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


def batches(size):
    while True:
        words = torch.arange(size * 4).reshape(size, 4) % CONFIG.vocab_size
        yield words, words


def main():
    # Its shared-memory collectives would be compiled at the first start.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    width, words = CONFIG.hidden_size, CONFIG.vocab_size
    layers = [nn.Embedding(words, width), *map(Layer, range(CUTS[-1]))]
    layers += [LlamaRMSNorm(width), nn.Linear(width, words, bias=False)]
    model = PlannedPipeline(layers, loss_fn=loss)
    config = json.loads(Path("ds_config.json").read_text())
    config["optimizer"] = {"type": "Adam", "params": {"torch_adam": True, "lr": 0.01}}
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    data = batches(config["train_micro_batch_size_per_gpu"])
    losses = [float(engine.train_batch(data_iter=data)) for _ in range(2)]
    held = [model._local_start, model._local_stop]
    told = {"losses": losses, "held": held, "steps": engine.micro_batches}
    told["parameters"] = sum(one.numel() for one in model.parameters())
    Path(f"told.{os.environ['RANK']}").write_text(json.dumps(told))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
sys.stdout.write("null\n")
