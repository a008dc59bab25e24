"""The records: frozen, strict, and equal exactly when their content is."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hetopt.files import load_instance
from hetopt.schema import GpuType, Instance, ModelSpec, exact


def spec(**changes: object) -> ModelSpec:
    fields: dict[str, object] = {
        "name": "m",
        "layers": 3,
        "hidden": 64,
        "heads": 4,
        "vocabulary": 100,
    }
    return ModelSpec.model_validate(fields | changes)


@given(st.decimals(min_value=0, max_value=10**6, places=4))
def test_a_number_is_the_decimal_that_its_file_shows(number: object) -> None:
    assert exact(float(str(number))) == Fraction(str(number))


def test_records_are_frozen_and_refuse_other_types() -> None:
    gpu = GpuType(peak_tflops=1, memory_gib=1)
    with pytest.raises(ValidationError):
        gpu.peak_tflops = 2  # type: ignore[misc]
    with pytest.raises(ValidationError):
        GpuType.model_validate({"peak_tflops": "1", "memory_gib": 1})
    with pytest.raises(ValidationError):
        GpuType.model_validate({"peak_tflops": 1, "memory_gib": 1, "colour": "red"})


def test_the_digest_is_that_of_the_content() -> None:
    one, two = load_instance("tiny/two-nodes"), load_instance("tiny/two-nodes-head")
    assert one.digest.startswith("sha256:")
    assert one.digest == Instance.model_validate_json(one.model_dump_json()).digest
    assert one.digest != two.digest


def test_a_copy_with_changes_keeps_nothing_that_was_derived_before() -> None:
    one = load_instance("tiny/two-nodes")
    before = one.digest
    changed = one.model_copy(update={"name": "other"})
    assert (
        changed.digest == Instance.model_validate_json(changed.model_dump_json()).digest
    )
    assert changed.digest != before
    assert one.digest == before
    assert one.model.parameters == (12 * 256**2,) * 4
    assert one.model.model_copy(update={"hidden": 8}).parameters == (12 * 8**2,) * 4


def test_links_are_found_in_both_directions_and_fall_back() -> None:
    cluster = load_instance("tiny/islands").planned_cluster
    fast, slow = Fraction(5 * 10**9), Fraction(10**8)
    assert cluster.link("node0", "node1") == (0, fast)
    assert cluster.link("node3", "node2") == (Fraction(2, 10**6), fast)
    assert cluster.link("node1", "node2") == (0, slow)
    assert cluster.link("node0", "node0") == (0, 20 * 10**9)


def test_parameters_follow_the_first_of_the_four_ways_that_is_given() -> None:
    h = 64
    assert spec().parameters == (12 * h * h,) * 3
    assert spec(parameters_per_layer=7).parameters == (7,) * 3
    assert spec(layer_parameters=(1, 2, 3), gated=True).parameters == (1, 2, 3)
    attention, norms = 4 * h * h, 2 * h
    assert spec(intermediate=100).parameters == (attention + 2 * h * 100 + norms,) * 3
    assert (
        spec(gated=True, intermediate=100).parameters
        == (attention + 3 * h * 100 + norms,) * 3
    )


def test_listed_layers_compute_with_all_their_parameters_unless_told() -> None:
    assert spec(layer_parameters=(1, 2, 3)).active_parameters == (1, 2, 3)
    told = spec(layer_parameters=(4, 5, 6), active_layer_parameters=(1, 2, 3))
    assert told.parameters == (4, 5, 6)
    assert told.active_parameters == (1, 2, 3)
