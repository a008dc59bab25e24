"""Two steps of a planned pipeline by DeepSpeed on processors; every rank's losses."""

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
from pipeline_plan import CUTS, PlannedPipeline
from torch import nn

WIDTH, WORDS = 16, 32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.mlp(self.norm(x)))


def loss(logits, words):
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


def batches(size):
    while True:
        words = torch.arange(size * 4).reshape(size, 4) % WORDS
        yield words, words


def main():
    # Its shared-memory collectives would be compiled at the first start.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    layers = [nn.Embedding(WORDS, WIDTH), *(Layer() for _ in range(CUTS[-1]))]
    layers += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)]
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
    Path(f"told.{os.environ['RANK']}").write_text(json.dumps(told))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
sys.stdout.write("null\n")
