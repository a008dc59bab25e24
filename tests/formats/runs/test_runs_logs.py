"""Logs of all trainers: what iterations took, and damage."""

from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest
from disk import put
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from logs_by_hand import deepspeed, megatron, torchtitan

from hetopt.errors import InstanceError
from hetopt.formats.runs import logs, measured
from hetopt.formats.runs.source import Measured, Size, Source

SIZE = Size(sequences=8, length=1024, gpus=8)
ARGUMENTS = {
    "world_size": 8,
    "data_parallel_size": 8,
    "num_attention_heads": 8,
    "global_batch_size": 8,
}


def read(text: str) -> Measured | None:
    return measured(Source(Path("train.log"), held=text), SIZE)


@examples(60)
@given(st.lists(st.integers(500, 5000), max_size=60))
def test_the_speed_is_the_median_after_warm_up(readings: list[int]) -> None:
    found = read(megatron(ARGUMENTS, readings))
    left = readings[max(3, (len(readings) + 9) // 10) :]
    if not left:
        assert found is None
        return
    assert found.seconds == pytest.approx(median(left) / 1000)
    assert (found.counted, found.left_out) == (len(left), len(readings) - len(left))


def test_iterations_of_the_last_batch_count() -> None:
    times, sizes = [100.0] * 5 + [1000.0] * 5, [4] * 5 + [8] * 5
    found = read(megatron(ARGUMENTS, times, batches=sizes))
    assert (found.seconds, found.counted) == (pytest.approx(1), 2)
    with pytest.raises(InstanceError, match="found iterations of 4 sequences, exp"):
        read(megatron(ARGUMENTS, times, batches=[4] * 10))


@pytest.mark.parametrize("words", ["rates", "pipeline", "breakdown"])
def test_deepspeed_times_iterations_in_three_ways(words: str) -> None:
    batch = {"train_batch_size": 8}
    found = read(deepspeed(batch, batch, [2.5] * 9, words=words))
    assert found.seconds == pytest.approx(2.5, rel=1e-3)


@examples(40)
@given(st.data())
def test_a_damaged_log_is_read_or_refused(data: st.DataObject) -> None:
    logs_ = [
        megatron(ARGUMENTS, [5000] * 6),
        torchtitan({"pp": 1, "dp_shard": 8}, [5000] * 6, config={"training": {}}),
        deepspeed({"train_batch_size": 8}, {"bf16": {}}, [1.0] * 6),
    ]
    log = data.draw(st.sampled_from(logs_))
    places = st.integers(0, len(log))
    for _ in range(data.draw(st.integers(1, 4))):
        start, length = data.draw(places), data.draw(st.integers(0, 30))
        junk = data.draw(st.sampled_from(["", "-1", "0", "nan", "1e308", "{}", "}\n"]))
        log = log[:start] + junk + log[start + length :]
    with TemporaryDirectory() as folder:
        source = Source(put(Path(folder) / "damaged.log", log))
        with suppress(InstanceError):
            found = measured(source, SIZE)
            assert found is None or found.seconds > 0
        with suppress(InstanceError):
            logs.printed_config(source)
        assert isinstance(logs.printed_arguments(source), dict)
