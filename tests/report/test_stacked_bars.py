"""Bars of times and of memory: every part that may be drawn has a colour and a name."""

from collections.abc import Sequence

import pytest

from hetopt import api
from hetopt.api import boxes, scheduling
from hetopt.explaining import times, weights
from hetopt.report import explanation, figures, stacked, writers


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


@pytest.mark.parametrize("width", [figures.WIDTH, figures.NARROW])
@pytest.mark.parametrize("parts", [times.PARTS, weights.PARTS])
def test_names_of_parts_end_where_the_picture_ends(
    parts: Sequence[str], width: float
) -> None:
    bar = stacked.Bar("all GPUs", dict.fromkeys(parts, 1), len(parts))
    names = dict.fromkeys(parts, "")
    panel = stacked.Panel("time, s", [bar], names, [1.0], "iteration")
    figure = stacked.picture([panel], width)
    figure.draw_without_rendering()
    (part,) = figure.subfigs
    (legend,) = part.legends
    assert len(legend.get_texts()) == len(parts)
    for text in legend.get_texts():
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, text.get_text()
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, text.get_text()
