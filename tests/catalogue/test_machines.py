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
