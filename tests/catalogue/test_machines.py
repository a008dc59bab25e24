"""Machines: each card has a usual one, whose links are the card's."""

import pytest
from pydantic import ValidationError

from hetopt import catalogue
from hetopt.catalogue import Machine
from hetopt.errors import UnknownName

GPUS, MACHINES = catalogue.gpus(), catalogue.machines()
ALL = [one for made in MACHINES.values() for one in made]


@pytest.mark.parametrize("name", GPUS)
def test_a_card_has_one_usual_machine(name: str) -> None:
    assert sum(one.card == name and not one.named for one in ALL) == 1
    found = catalogue.machine(name)
    assert found in MACHINES[found.name]
    for spelling in (*GPUS[name].own_names, *GPUS[name].aliases):
        assert catalogue.machine(spelling.lower()) == found


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.name}-{one.card}")
def test_a_machine_is_plausible_and_says_where_it_is_from(one: Machine) -> None:
    assert any(letter.isdigit() for letter in one.source)
    card = GPUS[one.card]
    # The rate within is of all links of the card, or of its bus where it is alone.
    if one.domain > 1:
        assert one.link_gbytes_per_s == card.nvlinks_gbytes_per_s
    else:
        assert one.link_gbytes_per_s == card.pcie_gbytes_per_s
    # Its links are faster than its share of the adapters.
    if one.adapters is not None and one.adapter_gbytes_per_s is not None:
        share = one.adapters * one.adapter_gbytes_per_s / one.gpus
        assert one.link_gbytes_per_s > share / 2
    assert one.domain % one.gpus == 0 or one.gpus % one.domain == 0


@pytest.mark.parametrize(
    ("name", "gpus", "domain", "adapters", "rate"),
    [
        ("A100-40GB-SXM4", 8, 8, 8, 25),
        ("h100_80gb", 8, 8, 8, 50),
        ("B200", 8, 8, 8, 50),
        ("gb200", 4, 72, 4, 50),
        ("gb300", 4, 72, 4, 100),
        ("mi300x", 8, 8, 8, 50),
        ("GH200", 4, 4, 4, 25),
        ("jean-zay-v100", 4, 4, 4, 12.5),
        ("jean_zay_a100", 8, 8, 4, 12.5),
        ("A100-80GB-PCIe", 8, 1, 1, 25),
        ("H200-NVL", 8, 4, 4, 50),
    ],
)
def test_machines_are_those_that_are_sold(
    name: str, gpus: int, domain: int, adapters: int, rate: float
) -> None:
    found = catalogue.machine(name)
    assert (found.gpus, found.domain) == (gpus, domain)
    assert (found.adapters, found.adapter_gbytes_per_s) == (adapters, rate)


def test_what_is_not_known_of_a_machine_is_absent() -> None:
    found = catalogue.machine("GH200-144GB")
    assert found.adapters is None
    assert found.adapter_gbytes_per_s is None
    with pytest.raises(ValidationError, match="give both"):
        Machine(**{**found.model_dump(), "adapters": 2})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("H100", "H100-80GB-PCIe, H100-80GB-SXM5"), ("Z9", "A10, A100-40GB-PCIe")],
)
def test_a_name_of_no_card_or_of_several_has_no_machine(
    name: str, expected: str
) -> None:
    with pytest.raises(UnknownName, match=expected):
        catalogue.machine(name)
