"""What tables of stages cannot carry is left out of proofs, and never a crash."""

import pytest

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.capability import MOST_TABLED, carries
from hetopt.errors import Unsupported
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.training_plan.refuting import Clock, Tightening, Times
from hetopt.schema import Instance
from hetopt.stages import StageTable


def deep(layers: int) -> Instance:
    """Return a cluster of the library with a model of so many layers."""
    instance = hetopt.load("hexiscale/setting-1-llama2-7b")
    model = instance.model.model_copy(update={"layers": layers})
    return instance.model_copy(update={"model": model})


def test_tables_of_stages_carry_as_many_layers_as_they_say() -> None:
    assert carries("proof pipelines", deep(MOST_TABLED))
    assert StageTable(deep(MOST_TABLED)).layers == MOST_TABLED
    assert not carries("proof pipelines", deep(MOST_TABLED + 1))
    with pytest.raises(Unsupported, match=f"layers: {MOST_TABLED + 1}"):
        StageTable(deep(MOST_TABLED + 1))


def test_nothing_is_refuted_of_models_with_more_layers() -> None:
    instance = deep(MOST_TABLED + 1)
    assert Tightening(instance, Times(10**8, 10**9), Clock(0.0)).ended


def test_arcs_that_take_too_much_memory_refute_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = deep(8)
    least = int(training_plan_bound(instance).value)
    monkeypatch.setattr("hetopt.exact.pipelines.bound._MOST_BYTES", 0)
    bound = PipelineBound(instance, 2 * least, least)
    refutation = bound.refute(least + 1)
    while refutation.step():
        pass
    assert not refutation.proved
