"""Logs and tables of nanotron: the reader finds what they were written from."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from logs_by_hand import human, nanotron
from reading_logs import NANOTRON_YAML, STEADY, TIMES, one, put, told
from rows_by_hand import as_csv

from hetopt.errors import InstanceError
from hetopt.formats.runs import read
from hetopt.formats.runs.nanotron import number as nanotron_number

NANO = {
    "layers": 24,
    "hidden": 2048,
    "heads": 32,
    "kv_heads": 8,
    "intermediate": 4096,
    "gated": True,
    "vocabulary": 50257,
    "gpus": 64,
    "dp": 16,
    "tp": 4,
    "pp": 1,
    "cp": 1,
    "mbs": 4,
    "ga": 16,
    "gbs": 1024,
    "seq": 4096,
    "zero": 1,
    "recompute": "none",
    "precision": "bf16, fp32 gradient accumulation",
}
PRINTED = """\
Config(general=GeneralArgs(project='debug', run='tiny'),
       parallelism=ParallelismArgs(dp=16,
                                   pp=1,
                                   tp=4,
                                   pp_engine=<nanotron.OneForwardOneBackward object>,
                                   tp_mode=<TensorParallelLinearMode.ALL_REDUCE: 1>,
                                   tp_linear_async_communication=True,
                                   expert_parallel_size=1),
       model=ModelArgs(model_config=LlamaConfig(hidden_size=2048,
                                                hidden_act='silu',
                                                intermediate_size=4096,
                                                num_attention_heads=32,
                                                num_hidden_layers=24,
                                                num_key_value_heads=8,
                                                vocab_size=50257),
                       dtype=torch.bfloat16),
       tokens=TokensArgs(sequence_length=4096, micro_batch_size=4,
                         batch_accumulation_per_replica=16),
       optimizer=OptimizerArgs(zero_stage=1, accumulate_grad_in_fp32=True))
Model Config:
LlamaConfig(hidden_size=2048, vocab_size=50260)"""


@pytest.mark.parametrize(
    "name", ["elapsed_time_per_iteration_ms", "time_per_iteration_ms"]
)
def test_a_log_of_nanotron_is_the_run_it_was_written_from(
    tmp_path: Path, name: str
) -> None:
    log = nanotron(TIMES, start=(4, 16, 1024, 4096), name=name, peak=(13153.25, 14332))
    yaml = put(tmp_path, "config.yaml", NANOTRON_YAML)
    run = one(put(tmp_path, "n.log", log), configs=[yaml])
    told(run, NANO)
    assert run.iteration_s == pytest.approx(STEADY / 1000, rel=0.005)
    assert run.peak_allocated_mib == pytest.approx(13153.25)
    assert run.peak_reserved_mib == pytest.approx(14332)
    printed = nanotron(TIMES, name=name, printed=PRINTED)
    told(one(put(tmp_path, "p.log", printed)), NANO)


def test_nanotrons_table_of_iterations_agrees_with_its_log(tmp_path: Path) -> None:
    yaml = put(tmp_path, "config.yaml", NANOTRON_YAML)
    log = put(tmp_path, "n.log", nanotron(TIMES, peak=(100.5, 200.5)))
    rows = [
        {
            "iteration": i,
            "elapsed_time_per_iteration_ms": float(f"{ms:.3g}"),
            "lm_loss": 10.5,
            "peak_allocated_MiB": 100.5,
            "peak_reserved_MiB": 200.5,
        }
        for i, ms in enumerate(TIMES)
    ]
    table = put(tmp_path, "log_metrics_1.csv", as_csv(rows))
    wanted, found = one(log, configs=[yaml]), one(table, configs=[yaml])
    assert found.iteration_s == pytest.approx(wanted.iteration_s)
    assert found.model_copy(update={"iteration_s": wanted.iteration_s}) == wanted
    rows[4]["elapsed_time_per_iteration_ms"] = "slow"
    put(tmp_path, "log_metrics_1.csv", as_csv(rows))
    with pytest.raises(InstanceError, match="line 6, column elapsed_time_per_iterat"):
        read(table)


def test_nanotrons_benchmarks_are_a_run_a_row(tmp_path: Path) -> None:
    row = {
        "job_id": 1,
        "name": "a",
        "nodes": 8,
        "seq_len": 4096,
        "mbs": 4,
        "batch_accum": 16,
        "gbs": 1024,
        "tok/s/gpu": "23000.50",
        "Mem Res (GB)": "14.50",
        "dp": 16,
        "pp": 1,
        "tp": 4,
        "cp": 1,
        "ep": 1,
        "recompute_layer": "False",
        "hidden_size": 2048,
        "hidden_act": "silu",
        "num_layers": 24,
        "num_heads": 32,
        "num_kv_heads": 8,
        "vocab_size": 50257,
        "dtype": "torch.bfloat16",
        "zero_stage": 1,
        "accumulate_grad_in_fp32": "True",
    }
    path = put(tmp_path, "b.csv", as_csv([row, row | {"mbs": 8, "batch_accum": 8}]))
    first, second = read(path)
    told(first, {k: v for k, v in NANO.items() if k != "intermediate"})
    assert first.tokens_per_s_gpu == pytest.approx(23000.5)
    assert first.peak_gib == pytest.approx(14.5)
    assert second.mbs == 8
    # As pandas writes whole numbers of columns that have a gap.
    pointed = {k: f"{v}.0" if isinstance(v, int) else v for k, v in row.items()}
    assert read(put(tmp_path, "b.csv", as_csv([pointed]))) == [first]
    put(tmp_path, "b.csv", as_csv([row | {"tok/s/gpu": "0.00"}]))
    with pytest.raises(InstanceError, match="column tok/s/gpu: found 0"):
        read(path)


@examples(40)
@given(st.floats(0.001, 1e11))
def test_nanotrons_numbers_are_read_to_three_digits(number: float) -> None:
    text = human(number)
    power = text[-1] if text[-1].isalpha() else ""
    digits = text.removesuffix(power)
    assert nanotron_number(digits, power) == pytest.approx(number, rel=0.0051)
