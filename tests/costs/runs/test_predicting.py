"""Every row has an answer: seconds inside an interval, or why there are none."""

from random import Random

import pytest
from synthetic_runs import measured, row

from hetopt.costs.constants import ADDED, Stated, Table, plain, shipped
from hetopt.costs.runs.prediction import fitted_on, predictions, summaries
from hetopt.costs.runs.rows import Run


def test_every_row_is_answered_in_order() -> None:
    random = Random(3)
    rows = [row(random) for _ in range(20)]
    rows[4]["layers"] = None
    rows[9]["gpu"] = "abacus"
    rows[11]["mbs"] = None
    rows[13]["layout_consistent"] = False
    found = predictions([Run.model_validate(fields) for fields in rows])
    assert [one.row for one in found] == list(range(20))
    silent = {one.row for one in found if one.not_modelled}
    assert silent == {4, 9, 11, 13}
    for one in found:
        assert (one.iteration_s is None) is (one.row in silent)
        if one.iteration_s is not None:
            assert one.high_s is not None
            assert 0 < one.low_s < one.iteration_s < one.high_s
            assert sum(one.terms.values()) == pytest.approx(one.iteration_s)


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 7},
        {"hidden": 2},
        {"pp": 64, "gpus": 64, "dp": 1, "tp": 1},
        {"ep": 64, "experts": 8, "experts_per_token": 2, "moe_intermediate": 64},
        {"experts": 8, "experts_per_token": 2},
        {"shape_notes": "hybrid pattern ME*"},
        {"stage_layers": [1, 2, 3]},
        {"precision": None},
        {"precision": "ternary"},
    ],
)
def test_rows_that_contradict_themselves_say_so(fields: dict[str, object]) -> None:
    known = {**row(Random(2)), "experts": None, "moe_intermediate": None}
    one = predictions([Run.model_validate({**known, **fields})])[0]
    assert one.not_modelled


def test_what_nothing_is_known_of_has_a_wider_interval() -> None:
    fields = {**row(Random(2)), "experts": None, "gpu": "a100_80gb"}

    def width(**more: object) -> float:
        one = predictions([Run.model_validate({**fields, **more})])[0]
        assert one.low_s
        assert one.high_s
        return one.high_s / one.low_s

    known = width(framework="Megatron-LM")
    assert known < width(framework="something new")
    assert known < width(framework="Megatron-LM", gpu="rtx5090")


def test_errors_are_those_of_the_rows() -> None:
    random = Random(8)
    runs = measured([row(random) for _ in range(9)], plain(shipped.constants()))
    twice = [run.model_copy(update={"iteration_s": (run.iteration_s or 0) / 2,
                                    "set": "twice"}) for run in runs[:4]]  # fmt: skip
    everything = runs + twice
    found = summaries(everything, predictions(everything))
    assert found["synthetic"].mean_error == pytest.approx(0, abs=1e-9)
    assert found["twice"].bias == pytest.approx(1)
    assert found["all"].mean_error == pytest.approx(4 / 13)
    assert found["all"].rows == found["all"].predicted == 13


def test_intervals_shrink_with_the_runs_of_a_system() -> None:
    """One run of a model narrows that model's interval, and another's less."""
    random = Random(11)
    fields = {**row(random), "experts": None, "model": "large", "framework": "new"}
    runs = measured(
        [{**fields, "mbs": b, "gbs": b * fields["dp"] * 4} for b in (1, 2, 4)],
        plain(shipped.constants()),
    )

    def width(run: Run, told: int) -> float:
        known = fitted_on(runs[:told]) if told else None
        (one,) = predictions([run], known)
        assert one.low_s
        assert one.high_s
        return one.high_s / one.low_s

    other = runs[2].model_copy(update={"model": "another"})
    widths = [width(runs[2], told) for told in range(3)]
    assert widths[0] > widths[1] > widths[2]
    assert width(other, 2) >= widths[2]
    assert width(other, 2) <= width(other, 0) * (1 + 1e-9)


@pytest.mark.parametrize("name", sorted(ADDED))
def test_older_constants_lack_a_term_for_plans_and_for_runs_alike(name: str) -> None:
    known = plain(shipped.constants())
    assert known[name] > 0
    old = {key: value for key, value in known.items() if key.split("@")[0] != name}
    for values in (known, old):
        ours = Table(values)(name, "H100-80GB-SXM5")
        assert ours == pytest.approx(Stated(values)(name, "H100-80GB-SXM5"))
        assert bool(ours) is (values is known)


def test_equal_nodes_are_counted_and_unlike_ones_are_a_plan() -> None:
    one = {"gpus": 16, "tp": 8, "dp": 2, "pp": 1, "mbs": 1, "gbs": 16, "ep": None}
    one = {**row(Random(2)), **one, "experts": None, "kind": "dense"}
    nodes = [{"gpu": "a100_80gb", "gpus": 8}, {"gpu": "a100_80gb", "gpus": 8}]
    counted = {**one, "gpu": "a100_80gb", "nodes": 2}
    alike, same, mixed = predictions(
        [
            Run.model_validate(fields)
            for fields in (
                {**one, "nodes": nodes, "gpu": None},
                counted,
                {**one, "nodes": [nodes[0], {"gpu": "h100_80gb", "gpus": 8}]},
            )
        ]
    )
    assert alike.iteration_s == same.iteration_s is not None
    assert "plan missing" in (mixed.not_modelled or "")
