"""Data sheets of GPUs, their links and machines, shapes of models: one place for all.

The data are `gpus.yaml`, `links.yaml`, `machines.yaml` and `models.yaml` beside this
file, which say what an entry is; they are read when they are first asked for. A card, a
machine or a model is added by one entry there, nothing else. `keys.yaml` has the keys
of models' configurations that `architectures` does not read, `rented.yaml` the machines
that clouds rent by name, `prices.yaml` what an hour of some costs.
"""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ..errors import InstanceError, UnknownName, cut
from ..schema import Name, Record
from ..text.documents import Document

Fields = Document
#: Whose cards run programs for CUDA or ROCm.
GPU_MAKERS = ("NVIDIA", "AMD")
#: What prints the memory of a maker's cards.
_TOOLS = {"NVIDIA": "nvidia-smi", "AMD": "amd-smi", "Intel": "hl-smi"}
# A whole number stays one, and is written as one.
Rate = Annotated[int | float, Field(gt=0)]
Source = Annotated[str, Field(min_length=1, max_length=400)]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "fp4"]


class Generation(Record):
    """Values measured of some card stand for all cards of one architecture."""

    # Share of the peak that products reach in training, 16 bits.
    efficiency: Annotated[float, Field(gt=0, le=1)]
    source: Source


class Reserve(Record):
    """The rule for what CUDA's context, communicators and fragments take."""

    mib: int
    share: float = Field(description="Of all memory.")
    source: Source

    def of(self, total_mib: int) -> int:
        """Return the MiB of a GPU that has so many, rounded up."""
        return self.mib + math.ceil(self.share * total_mib)

    def whole(self, left_mib: float) -> float:
        """Return the MiB of a GPU that so many are left of."""
        return (left_mib + self.mib) / (1 - self.share)


class Gpu(Record):
    """One card; rates are peaks, those of links GB/s in one direction."""

    name: Name
    product: Name | None = Field(None, description="Its name in nvidia-smi.")
    maker: Name = "NVIDIA"
    generation: Name
    aliases: tuple[Name, ...] = ()
    skypilot: tuple[Name, ...] = Field((), description="What SkyPilot alone calls so.")
    # What a task for SkyPilot asks for, where it is no such name.
    accelerator: Name | None = None
    beyond_skypilot: Name | None = None  # why a task for SkyPilot cannot ask for it
    memory_gib: Rate
    driver_mib: int | None = Field(None, description="memory.total of nvidia-smi.")
    memory_gbytes_per_s: Rate
    watts: Rate | None = Field(None, description="The most that it draws, its TDP.")
    tflops: dict[Precision, Rate] = Field(description="Dense, by precision.")
    pcie_gbytes_per_s: float | None = None
    nvlinks: int = 0
    nvlink: Name | None = Field(None, description="Its kind, of any maker.")
    nvlink_gbytes_per_s: float | None = Field(None, description="Of one NVLink.")
    bridged: bool = False  # NVLinks need a bridge, bought with the card or not
    source: Source
    sources: dict[Name, Source] = Field({}, description="Of figures of other sources.")
    link_sources: dict[Name, Source] = Field({}, description="Of its links' rates.")

    @model_validator(mode="after")
    def _sources_are_of_figures(self) -> Self:
        if other := sorted(set(self.sources) - set(type(self).model_fields)):
            raise ValueError(f"{self.name}: sources has {other[0]!r}: no such figure")
        return self

    @model_validator(mode="after")
    def _can_be_planned(self) -> Self:
        if not {"fp16", "bf16"} & set(self.tflops):
            raise ValueError(
                f"{self.name}: tflops has neither fp16 nor bf16: give one of them"
            )
        if self.pcie_gbytes_per_s is None and (self.bridged or not self.nvlinks):
            raise ValueError(f"{self.name}: found no bus and no links: give one")
        return self

    @property
    def figures(self) -> dict[str, str]:
        """Return the source of each figure, by its name; unknown ones are left out.

        Rates by precision are `tflops`, all from one place.
        """
        names = ("memory_gib", "memory_gbytes_per_s", "watts", "tflops", "nvlinks")
        found = {x: self.source for x in names if getattr(self, x)}
        if self.driver_mib is not None:
            found["driver_mib"] = f"{_TOOLS[self.maker]}, as users' listings have it"
        return found | self.link_sources | self.sources

    @property
    def peak_tflops(self) -> int | float:
        """Return the dense rate in 16 bits, fp16 and bf16 alike where it has both."""
        return self.tflops["fp16" if self.has_fp16 else "bf16"]

    @property
    def peaks(self) -> dict[str, float]:
        """All rates of the sheet; products in 4 bits go by the name of their format."""
        named = {"fp4": "nvfp4"}
        return {named.get(name, name): rate for name, rate in self.tflops.items()}

    @property
    def total_mib(self) -> int:
        """Return the memory that a driver reports, or that of the data sheet."""
        return self.driver_mib or int(self.memory_gib * 1024)

    @property
    def has_bf16(self) -> bool:
        """Return whether its tensor cores take bfloat16."""
        return "bf16" in self.tflops

    @property
    def has_fp16(self) -> bool:
        """Return whether its tensor cores take half precision, as far as known."""
        return "fp16" in self.tflops

    @property
    def is_gpu(self) -> bool:
        """Return whether programs for CUDA or ROCm run on it."""
        return self.maker in GPU_MAKERS

    @property
    def own_names(self) -> tuple[str, ...]:
        """Return its own name and nvidia-smi's."""
        return (self.name,) if self.product is None else (self.name, self.product)

    def is_called(self, name: str) -> bool:
        """Return whether that is one of its own names, which leave nothing open."""
        return _plainly(name) in map(_plainly, self.own_names)

    @property
    def accelerator_name(self) -> str:
        """Return SkyPilot's name of the card, as far as it knows the card."""
        return self.accelerator or next(iter(self.skypilot), self.name)

    @property
    def linked(self) -> bool:
        """Return whether links of its own join it to others: no bus, no bridge."""
        return self.nvlinks_gbytes_per_s is not None and not self.bridged

    @property
    def nvlinks_gbytes_per_s(self) -> float | None:
        """All NVLinks of the card, bridged or not; None where it has none."""
        rate = self.nvlink_gbytes_per_s
        return None if rate is None else self.nvlinks * rate

    @property
    def link_gbytes_per_s(self) -> float:
        """All NVLinks of the card, else its bus."""
        links = self.nvlinks_gbytes_per_s if self.linked else None
        rates = (links, self.pcie_gbytes_per_s)
        return next(rate for rate in rates if rate is not None)


