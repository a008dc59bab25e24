"""Megatron-LM's own parser and rules on the words that its training is started with.

Arguments: the number of ranks, and the words. Some of what the rules have made.
"""

import contextlib
import json
import sys

import megatron_core

NAMES = (
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups"),
    *("ffn_hidden_size", "num_experts", "moe_router_topk", "normalization"),
    *("position_embedding_type", "add_bias_linear", "swiglu", "fp16", "bf16"),
    *("world_size", "data_parallel_size", "global_batch_size", "train_iters"),
)
world, *words = sys.argv[1:]
with contextlib.redirect_stdout(sys.stderr):
    made = megatron_core.validated(words, int(world))
sys.stdout.write(json.dumps({name: getattr(made, name) for name in NAMES}) + "\n")
