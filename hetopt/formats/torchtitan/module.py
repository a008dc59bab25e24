"""The Python that torchtitan imports: a plan, and a model of Llama 3's kind."""

MODULE = '''\
"""A plan of hetopt for torchtitan: `--module hetopt_plan --config plan`.

BASE_CONFIG names the function that makes the rest of the configuration, such as
torchtitan.models.llama3.config_registry:llama3_8b. Where the plan tells the model, that
of the configuration is given its shape.
"""

import os
import sys
from dataclasses import replace
from importlib import import_module

PLAN = @PLAN@


def plan():
    """The configuration that BASE_CONFIG names, with the plan put in."""
    module, _, name = os.environ["BASE_CONFIG"].partition(":")
    config = getattr(import_module(module), name)()
    if "model" in PLAN:
        _shape(config, PLAN["model"])
    else:
        _same_layers(config)
    if "weights" in PLAN:
        load = {"enable": True, "initial_load_path": PLAN["weights"]}
        put(config.checkpoint, {**load, "initial_load_in_hf": True})
        config.hf_assets_path = PLAN["weights"]
    _parallelism(config.parallelism)
    size, steps = PLAN["micro_batch_size"], PLAN["micro_batches"]
    length, batch = PLAN["sequence_length"], PLAN["global_batch"]
    stages = len(PLAN["module_fqns_per_model_part"])
    put(
        config.training,
        {
            "local_batch_size": size * (steps if stages > 1 else 1),
            "global_batch_size": batch,
            "seq_len": length,
        },
        {
            "num_tokens_per_microbatch_per_dp_rank": size * length,
            "num_tokens_per_train_step": batch * length,
            "max_context_length": length,
        },
    )
    if stages > 1 and hasattr(config.training, "disable_cuda_graphs"):
        config.training.disable_cuda_graphs = True
    _recomputation(config)
    return config


def _same_layers(config):
    """End where the configuration's model is not the planned one by its layers."""
    model = getattr(getattr(config, "model_spec", None), "model", None)
    layers = getattr(model, "layers", None)
    if layers is not None and len(layers) != PLAN["layers"]:
        sys.exit(
            f"BASE_CONFIG {os.environ['BASE_CONFIG']} has {len(layers)} layers, the "
            f"plan is of {PLAN['layers']}: name the configuration of its model"
        )


def _shape(config, told):
    """Give the model of a Llama 3 the planned shape."""
    from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
    from torchtitan.models.common.param_init import depth_scaled_std

    spec = config.model_spec
    model, dim, vocabulary = spec.model, told["dim"], told["vocab_size"]
    first = model.layers[0]
    scaling = {"scaling": "none", **told.get("rope_scaling", {})}
    rope = replace(
        first.attention.rope,
        dim=told["head_dim"],
        max_seq_len=told["max_seq_len"],
        theta=told["rope_theta"],
        **scaling,
    )

    def norm(config):
        return replace(config, normalized_shape=dim, eps=told["norm_eps"])

    def initial(std):
        from torch import nn

        return {
            "weight": lambda weight: nn.init.trunc_normal_(weight, std=std),
            "bias": nn.init.zeros_,
        }

    def layer(number):
        plain, deep = initial(0.02), initial(depth_scaled_std(0.02, number))
        return replace(
            first,
            attention_norm=norm(first.attention_norm),
            ffn_norm=norm(first.ffn_norm),
            attention=make_gqa_config(
                dim=dim,
                n_heads=told["n_heads"],
                n_kv_heads=told["n_kv_heads"],
                head_dim=told["head_dim"],
                wqkv_param_init=plain,
                wo_param_init=deep,
                inner_attention=first.attention.inner_attention,
                fuse_qkv=True,
                rope=rope,
            ),
            feed_forward=make_ffn_config(
                dim=dim,
                hidden_dim=told["hidden_dim"],
                w1_param_init=plain,
                w2w3_param_init=deep,
            ),
        )

    embedding = model.tok_embeddings
    spec.model = replace(
        model,
        dim=dim,
        vocab_size=vocabulary,
        enable_weight_tying=bool(told.get("tied")),
        tok_embeddings=replace(
            embedding, num_embeddings=vocabulary, embedding_dim=dim
        ),
        norm=norm(model.norm),
        lm_head=replace(model.lm_head, in_features=dim, out_features=vocabulary),
        layers=[layer(number) for number in range(told["n_layers"])],
    )
    spec.flavor = "planned"
    losses = [config.loss, getattr(config.loss, "loss_fn", None)]
    for loss in losses:
        if hasattr(loss, "global_vocab_size"):
            loss.global_vocab_size = vocabulary


def _recomputation(config):
    mode = PLAN["activation_checkpoint"]
    from torchtitan.distributed import activation_checkpoint as policies

    kinds = {"full": "FullAC", "selective": "SelectiveAC"}
    config.activation_checkpoint = (
        getattr(policies, kinds[mode]).Config() if mode in kinds else None
    )


def _parallelism(section):
    for name in ("pipeline", "tensor"):
        put(section, {f"{name}_parallel_degree": PLAN[f"{name}_parallel_degree"]})
    groups = PLAN.get("groups", 1)
    put(section, {"data_parallel_shard_degree": PLAN["replicas"] // groups})
    put(section, {"data_parallel_replicate_degree": groups})
    put(section, {"fsdp_reshard_after_forward": PLAN["reshard"]})
    parts = PLAN["module_fqns_per_model_part"]
    if len(parts) == 1:
        return
    from torchtitan.distributed import pipeline_parallel

    # A model of one layer in one part: the release's names of what is around it.
    generate = pipeline_parallel._generate_llm_fqn_per_model_part
    first, _, *last = generate(1, 1)[0]
    parts = [[first, *parts[0]], *parts[1:-1], [*parts[-1], *last]]
    put(section, {"pipeline_parallel_schedule": PLAN["schedule"]})
    put(section, {"module_fqns_per_model_part": parts})
    put(
        section,
        {"num_pp_microbatches": PLAN["micro_batches"]},
        {"pipeline_parallel_microbatch_size": PLAN["micro_batch_size"]},
    )


def put(section, *generations):
    """Set the fields of the first generation of names that the release has."""
    for fields in generations:
        if all(hasattr(section, name) for name in fields):
            for name, value in fields.items():
                setattr(section, name, value)
            return
    raise AttributeError(f"this torchtitan has none of {generations}")
'''
