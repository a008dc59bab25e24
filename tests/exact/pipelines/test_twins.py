"""Without the compiled core the engine goes down the same tree and says the same."""

from random import Random

import drawing
import pytest
from soaking import pipelines as soaked

import hetopt
from hetopt.exact.pipelines import kernels
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.problems.training_plan.settings import variants


def _tree(instance, time_us):
    """Whether a time is refuted in a few boxes; each box with the prices for it."""
    bound = PipelineBound(instance, 2 * time_us, time_us // 4)
    refutation, steps = bound.refute(time_us), 0
    while steps < 8 and refutation.step():
        steps += 1
    boxes = [(box.sync_high_us, box.replicas_low, box.proof) for box in bound.boxes]
    return refutation.proved, refutation.failed, steps, boxes


def _agreed(instance, time_us, patch):
    found = _tree(instance, time_us)
    with patch.context() as twins:
        twins.setattr(kernels, "is_compiled", lambda: False)
        assert _tree(instance, time_us) == found
    return found


@pytest.mark.parametrize("time_us", [10_000, 19_999, 20_000])
def test_the_worked_example_is_refuted_alike_by_twins(time_us, monkeypatch):
    (instance,) = variants(hetopt.load("tiny/worked-example"))
    proved, *_ = _agreed(instance, time_us, monkeypatch)
    assert proved == (time_us == 10_000)


def test_drawn_instances_are_refuted_alike_by_twins(monkeypatch):
    said = set()
    for seed in range(4):
        data = soaked.draw(Random(seed))
        for instance in variants(drawing.read(data["instance"]))[:1]:
            for time_us in (1_000, 100_000):
                proved, *_ = _agreed(instance, time_us, monkeypatch)
                said.add(proved)
    assert said == {True, False}