class Machine(Record):
    """A card's usual machine; rates are GB/s in one direction."""

    name: Name
    card: Name
    gpus: Annotated[int, Field(ge=1)] = Field(description="Of a node.")
    # GPUs joined at the full rate of their links; may span nodes.
    domain: Annotated[int, Field(ge=1)]
    link_gbytes_per_s: float = Field(description="Of one GPU, within the domain.")
    # Of a node, to other nodes; None where it is not known.
    adapters: Annotated[int, Field(ge=1)] | None = None
    adapter_gbytes_per_s: Rate | None = Field(None, description="Of one adapter.")
    named: bool = Field(False, description="Whether it is the usual one of no card.")
    source: Source

    @model_validator(mode="after")
    def _adapters_have_a_rate(self) -> Self:
        if (self.adapters is None) != (self.adapter_gbytes_per_s is None):
            raise ValueError(
                f"{self.name}: adapters and adapter_gbytes_per_s go together: give both"
            )
        return self


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
    links = _load("links")
    return MappingProxyType(
        {name: _gpu(name, card, links) for name, card in _load("gpus")["cards"].items()}
    )


@cache
def generations() -> Mapping[str, Generation]:
    """Return every architecture's values by name; `unknown` is of other cards."""
    found = _load("gpus")["generations"]
    return MappingProxyType(
        {name: Generation.model_validate(fields) for name, fields in found.items()}
    )


def generation(card: Gpu | None) -> Generation:
    """Return the values of a card's architecture; None stands for an unknown card."""
    return generations()["unknown" if card is None else card.generation]


@cache
def reserve() -> Reserve:
    """Return the part of a GPU's memory that is not for tensors."""
    return Reserve.model_validate(_load("gpus")["reserve"])


@cache
def family(name: str) -> Mapping[str, Variant]:
    """Return the cards of a family of instances, by the names there, in its order."""
    variants = {}
    for gpu, fields in _load("gpus")["families"][name].items():
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


def find_gpu(name: str) -> Gpu | None:
    """The card of a name, in whoever's spelling; None where it is none or several."""
    fits = called(name)
    return fits[0] if len(fits) == 1 else None


@lru_cache(10_000)  # names come from outside; a judge asks for each plan
def called(name: str) -> tuple[Gpu, ...]:
    """Return all cards that a name may stand for: `A100` are four."""
    wanted = _plainly(name)
    if (card := _spellings().get(wanted)) is not None:
        return (card,)
    return tuple(_of_short(wanted) or _of_words(name))


