"""Logs of Megatron-LM: the reader finds what the log was written from."""

import gzip
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from logs_by_hand import megatron
from reading_logs import ARGUMENTS, LAYOUT, LLAMA, STEADY, TIMES, one, put, told

from hetopt.errors import InstanceError
from hetopt.formats.runs import read

BATCH = {"mbs": 1, "gbs": 64, "ga": 32, "seq": 8192}


def test_a_log_of_megatron_is_the_run_it_was_written_from(tmp_path: Path) -> None:
    log = megatron(
        ARGUMENTS,
        TIMES,
        vocabulary=(128256, 128512),
        peaks=[(1000.25, 2000.5), (3000.75, 1500.0)],
    )
    run = one(put(tmp_path, "m.log", log), gpu="h100_80gb")
    told(run, LLAMA | LAYOUT | BATCH | {"zero": 1, "kind": "dense"})
    assert run.iteration_s == pytest.approx(STEADY / 1000)
    assert run.peak_allocated_mib == pytest.approx(3000.75)
    assert run.peak_reserved_mib == pytest.approx(2000.5)
    assert run.recompute == "full, block, 2 layers"
    assert run.precision == "bf16 mixed"
    assert run.overlap is not None
    assert "overlap_grad_reduce=True" in run.overlap
    assert run.framework == "Megatron-LM"


def test_the_vocabulary_is_that_of_the_arguments_unless_the_tokenizer_tells_it(
    tmp_path: Path,
) -> None:
    arguments = ARGUMENTS | {"vocab_size": 32000}
    log = megatron(arguments, TIMES)
    assert one(put(tmp_path, "m.log", log)).vocabulary == 32000
    # NullTokenizer has one token more than it is told.
    log = megatron(arguments, TIMES, vocabulary=(32001, 32128))
    assert one(put(tmp_path, "m.log", log)).vocabulary == 32001
    log = megatron(ARGUMENTS | {"vocab_size": None}, TIMES)
    assert one(put(tmp_path, "m.log", log)).vocabulary is None


def test_ranks_and_a_restart_do_not_change_what_megatron_says(tmp_path: Path) -> None:
    log = megatron(ARGUMENTS, TIMES)
    plain = one(put(tmp_path, "plain.log", log))
    for prefix in (
        *("[default0]:", "[rank7]:", "12: ", "  3: ", "[1,0]<stdout>:", "node-7: "),
        "node-7: [default3]:",
        "\x1b[36m(Worker(rank_0) pid=12, ip=10.0.0.3)\x1b[0m ",
        "[pod/run-master-0/pytorch] ",
        "trainer-1  | ",
        "2026-03-01T10:00:00.123Z [rank0]:",
        "2026-03-01 10:00:00,123 ",
    ):
        marked = "\r\n".join(prefix + line for line in log.split("\n"))
        assert one(put(tmp_path, "marked.log", marked)) == plain
    again = one(put(tmp_path, "again.log", log + log))
    assert again.iteration_s == pytest.approx(median((TIMES * 2)[3:]) / 1000)


