"""Bars of times and of memory: every part that may be drawn has a colour and a name."""

import pytest

from hetopt import api
from hetopt.api import boxes, scheduling
from hetopt.explaining import times, weights
from hetopt.report import explanation, stacked, writers


@pytest.mark.parametrize("part", [*times.PARTS, *weights.PARTS])
def test_every_part_of_an_explanation_has_a_colour(part: str) -> None:
    assert part in stacked.COLOURS
    assert stacked.plain(part)


def test_a_plan_with_adapters_has_a_page() -> None:
    shape = {"sequence_length": 512, "global_batch": 4, "micro_batch_sizes": [1]}
    spec = scheduling.load_model("gpt2")
    cards = [boxes.cards_of("2xRTX4090")]
    data, _ = boxes.instance_of(spec, cards, shape, ["finetune=lora"])
    found = api.explain(api.plan(data, "megatron"), limits=0)
    page = writers.page(explanation.sheet(found))
    assert "LoRA" in page