def maker_of(name: str) -> str | None:
    """Return whose cards of a name are; None where they are none's, or of several."""
    makers = {card.maker for card in called(name)}
    return makers.pop() if len(makers) == 1 else None


def names_cards(name: str) -> bool:
    """Return whether a name is that of a card, or the short one of several."""
    return find_gpu(name) is not None or bool(_of_short(_plainly(name)))


def near(name: str) -> list[str]:
    """Cards that a name, which is none or several, may stand for: all, if none is."""
    fits = [card.name for card in called(name)]
    return fits or get_close_matches(name, gpus(), n=5, cutoff=0.3) or [*gpus()]


def gpu(name: str, place: str) -> Gpu:
    """The card of a name or alias; refused where unclear, the message with `place`.

    `A100` alone stands for four cards: the `InstanceError` lists them.
    """
    if (card := find_gpu(name)) is not None:
        return card
    fits, expected = near(name), "one of `hetopt list gpus`"
    if len(fits) < len(gpus()):
        expected = f"one of {', '.join(fits)}"
    meant = fits[0] if len(fits) < len(gpus()) else "CARD"
    raise InstanceError(
        f"{place}: found GPU {name!r}, expected {expected}; say which it is with "
        f"-o types={name}:{meant}, or give its figures, -o types={name}:TFLOPS/GIB"
    )


@cache
def machines() -> Mapping[str, tuple[Machine, ...]]:
    """Every machine by its name, once for each card that stands in it."""
    found = {}
    for name, fields in _load("machines").items():
        shared = {key: fields[key] for key in fields if key != "cards"}
        found[name] = tuple(_machine(name, c, shared) for c in fields["cards"])
    return MappingProxyType(found)


def machine(name: str) -> Machine:
    """The machine of that name, or the usual one of a card, in whoever's spelling.

    A machine that several cards stand in is that of the first, where it is asked for by
    its own name. `UnknownName` for a name that is none or stands for several cards, and
    for a card that stands in none.
    """
    by_name = {_plainly(own): made[0] for own, made in machines().items()}
    if (found := by_name.get(_plainly(name))) is not None:
        return found
    if (card := find_gpu(name)) is None:
        raise UnknownName("card", name, near(name))
    listed = (one for made in machines().values() for one in made if not one.named)
    usual = {one.card: one for one in listed}
    if card.name not in usual:
        raise UnknownName("machine of the card", card.name, [*machines()])
    return usual[card.name]


def usual_machine(card: str) -> Machine | None:
    """Return the machine that a card usually stands in, None where none is known."""
    with suppress(UnknownName):
        return machine(card)
    return None


def _machine(name: str, called: str, shared: Fields) -> Machine:
    card = gpus()[called]
    joined = card.nvlinks_gbytes_per_s if shared["domain"] > 1 else None
    rate = card.pcie_gbytes_per_s if joined is None else joined
    fields = {**shared, "name": name, "card": called, "link_gbytes_per_s": rate}
    return Machine.model_validate_json(json.dumps(fields))


def _short(card: Gpu) -> str:
    return card.name.partition("-")[0]


def _of_short(wanted: str) -> list[Gpu]:
    return [card for card in gpus().values() if _plainly(_short(card)) == wanted]


def _of_words(name: str) -> list[Gpu]:
    """Return the cards that have all words of a name, in any order: `4090 24g`.

    The short name is one of them, with or without its family: `6000 ada`, `2080 Ti`.
    """
    words = [
        re.sub("^([0-9]+)(g|gib)$", r"\1gb", word)
        for word in re.findall("[a-z0-9]+", name.lower())
        if word not in _FAMILIES
    ]
    found = []
    for card in gpus().values():
        short, *rest = re.findall("[a-z0-9]+", card.name.lower())
        shorts = {short, re.sub("^(rtx|gtx)", "", short)}
        own = {*rest, f"{card.memory_gib}gb", *(w.rstrip("0123456789") for w in rest)}
        if (shorts & {*words} and {*words} <= own | shorts) or "".join(words) in shorts:
            found.append(card)
    return found


def _by_size() -> Mapping[str, Gpu]:
    """Cards by short name and memory, `l40s48gb`, where one card alone is that."""
    cards: dict[str, list[Gpu]] = {}
    for card in gpus().values():
        spelling = _plainly(f"{_short(card)}{card.memory_gib}GB")
        cards.setdefault(spelling, []).append(card)
    return {spelling: fits[0] for spelling, fits in cards.items() if len(fits) == 1}


