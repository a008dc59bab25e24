"""Data sheets of GPUs and of their links, shapes of models: one place for all.

The data are `gpus.yaml`, `links.yaml` and `models.yaml` beside this file, which say
what an entry is; they are read when they are first asked for. A card or a model is
added by one entry there, nothing else.
"""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import InstanceError, UnknownName
from ..schema import Name, Record

Fields = dict[str, Any]
# A whole number stays one, and is written as one.
Rate = Annotated[int | float, Field(gt=0)]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


class Gpu(Record):
    """One card; rates are peaks, those of links GB/s in one direction."""

    name: Name
    product: Name = Field(description="Its name in nvidia-smi.")
    aliases: tuple[Name, ...] = ()
    skypilot: tuple[Name, ...] = Field((), description="What SkyPilot alone calls so.")
    memory_gib: Rate
    memory_gbytes_per_s: Rate
    tflops: dict[Precision, Rate] = Field(description="Dense, by precision.")
    pcie_gbytes_per_s: float
    nvlinks: int = 0
    nvlink_gbytes_per_s: float | None = Field(None, description="Of one NVLink.")
    bridged: bool = Field(
        False, description="Whether NVLinks need a bridge, bought with the card or not."
    )
    source: Name

    @property
    def peak_tflops(self) -> int | float:
        """The dense rate in 16 bits, fp16 and bf16 alike."""
        return self.tflops["fp16"]

    @property
    def link_gbytes_per_s(self) -> float:
        """All NVLinks of the card, else its bus."""
        if self.nvlink_gbytes_per_s is None or self.bridged:
            return self.pcie_gbytes_per_s
        return self.nvlinks * self.nvlink_gbytes_per_s


class Variant(Record):
    """A card under the name, and with the figures, that a family of instances uses."""

    card: Name
    tflops: Rate
    memory_gib: Rate
    intra_gbytes_per_s: Rate | None = None
    usd_per_hour: Rate | None = None


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every card by its name."""
    links = _read("links")
    return MappingProxyType(
        {name: _gpu(name, card, links) for name, card in _read("gpus")["cards"].items()}
    )


@cache
def family(name: str) -> Mapping[str, Variant]:
    """The cards of a family of instances, by the names there, in its order."""
    variants = {}
    for gpu, fields in _read("gpus")["families"][name].items():
        card = gpus()[fields["card"]]
        sheet = {"tflops": card.peak_tflops, "memory_gib": card.memory_gib}
        variants[gpu] = Variant.model_validate({**sheet, **fields})
    return MappingProxyType(variants)


@cache
def skypilot_gpus() -> Mapping[str, Gpu]:
    """Every card by the names that SkyPilot's price lists may give it."""
    cards = gpus().values()
    return {name: card for card in cards for name in (card.name, *card.aliases)} | {
        name: card for card in cards for name in card.skypilot
    }


def gpu(name: str, place: str) -> Gpu:
    """The card of a name or alias; refused where unclear, the message with `place`.

    `A100` alone stands for four cards: the `InstanceError` lists them.
    """
    cards, wanted = gpus(), _plainly(name)
    for card in cards.values():
        if wanted in map(_plainly, (card.name, card.product, *card.aliases)):
            return card
    fits = [known for known in cards if _plainly(known.partition("-")[0]) == wanted]
    if len(fits) == 1:
        return cards[fits[0]]
    near = fits or get_close_matches(name, list(cards), n=5, cutoff=0.3) or list(cards)
    raise InstanceError(
        f"{place}: found GPU {name!r}, expected one of {', '.join(near)}; say which it "
        f"is with the option types={name}:{near[0]}, or give its figures, "
        f"types={name}:TFLOPS/GIB"
    )


@cache
def models() -> Mapping[str, Fields]:
    """The fields of every model's `ModelSpec`, without its name, by that."""
    return MappingProxyType(_read("models"))


def model(name: str) -> Fields:
    """The fields of a model's `ModelSpec`; `UnknownName` where there is none."""
    if name not in models():
        raise UnknownName("model", name, [*models()])
    return {"name": name, **models()[name]}


def _gpu(name: str, card: Fields, links: Fields) -> Gpu:
    fields = {key: card[key] for key in card if key not in ("bus", "nvlink")}
    fields |= {"name": name, "pcie_gbytes_per_s": links[card["bus"]]["gbytes_per_s"]}
    if "nvlink" in card:
        fields["nvlink_gbytes_per_s"] = links[card["nvlink"]]["gbytes_per_s"]
    return Gpu.model_validate_json(json.dumps(fields))


def _read(name: str) -> Any:
    from ..text.parsing import read_tree  # YAML is loaded where data are asked for

    return read_tree(Path(__file__).with_name(f"{name}.yaml"))


def _plainly(name: str) -> str:
    """Lower case, without maker, brand, blanks, dashes: `NVIDIA A10` is `a10`."""
    text = re.sub("[^a-z0-9]", "", name.lower())
    return text.removeprefix("nvidia").removeprefix("tesla").removeprefix("geforce")
