"""The machine of a run: links that no switch joins, networks of collections of runs."""

from typing import Any

import pytest

from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas.machine import Machine
from hetopt.costs.runs.description import NotModelled, described
from hetopt.costs.runs.rows import Run

ROW: dict[str, Any] = {
    "gpus": 8, "layers": 24, "hidden": 2048, "heads": 16, "vocabulary": 50257,
    "seq": 2048, "dp": 8, "tp": 1, "pp": 1, "mbs": 1, "gbs": 64, "precision": "fp16",
}  # fmt: skip


def machine(gpu: str, **words: Any) -> Machine:
    return described(Run.model_validate({**ROW, "gpu": gpu, **words})).machine


@pytest.mark.parametrize(
    ("gpu", "words", "others"),
    [
        *((gpu, {}, 1) for gpu in ("a100_80gb", "h100_80gb", "v100-32gb-sxm3")),
        *(("v100_32gb", {}, 4), ("mi300x", {}, 7), ("v100_32gb", {"nodes": 2}, 3)),
        ("V100-16GB-PCIe", {}, 1),  # a bus joins all alike, as switches do
    ],
)
def test_links_to_gpus_outside_of_a_ring_are_of_no_use_to_it(
    gpu: str, words: dict[str, int], others: int
) -> None:
    one = machine(gpu, **words)
    for t in (2, 4, one.domain):
        share = one.ring_bytes_per_s(t, 1) / one.link_bytes_per_s
        assert share == pytest.approx(min(1, (t - 1) / others))


def test_a_rate_that_is_told_is_what_groups_reach() -> None:
    one = machine("v100_32gb", intra_gbytes_per_s=50)
    assert one.ring_bytes_per_s(2, 1) == pytest.approx(50e9)


def test_the_cluster_of_a_collection_has_its_own_network() -> None:
    usual = machine("a100_80gb")
    one = machine("a100_80gb", set="vtrain-a100-multi")
    assert one.adapters * one.adapter_bytes_per_s == pytest.approx(100e9)
    assert usual.adapters * usual.adapter_bytes_per_s == pytest.approx(200e9)


def test_a_run_within_a_node_needs_no_network() -> None:
    words = {"gpu": "gh200_144gb", "gpus": 2, "dp": 2, "precision": "bf16"}
    one, told = (
        described(Run.model_validate(ROW | words | more))
        for more in ({}, {"network": "100 Gbps"})
    )
    table = Table(plain(shipped.constants()))
    assert one.terms(table) == told.terms(table)
    with pytest.raises(NotModelled, match="give network"):
        described(Run.model_validate(ROW | words | {"gpus": 4, "dp": 4}))


@pytest.mark.parametrize(
    ("name", "degrees"), [("dp", {"dp": 8}), ("tp", {"dp": 1, "tp": 8})]
)
def test_what_is_known_of_a_machine_by_name_is_of_it_alone(
    name: str, degrees: dict[str, int]
) -> None:
    rows = [
        described(Run.model_validate({**ROW, "gpu": "a100_80gb", "set": of} | degrees))
        for of in ("bigscience-a100", "vtrain-a100-multi")
    ]
    plain_values = plain(shipped.constants())
    slower = {**plain_values, f"{name}@jean-zay-a100": 9.0}
    ratios = [
        sum(row.terms(Table(slower)).values())
        / sum(row.terms(Table(plain_values)).values())
        for row in rows
    ]
    assert ratios[0] > 1
    assert ratios[1] == pytest.approx(1)