@cache
def _spellings() -> Mapping[str, Gpu]:
    """Cards by all spellings that mean one; SkyPilot's count where none is short.

    What it calls `A100` is one of four cards elsewhere.
    """
    cards = gpus().values()
    found = {
        _plainly(s): c for c in cards for s in c.skypilot if not _of_short(_plainly(s))
    }
    own = {_plainly(s): c for c in cards for s in (*c.own_names, *c.aliases)}
    return {**_by_size(), **found, **own}


class Rented(NamedTuple):
    """A machine that a cloud rents by a name: whose it is, its card, how many."""

    cloud: str
    card: str
    gpus: int
    gbits_per_s: float | None = None


@cache
def rented() -> Mapping[str, Rented]:
    """Return the machines of `rented.yaml` by their names in small letters."""
    found = {
        name.lower(): Rented(cloud, *row)
        for cloud, rows in _load("rented").items()
        for name, row in rows.items()
    }
    return MappingProxyType(found)


class Price(NamedTuple):
    """A price of a machine is USD for an hour, on demand."""

    cloud: str
    card: str
    gpus: int
    usd_per_hour: float
    date: str
    source: str


@cache
def prices() -> tuple[Price, ...]:
    """Return the machines of `prices.yaml`, cloud by cloud."""
    told = _load("prices")
    found = []
    for cloud, fields in told["clouds"].items():
        about = told["date"], fields["source"]
        for card, gpus, usd in fields["rows"]:
            found.append(Price(cloud, card, gpus, float(usd), *about))
    return tuple(found)


@cache
def models() -> Mapping[str, Fields]:
    """Return the fields of every model's `ModelSpec`, without its name, by that."""
    found = _load("models")
    for fields in found.values():
        if "layer_kinds" in fields:  # records do not convert lists
            fields["layer_kinds"] = tuple(fields["layer_kinds"])
    return MappingProxyType(found)


def model(name: str) -> Fields:
    """Return a `ModelSpec`'s fields, by a name with or without owner and capitals."""
    own = name.rpartition("/")[2].lower()
    if own in models():
        return {"name": own, **models()[own]}
    near = get_close_matches(cut(own, 300), models(), n=5) or [*models()]
    raise UnknownName("model", name, near, remedy="; or the path of a config.json")


#: Words behind a model's name that say nothing of its shape: `Instruct-2507-FP8`.
_VERSION = re.compile(
    r"instruct|chat|it|base|hf|thinking|exp|terminus|preview|dynamic|kv|block|awq|gptq"
    r"|(mx|nv)?fp[0-9]+|bf16|int[0-9]+|w[0-9]+a[0-9]+|v?[0-9.]+|a?[0-9]+[be]"
)


def released(name: str) -> Fields | None:
    """Return the fields of a model by its name on Hugging Face; None if unknown.

    Owner, capitals and words of a version say nothing: `nvidia/Qwen3-32B-NVFP4`.
    """
    plain = name.rpartition("/")[2].lower().replace("_", ".")
    plain = plain.removeprefix("meta-").removeprefix("nvidia-")
    for own in sorted(models(), key=len, reverse=True):
        rest = plain.removeprefix(own)
        words = rest.split("-")
        if rest != plain and not words[0] and all(map(_VERSION.fullmatch, words[1:])):
            return model(own)
    return None


def _gpu(name: str, card: Fields, links: Fields) -> Gpu:
    fields = {"name": name} | {key: card[key] for key in card if key != "bus"}
    fields["link_sources"] = {}
    for kind, rate in (("bus", "pcie"), ("nvlink", "nvlink")):
        if kind in card:
            link, figure = links[card[kind]], f"{rate}_gbytes_per_s"
            fields[figure] = link["gbytes_per_s"]
            fields["link_sources"][figure] = link["source"]
    return Gpu.model_validate_json(json.dumps(fields))


def _load(name: str) -> Any:
    from ..text.parsing import read_tree  # YAML is loaded where data are asked for

    return read_tree(Path(__file__).with_name(f"{name}.yaml"))


#: Words in names of cards that tell none from another.
_FAMILIES = frozenset({"nvidia", "tesla", "geforce", "rtx", "gtx", "amd", "instinct"})


def _plainly(name: str) -> str:
    """Lower case, without maker, brand, blanks, dashes: `NVIDIA A10` is `a10`."""
    text = re.sub("[^a-z0-9]", "", name.lower())
    return text.removeprefix("nvidia").removeprefix("tesla").removeprefix("geforce")
