"""What Megatron-core makes of an export: layers, groups and parameters of every rank.

The arguments are read by their names as its configuration has them; with MEGATRON_LM, a
checkout, by Megatron-LM's own parser and `validate_args` first.
"""

import json
import os
import shlex
import sys
import types
from pathlib import Path

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.testing._internal.distributed.fake_pg import FakeStore


class Quiet:
    """Megatron's random states, which it keeps on CUDA alone."""

    def fork(self, *name):
        from contextlib import nullcontext

        return nullcontext()

    def is_initialized(self):
        return False


def arguments(text):
    given, name = {}, ""
    for word in shlex.split(text, comments=True):
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            given[name] = True
        else:
            given[name] = word
    return given


def number(given, name, default=None):
    return int(given.get(name, default))


def configuration(given):
    heads = number(given, "num_attention_heads")
    fields = {
        "num_layers": number(given, "num_layers"),
        "hidden_size": number(given, "hidden_size"),
        "num_attention_heads": heads,
        "num_query_groups": number(given, "num_query_groups", heads),
        "ffn_hidden_size": number(given, "ffn_hidden_size"),
        "normalization": given["normalization"],
        "layernorm_epsilon": float(given["norm_epsilon"]),
        "add_bias_linear": "disable_bias_linear" not in given,
        "add_qkv_bias": "add_qkv_bias" in given,
        "qk_layernorm": "qk_layernorm" in given,
        "gated_linear_unit": "swiglu" in given,
        "hidden_dropout": float(given["hidden_dropout"]),
        "attention_dropout": float(given["attention_dropout"]),
        "tensor_model_parallel_size": number(given, "tensor_model_parallel_size"),
        "pipeline_model_parallel_size": number(given, "pipeline_model_parallel_size"),
        "pipeline_dtype": torch.float32,
        "sequence_parallel": False,  # which PyTorch's own norms do not have
        "use_cpu_initialization": True,
        "perform_initialization": False,
        "gradient_accumulation_fusion": False,
        "bias_activation_fusion": False,
        "apply_rope_fusion": False,
        "persist_layer_norm": False,
    }
    if "swiglu" in given:
        fields["activation_func"] = torch.nn.functional.silu
    if "kv_channels" in given:
        fields["kv_channels"] = number(given, "kv_channels")
    if "pipeline_model_parallel_layout" in given:
        fields["pipeline_model_parallel_layout"] = given[
            "pipeline_model_parallel_layout"
        ]
    if "num_experts" in given:
        fields |= {
            "num_moe_experts": number(given, "num_experts"),
            "moe_ffn_hidden_size": number(given, "moe_ffn_hidden_size"),
            "moe_router_topk": number(given, "moe_router_topk"),
            "moe_aux_loss_coeff": float(given["moe_aux_loss_coeff"]),
            "moe_token_dispatcher_type": "alltoall",
        }
    return TransformerConfig(**fields)


def built(given, rank, world):
    """Layers, ends, parameters and groups of one rank."""
    torch.distributed.init_process_group(
        "fake", rank=rank, world_size=world, store=FakeStore()
    )
    config = configuration(given)
    parallel_state.initialize_model_parallel(
        config.tensor_model_parallel_size,
        config.pipeline_model_parallel_size,
        create_gloo_process_groups=False,
    )
    first = parallel_state.is_pipeline_first_stage()
    last = parallel_state.is_pipeline_last_stage()
    with torch.device("meta"):
        model = GPTModel(
            config,
            get_gpt_decoder_block_spec(config, use_transformer_engine=False),
            vocab_size=number(given, "vocab_size"),
            max_sequence_length=number(given, "max_position_embeddings"),
            pre_process=first,
            post_process=last,
            share_embeddings_and_output_weights=(
                "untie_embeddings_and_output_weights" not in given
            ),
            position_embedding_type=given["position_embedding_type"],
            rotary_base=number(given, "rotary_base", 10000),
            rope_scaling="use_rope_scaling" in given,
        )
    told = {
        "layers": [layer.layer_number - 1 for layer in model.decoder.layers],
        "ends": [first, last],
        "parameters": sum(one.numel() for one in model.parameters()),
        "pipeline": parallel_state.get_pipeline_model_parallel_rank(),
        "replica": parallel_state.get_data_parallel_rank(),
        "tensor": parallel_state.get_tensor_model_parallel_rank(),
        "replicas": parallel_state.get_data_parallel_world_size(),
    }
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()
    return told


def validated(words, world):
    """Megatron-LM's own parser and rules, on a machine without GPUs."""
    import typing

    import typing_extensions

    typing.override = typing_extensions.override  # of Python 3.12
    card = types.SimpleNamespace(major=8, minor=0, total_memory=80 << 30, name="A100")
    torch.cuda.get_device_capability = lambda *device: (8, 0)
    torch.cuda.get_device_properties = lambda *device: card
    os.environ |= {"WORLD_SIZE": str(world), "RANK": "0"}
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    from megatron.training.arguments import parse_args, validate_args

    extra = "--data-path corpus --tokenizer-type NullTokenizer --train-iters 10"
    sys.argv = ["pretrain_gpt.py", *words, *extra.split()]
    args = parse_args()
    validate_args(args, {})
    return args


def main():
    text, world = Path("arguments.txt").read_text(), int(sys.argv[1])
    if "MEGATRON_LM" in os.environ:
        validated(shlex.split(text, comments=True), world)
    given = arguments(text)
    import megatron.core.tensor_parallel.random as random

    torch.cuda.Stream = lambda *words, **options: None

    random.get_cuda_rng_tracker = lambda *words, **options: Quiet()
    sys.stdout.write(json.dumps([built(given, rank, world) for rank in range(world)]))


if __name__ == "__main__":
    main()
