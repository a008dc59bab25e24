"""Data sheets: every spelling means one card, and instances keep their figures."""

import re

import pytest
from pydantic import ValidationError

from hetopt import catalogue
from hetopt.catalogue import Gpu
from hetopt.errors import InstanceError, UnknownName
from hetopt.scheduling.catalogue import sheet
from hetopt.schema import GpuType

GPUS = catalogue.gpus()
FAMILIES = ("clusters", "grouping", "frenzy", "market", "hexiscale")
FEWER_BITS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


@pytest.mark.parametrize("name", GPUS)
def test_every_spelling_of_a_card_means_it_alone(name: str) -> None:
    card = GPUS[name]
    assert catalogue.gpu(name, "here") == card
    for spelling in (*card.own_names, *card.aliases):
        for written in (spelling, spelling.lower().replace(" ", "_"), f" {spelling}"):
            assert catalogue.gpu(written, "here").name == name
        assert sheet(spelling).card == name  # as `fit` reads it
    if card.beyond_skypilot is None:
        asked = catalogue.skypilot_gpus()[card.accelerator_name]
        assert asked.memory_gib == card.memory_gib


def test_no_spelling_is_written_at_two_cards() -> None:
    for spellings in (
        [s for card in GPUS.values() for s in (*card.own_names, *card.aliases)],
        [s for card in GPUS.values() for s in card.skypilot],
    ):
        assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("card", GPUS.values(), ids=GPUS)
def test_a_data_sheet_is_plausible_and_says_where_it_is_from(card: Gpu) -> None:
    assert any(letter.isdigit() for letter in card.source)
    assert GpuType(peak_tflops=card.peak_tflops, memory_gib=card.memory_gib)
    assert card.tflops.get("bf16", card.peak_tflops) == card.peak_tflops
    # Fewer bits are never slower.
    rates = [card.tflops[p] for p in FEWER_BITS if p in card.tflops]
    assert rates == sorted(rates)
    assert card.tflops.get("mxfp8") in (None, card.tflops.get("fp8"))
    assert (card.nvlinks > 0) == (card.nvlink_gbytes_per_s is not None)
    assert card.link_gbytes_per_s >= (card.pcie_gbytes_per_s or 0)
    assert card.memory_gbytes_per_s > card.link_gbytes_per_s
    assert {"fp16", "bf16"} & set(card.tflops)


@pytest.mark.parametrize("card", GPUS.values(), ids=GPUS)
def test_every_figure_of_a_card_says_where_it_is_from(card: Gpu) -> None:
    given = card.model_dump(exclude_none=True, exclude_defaults=True)
    beside = {"name", "product", "maker", "generation", "aliases", "skypilot"}
    beside |= {"accelerator", "beyond_skypilot", "nvlink", "bridged"}
    beside |= {"source", "sources", "link_sources"}
    assert set(card.figures) == set(given) - beside
    assert all(len(source) > 10 for source in card.figures.values())


def test_a_source_of_no_figure_is_refused() -> None:
    card = GPUS["T4"].model_dump() | {"sources": {"wats": "a data sheet"}}
    with pytest.raises(ValidationError, match="T4: sources has 'wats': no such figure"):
        Gpu.model_validate(card, strict=False)


def test_a_name_that_means_several_cards_is_asked_about() -> None:
    with pytest.raises(InstanceError, match=r"A100-40GB-PCIe.*A100-80GB-SXM4"):
        catalogue.gpu("A100", "hosts: line 3")
    with pytest.raises(
        InstanceError, match="expected one of RTX6000-Turing, RTX6000-A"
    ):
        catalogue.gpu("rtx6000", "hosts: line 3")
    with pytest.raises(InstanceError, match=r"expected one of.*H100-80GB-SXM5"):
        catalogue.gpu("H100-80GB-SMX", "hosts: line 3")
    assert catalogue.near("p100 16gb") == ["P100-16GB-PCIe", "P100-16GB-SXM2"]


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("4090 24g", "RTX4090"),
        ("24GiB RTX 4090", "RTX4090"),
        ("h100 sxm5 80gb", "H100-80GB-SXM5"),
        ("A800 80GB SXM", "A800-80GB-SXM4"),
        ("6000 ada", "RTX6000-Ada"),
        ("2080 Ti", "RTX2080Ti"),
        ("V100 PCIe 32g", "V100-32GB-PCIe"),
        # The short name and the memory, where one card alone has both.
        ("h100_94gb", "H100-94GB-NVL"),
        ("l40s_48gb", "L40S"),
        ("RTX6000-48GB", "RTX6000-Ada"),
        # What SkyPilot alone calls so.
        ("a100_80gb", "A100-80GB-SXM4"),
        ("v100_32gb", "V100-32GB-SXM2"),
        ("B300", "B300-270GB-SXM"),
        ("Gaudi2", "Gaudi2-96GB"),
    ],
)
def test_a_card_is_found_by_other_words_than_its_names(name: str, card: str) -> None:
    found = catalogue.find_gpu(name)
    assert found.name == card


@pytest.mark.parametrize(
    "name",
    [
        *("A100", "V100", "H100", "p100 16gb"),  # of several
        *("Z9", "b200 (power limited)", "4090 48g", "24gb", "H800 NVL"),
        *("RTX 4090 Laptop GPU", "Tesla K80", "L2"),
    ],
)
def test_a_name_of_several_cards_or_of_none_is_no_card(name: str) -> None:
    assert catalogue.find_gpu(name) is None
    with pytest.raises(InstanceError, match=re.escape(name)):
        catalogue.gpu(name, "here")
    with pytest.raises(UnknownName):
        sheet(name)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_says_which_card_each_of_its_names_is(family: str) -> None:
    for variant in catalogue.family(family).values():
        card = GPUS[variant.card]
        # A figure of its own is a rounding of the sheet's, or a printed slip.
        assert card.peak_tflops / 2 < variant.tflops < 2 * card.peak_tflops
        assert variant.memory_gib == card.memory_gib


def test_a_model_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnknownName, match=r"unknown model 'llama-9'.*llama-7b"):
        catalogue.model("llama-9")
    assert catalogue.model("Qwen/Qwen2.5-7B") == catalogue.model("qwen2.5-7b")


@pytest.mark.parametrize("card", GPUS.values(), ids=GPUS)
def test_what_is_assumed_of_a_card_is_told_with_its_source(card: Gpu) -> None:
    found = catalogue.generation(card)
    assert 0.2 < found.efficiency < 0.8
    assert found.source
    assert card.generation in catalogue.generations()
    # A driver never gives more than the sheet, and much of it.
    assert 0.9 * card.memory_gib < card.total_mib / 1024 <= card.memory_gib
    most = card.total_mib / (8 if card.memory_gib >= 11 else 5)
    assert 1024 < catalogue.reserve().of(card.total_mib) < most