def test_iterations_of_a_smaller_batch_do_not_count(tmp_path: Path) -> None:
    log = megatron(ARGUMENTS, [300.0] * 9 + TIMES, batches=[16] * 9 + [64] * len(TIMES))
    run = one(put(tmp_path, "m.log", log))
    assert run.iteration_s == pytest.approx(STEADY / 1000)
    told(run, BATCH)
    ramp = megatron(ARGUMENTS, TIMES, batches=[16] * len(TIMES))
    told(one(put(tmp_path, "ramp.log", ramp)), {"gbs": 16, "ga": 8})


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"recompute_granularity": None}, {"recompute": "none"}),
        (
            {"recompute_method": "uniform", "recompute_num_layers": 1},
            {"recompute": "full"},
        ),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['moe_act']"},
            {"recompute": "selective: moe_act"},
        ),
        ({"use_distributed_optimizer": False}, {"zero": 0}),
        (
            {
                "use_megatron_fsdp": True,
                "data_parallel_sharding_strategy": "optim_grads_params",
            },
            {"zero": 3},
        ),
        ({"deepspeed": True, "zero_stage": 2}, {"zero": 2}),
        ({"bf16": False, "fp16": True}, {"precision": "fp16 mixed"}),
        ({"bf16": False}, {"precision": "fp32"}),
        (
            {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
            {"precision": "fp8 current scaling"},
        ),
        ({"fp8": "e4m3", "fp8_recipe": "mxfp8"}, {"precision": "mxfp8"}),
        ({"group_query_attention": False, "num_query_groups": 1}, {"kv_heads": 32}),
        (
            {"num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 1024},
            {"kind": "moe", "experts": 8, "experts_per_token": 2, "shared_experts": 0},
        ),
        (
            {
                "decoder_first_pipeline_num_layers": 5,
                "decoder_last_pipeline_num_layers": 5,
            },
            {"stage_layers": (5, 11, 11, 5)},
        ),
        ({"decoder_first_pipeline_num_layers": 2}, {"stage_layers": (2, 10, 10, 10)}),
        ({"expert_tensor_parallel_size": 2}, {"etp": 2}),
        ({"accumulate_allreduce_grads_in_fp32": True}, {"gradient_bits": 32}),
        ({"accumulate_allreduce_grads_in_fp32": False}, {"gradient_bits": 16}),
        ({"untie_embeddings_and_output_weights": True}, {"tied": False}),
        ({"untie_embeddings_and_output_weights": False}, {"tied": True}),
        ({"attention_backend": "AttnBackend.unfused"}, {"attention": "unfused"}),
        ({"attention_backend": "AttnBackend.auto"}, {"attention": None}),
        ({"transformer_impl": "local"}, {"attention": "unfused"}),
        (
            {
                "pipeline_model_parallel_layout": "Ett|t*3|(tt|)*2t*4|t*5|t*6|t*7,tttL",
                "virtual_pipeline_model_parallel_size": 2,
            },
            {"stage_layers": (2 + 4, 3 + 5, 2 + 6, 2 + 10)},
        ),
        ({"window_size": (4095, 0)}, {"shape_notes": "sliding window of 4096"}),
        (
            {"num_experts": 8, "moe_layer_freq": "([0]*3+[1]*29)"},
            {"shape_notes": "first 3 layers dense"},
        ),
        (
            {"num_experts": 8, "moe_layer_freq": [0, 1, 1, 1]},
            {"shape_notes": "first 1 layers dense"},
        ),
        (
            {
                **{"hybrid_override_pattern": "M-M*", "mamba_state_dim": 64},
                **{"mamba_head_dim": 64, "mamba_num_heads": None},
            },
            {"shape_notes": "hybrid pattern M-M*; Mamba 128 heads x 64, state 64"},
        ),
    ],
)
def test_settings_of_megatron_in_our_words(
    tmp_path: Path, changes: dict[str, Any], fields: dict[str, Any]
) -> None:
    told(one(put(tmp_path, "m.log", megatron(ARGUMENTS | changes, TIMES))), fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"perform_rl_step": True},
        {"mtp_num_layers": 1},
        {"linear_attention_freq": 4},
        {"freeze_LM": True},
        {"hybrid_layer_pattern": "MG*"},
    ],
)
def test_a_run_without_words_for_it_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = put(tmp_path, "m.log", megatron(ARGUMENTS | changes, TIMES))
    with pytest.raises(InstanceError) as caught:
        read(path)
    assert next(iter(changes)) in str(caught.value)
    assert "not supported when hetopt reads runs" in str(caught.value)


def test_a_packed_log_is_the_run_of_its_text(tmp_path: Path) -> None:
    log = megatron(ARGUMENTS, TIMES)
    packed = tmp_path / "m.log.gz"
    packed.write_bytes(gzip.compress(log.encode()))
    assert one(packed) == one(put(tmp_path, "m.log", log))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(InstanceError, match="found a damaged file"):
        read(packed)
    packed.write_bytes(b"no gzip")
    with pytest.raises(InstanceError, match="found a damaged file"):
        read(packed)


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "m.log", megatron(ARGUMENTS | {"num_layers": "many"}, TIMES))
    with pytest.raises(InstanceError, match=r"layers \(line 2\): found \"many\", exp"):
        read(path)
