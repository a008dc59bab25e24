"""SkyPilot's price lists (`vms.csv` of its catalogues) as offers to rent.

Columns, in any order: InstanceType, AcceleratorName, AcceleratorCount, Price,
SpotPrice, Region, GpuInfo. Rows without an accelerator are machines without GPUs and
left out, rows without a price as well, and those with a price of 0 are told. Other
usual names of columns (`NAMES`) are read, and of lists of one's own PricePerGpu in
place of Price, the memory of a card, its currency, which has to be USD, the time that a
price is of, which has to be an hour, and whether it is on demand, spot or another kind,
whose rows are left out and told. Columns that are not read are told. Of rows with one
accelerator and count the cheapest is kept; with several lists that of each cloud, named
`8xA100@aws`, and with `places: region` that of each region, `8xA100@aws/us-east-1`. An
offer is one accelerator in one size of instance, named `8xA100`, rented whole; its
price is that of one GPU, rounded up to a millionth of a dollar. With `spot` SpotPrice
makes offers of its own beside those of Price, `8xA100@aws-spot`; no catalogue says how
often they are lost, so `losses_per_hour` of one machine is asked for.

GpuInfo is a Python literal, read as one and never run. Its memory is given now of one
GPU and now of all of them, in MiB or in GiB: a reading is taken where it agrees with
the card's data sheet within an eighth, else the data sheet's. A card that is not known
is left out and told: nothing tells its peak. So are accelerators that are no GPUs
(Trainium): what trains on the offers of one list has to run on all of them. Rows that
name no machine, as GCP's do, tell the price of the cards alone, which is told.

No catalogue says how many instances there are to rent nor how fast their network is:
`quota` (GPUs of each offer) and `gbytes_per_s` are the user's. The link between GPUs of
one instance is the card's by its data sheet: all its NVLinks, or its bus.
"""

import re
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import Field

from ...catalogue import Gpu, Price, find_gpu, generation, skypilot_gpus
from ...errors import InstanceError, cut, naming
from ...schema import Count, Counted, Efficiency, GbytesPerS, Seconds
from ...schema.record import Frequency, Written
from ...text import columns, units
from ...text.complaints import shown
from ...text.parsing import Table, read_table
from ..documents import Document, Options
from ..importing.assumptions import Assumption
from .market import assumed, completed

__all__ = ["OPTIONS", "assumed", "completed", "read", "rented_machines"]

OPTIONS: Options = {
    "region": str,
    "places": Literal["none", "cloud", "region"],
    "spot": bool,
    "losses_per_hour": Frequency,
    "restart_s": Seconds,
    "checkpoint_every_s": Seconds,
    "quota": Count,
    "machines": Count,
    "gbytes_per_s": GbytesPerS,
    "intra_gbytes_per_s": GbytesPerS,
    "efficiency": Efficiency,
    "iterations": Counted,
    "tokens": Annotated[int, Field(ge=1, le=10**17), Written(units.COUNT)],
    "micro_batches": Count,
    "data_parallel": str,
    "max_stages": Count,
}
_NEEDED = ("AcceleratorName", "AcceleratorCount", "Region")
#: What other lists call SkyPilot's columns. Prices are those of a machine, an hour.
NAMES = {
    "InstanceType": ("machine", "machine_type", "instance", "instance_name", "sku"),
    "AcceleratorName": ("accelerator", "gpu", "gpu_name", "gpu_type", "gpu_model"),
    "AcceleratorCount": (
        *("gpus", "gpu_count", "num_gpus", "count", "accelerators"),
        *("gpus_per_instance", "gpus_per_node"),
    ),
    "Price": (
        *("price_per_hour", "hourly_price", "usd_per_hour", "on_demand_price"),
        *("price_hour", "price_usd", "price_hr", "on_demand", "hourly_cost"),
    ),
    "SpotPrice": ("spot_price_per_hour", "spot", "spot_usd_per_hour", "preemptible"),
    "Region": ("location", "zone", "availability_zone"),
    "PricePerGpu": (
        *("price_per_gpu_hour", "price_per_gpu_hr", "price_gpu_hr", "price_gpu_hour"),
        *("usd_per_gpu_hour", "usd_per_gpu_hr", "usd_gpu_hr", "gpu_hour_price"),
        *("gpu_price_per_hour", "cost_per_gpu_hour", "price_per_gpu_usd"),
    ),
    "GpuMemory": (
        *("gpu_memory_gb", "gpu_memory_gib", "gpu_mem", "gpu_mem_gb", "gpu_ram"),
        *("vram", "vram_gb", "gpu_vram", "gpu_vram_gb", "memory_per_gpu"),
    ),
    "Currency": ("currency_code", "price_currency"),
    "Unit": (
        *("price_unit", "billing_unit", "billing_period", "unit_of_measure", "per"),
    ),
    "Kind": (
        *("purchase_option", "pricing_model", "price_type", "market"),
        *("market_type", "capacity_type", "lifecycle", "offer_type", "billing_type"),
        *("provisioning_model", "purchase_type", "usage_type", "term", "commitment"),
        *("term_type", "pricing_type", "purchasing_option"),
    ),
}
#: Columns of SkyPilot's lists that change no offer, in lower case.
_OF_NO_USE = (
    *("vcpus", "memorygib", "availabilityzone", "arch", "generation", "gpuinfo"),
    *("cpus", "memory", "ram"),
)
_HOUR = re.compile(
    r"(?:USD|\$)? ?(?:/|per)? ?(?:machine|instance|node|vm)?[- /]?"
    r"(?:1 ?)?(?:h|hr|hrs|hour|hours|hourly)?",
    re.IGNORECASE,
)
#: What lists call the kinds of prices, in letters alone.
_KINDS = {
    **dict.fromkeys(("ondemand", "standard", "regular", "payasyougo", "payg"), "Price"),
    **dict.fromkeys(("consumption", "no", "none", ""), "Price"),
    **dict.fromkeys(("spot", "preemptible", "interruptible"), "SpotPrice"),
    "lowpriority": "SpotPrice",
}
_UNKNOWN = "cards that are not known"
_MOST_NAMES = 12  # of cards that are left out
_MICRO = Decimal("0.000001")
_LONGEST_LITERAL = 10_000  # characters of a GpuInfo


class _Row(NamedTuple):
    name: str
    gpus: int
    place: str
    price: Decimal
    memory_gib: float
    card: Gpu
    spot: bool
    is_alone: bool = False  # the price is without a machine


class _Asked(NamedTuple):
    """The options of a list of prices.

    `spot` takes SpotPrice as well, of machines lost `losses_per_hour`; `quota` is in
    GPUs of each offer, `machines` in whole instances. `places` tells apart what clouds
    or regions offer.
    """

    region: str | None = None
    places: str | None = None
    spot: bool = False
    losses_per_hour: float | None = None
    quota: int = 64
    machines: int | None = None
    gbytes_per_s: float = 1.25
    intra_gbytes_per_s: float | None = None
    efficiency: float | None = None

    def whole(self, gpus: int) -> int:
        """Return the GPUs to rent in whole instances of so many."""
        if self.machines is None:
            return self.quota - self.quota % gpus
        return self.machines * gpus


def read(paths: Sequence[Path], **options: Any) -> Document:
    """Return `{"source": ..., "offers": [...]}` of all rows of a region, or of any.

    `options` are those of `_Asked`, and for `market` those of the job. Raises
    `InstanceError` for a file that is no such list, and where no row is left.
    """
    asked = _Asked(**{k: v for k, v in options.items() if k in _Asked._fields})
    _check_losses(asked)
    best: dict[tuple[str, int, str], _Row] = {}
    regions: set[str] = set()
    if asked.places is None:
        asked = asked._replace(places="cloud" if len(paths) > 1 else "none")
    gone: _Gone = {}
    alone: set[str] = set()
    told: list[Assumption] = []
    for path in paths:
        told += _of_columns(path)
        for row in _rows(path, asked, regions, gone):
            if row.is_alone:
                alone.add(row.name)
            key = row.name, row.gpus, row.place
            if (old := best.get(key)) is None or row.price < old.price:
                best[key] = row
    if not any(row.spot == asked.spot for row in best.values()):
        raise InstanceError(_nothing(paths, asked, regions))
    offers = [
        {
            "gpu": f"{row.gpus}x{row.name}" + (row.place and f"@{row.place}"),
            "quota": asked.whole(row.gpus),
            "usd_per_hour": float(
                (row.price / row.gpus).quantize(_MICRO, rounding=ROUND_CEILING)
            ),
            "peak_tflops": row.card.peak_tflops,
            "memory_gib": row.memory_gib,
            "efficiency": asked.efficiency or generation(row.card).efficiency,
            "gbytes_per_s": asked.gbytes_per_s,
            "gpus_per_instance": row.gpus,
        }
        | _within(row, asked.intra_gbytes_per_s)
        | ({"losses_per_hour": asked.losses_per_hour} if row.spot else {})
        for _, row in sorted(best.items())
        if asked.whole(row.gpus)
    ]
    where = asked.region or "any region"
    names = ", ".join(path.name for path in paths)
    kind = "on demand and spot" if asked.spot else "on demand"
    priced = {row.name for row in best.values()}
    if untold := {n: x for n, x in gone.pop("", {}).items() if n not in priced}:
        gone["cards without a price"] = untold
    rows = (*told, *_left_out(gone), *_without_machine(alone))
    source = f"SkyPilot catalogue {names}, {where}, {kind}"
    return {"source": source, "offers": offers, "assumed": rows}


def _of_columns(path: Path) -> Iterator[Assumption]:
    """Yield what the columns of a list are taken for, and which are not read."""
    listed = read_table(path).columns
    known = _known(listed)
    used = {*known, *(column.name for column in known.values())}
    price = known.get("Price")
    if price is not None and price.name != "Price":
        value = "USD an hour of a whole machine"
        change = "PricePerGpu as its name, where it is of one GPU"
        yield Assumption(f"column {price.name}", value, "its name", change)
    unread = [c for c in listed if c and c not in used and c.lower() not in _OF_NO_USE]
    if unread:
        more = f", and {len(unread) - _MOST_NAMES} more" * (len(unread) > _MOST_NAMES)
        value = f"not read: {', '.join(unread[:_MOST_NAMES])}{more}"
        change = "--quota, --machines, --gbytes-per-s, or the offers written"
        yield Assumption(f"columns of {path.name}", value, "the list", change)


def _left_out(gone: Mapping[str, Mapping[str, int]]) -> Iterator[Assumption]:
    """Yield which rows are left out, by reason."""
    for why, rows in gone.items():
        names = [f"{name} ({number})" for name, number in sorted(rows.items())]
        more = f", and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
        told = f"left out: {', '.join(names[:_MOST_NAMES])}{more}"
        change = "the list"
        if why == _UNKNOWN:
            change = "AcceleratorName: a name of `hetopt list gpus`"
        yield Assumption(f"rows of {why}", told, "the list", change)


def _without_machine(names: Iterable[str]) -> Iterator[Assumption]:
    """Yield of which cards the price is without the machine that they are in."""
    if told := ", ".join(sorted(names)):
        what = f"price of {told}"
        source = "rows that name no machine, as GCP's do"
        yield Assumption(what, "the cards alone", source, "Price of the list")


def rented_machines(paths: Sequence[Path], region: str | None = None) -> list[Price]:
    """The cheapest machine of each cloud, card and size, with what it costs as spot.

    A list is dated by its file. Raises `InstanceError` as `read` does.
    """
    best: dict[tuple[str, str, int], dict[bool, float]] = {}
    dates: dict[str, str] = {}
    regions: set[str] = set()
    for path in paths:
        listed = _known(read_table(path).columns)
        date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        has_spot = not {"SpotPrice", "Kind"}.isdisjoint(listed)
        asked = _Asked(region, "cloud", spot=has_spot)
        for row in _rows(path, asked, regions, {}):
            cloud = row.place.removesuffix("-spot")
            dates[cloud] = date
            kinds = best.setdefault((cloud, row.card.name, row.gpus), {})
            usd = float(row.price)
            kinds[row.spot] = min(usd, kinds.get(row.spot, usd))
    found = [
        Price(*key, kinds[False], kinds.get(True), dates[key[0]], f"list {key[0]}")
        for key, kinds in sorted(best.items())
        if False in kinds
    ]
    if not found:
        raise InstanceError(_nothing(paths, _Asked(region), regions))
    return found


def _check_losses(asked: _Asked) -> None:
    if asked.spot and asked.losses_per_hour is None:
        raise InstanceError(
            "option spot: found no losses_per_hour, and no list says how often a spot "
            "machine is lost; give --losses-per-hour N, of one machine (0.02 is one "
            "loss in 50 hours)"
        )
    if asked.losses_per_hour is not None and not asked.spot:
        raise InstanceError(
            "found the option losses_per_hour without spot, whose machines alone are "
            "lost; add --spot, or remove it"
        )


def _within(row: _Row, asked: float | None) -> dict[str, float]:
    """The link between GPUs of one instance: the data sheet's, if not another."""
    if row.gpus == 1:
        return {}
    return {"intra_gbytes_per_s": asked or float(row.card.link_gbytes_per_s)}


def _place(path: Path, region: str, told: str | None, *, spot: bool) -> str:
    """Return the place and kind of an offer: SkyPilot's lists are `CLOUD/vms.csv`."""
    kind = ["spot"] if spot else []
    if told == "none":
        return "".join(kind)
    cloud = path.resolve().parent.name if path.stem == "vms" else path.stem
    return "-".join([cloud if told == "cloud" else f"{cloud}/{region}", *kind])


def _rows(
    path: Path, asked: _Asked, regions: set[str], gone: "_Gone"
) -> Iterator[_Row]:
    """Yield the rows with GPUs of a known card, one for each of their prices.

    Regions of all rows are put into `regions`, and how often cards are named that are
    left out into `gone`, by the reason; rows without a price under "".
    """
    table = _table(path)
    of = _columns_of_prices(table, asked, path)
    for number, line in table.rows:
        place = f"line {number}"
        name = (line["AcceleratorName"] or "").strip()
        if not name:
            continue
        region = line.get("Region") or ""
        regions.add(region)
        if asked.region and region != asked.region:
            continue
        with naming(path):
            _check_units(line, place)
            prices = _prices(line, of)
            if not any(prices.values()):
                kind = next(iter(prices))
                _count_out(gone, kind and f"prices of another kind, {kind}", name)
                continue
            name, card = _named_card(name, line, place)
            if card is None:
                _count_out(gone, _UNKNOWN, name)
                continue
            count = _count(line["AcceleratorCount"], place)
            if count is None:
                _count_out(gone, "shares of a card", name)
                continue
            if not card.is_gpu:
                _count_out(gone, "accelerators that are no GPUs", name)
                continue
            memory = _memory_gib(line.get("GpuInfo") or "", count, card, place)
            times = count if of.get("Price") == "PricePerGpu" else 1
            alone = not (line.get("InstanceType", name) or "").strip()
            rows = []
            for column, text in prices.items():
                own = column == "SpotPrice"
                if not text or (own and not asked.spot):
                    continue
                where = _place(path, region, asked.places, spot=own)
                price = _price(text, place) * times
                if not price:  # lists have no price there; nobody rents for nothing
                    _count_out(gone, "prices that are 0", name)
                    continue
                rows.append(_Row(name, count, where, price, memory, card, own, alone))
        yield from rows


def _columns_of_prices(table: Table, asked: _Asked, path: Path) -> dict[str, str]:
    """Return the columns that prices are in, by `Price` and `SpotPrice`."""
    of = {"Price": "Price"} | ({"SpotPrice": "SpotPrice"} if asked.spot else {})
    if "Price" not in table.columns:
        of["Price"] = "PricePerGpu"
    if asked.spot and {"Price", "PricePerGpu"}.isdisjoint(table.columns):
        del of["Price"]
    if "Kind" in table.columns:
        of.pop("SpotPrice", None)
    if {"PricePerGpu", "SpotPrice"} == {*of.values()}:
        raise InstanceError.at(
            path,
            "line 1",
            "found spot prices beside prices of one GPU, expected both of a whole "
            "machine; write them so",
        )
    missing = [c for c in (*_NEEDED, *of.values()) if c not in table.columns]
    if missing:
        names = ", ".join(missing).replace("PricePerGpu", "Price")
        has_spot = missing == ["PricePerGpu"] and "SpotPrice" in table.columns
        more = " but spot prices (--spot)" if has_spot else ""
        raise InstanceError.at(
            path,
            "line 1",
            f"found no column {names}{more}, expected those of a SkyPilot catalogue "
            "(vms.csv), with USD an hour of a machine as Price, or of one GPU as "
            "PricePerGpu; name that file, or the columns so",
        )
    return of


#: Rows that are left out, by reason and by card.
_Gone = dict[str, dict[str, int]]


def _count_out(gone: _Gone, why: str, name: str) -> None:
    rows = gone.setdefault(why, {})
    rows[name] = rows.get(name, 0) + 1


def _prices(line: Mapping[str, str | None], of: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a line's prices by Price and SpotPrice.

    Of a kind that is neither, the one text is empty, under the kind's name.
    """
    texts = {ours: (line[column] or "").strip() for ours, column in of.items()}
    kind = (line.get("Kind") or "").strip()
    switch = (line.get("SpotPrice") or "").strip().lower()
    if switch in ("true", "yes", "false", "no"):  # a column `spot` of rows, not prices
        kind = "spot" if switch in ("true", "yes") else ""
    elif "Kind" not in line:
        return texts if any(texts.values()) else {"": ""}
    ours = _KINDS.get(re.sub(r"[^a-z]", "", kind.lower()))
    if ours is None:
        return {kind: ""}
    return {ours: texts["Price"]} if texts["Price"] else {"": ""}


def _check_units(line: Mapping[str, str | None], place: str) -> None:
    """Refuse prices that are not told in USD, or not of an hour of a machine."""
    currency = (line.get("Currency") or "").strip()
    if currency.upper() not in ("", "USD", "US$", "$"):
        _refuse(f"{place}: currency", currency, "USD; convert the prices")
    unit = (line.get("Unit") or "").strip()
    if _HOUR.fullmatch(unit) is None:
        _refuse(f"{place}: unit", unit, "hour, of a whole machine; convert the prices")


def _named_card(
    name: str, line: Mapping[str, str | None], place: str
) -> tuple[str, Gpu | None]:
    """Return the card of a line, and its name with the memory where that tells more."""
    card, told = _card(name), (line.get("GpuMemory") or "").strip()
    size = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]+)?) ?(?:GB|GiB|MiB|MB|)", told)
    if card is None or not told:
        return name, card
    if size is None:
        _refuse(f"{place}: memory of a GPU", told, "GB, as 80; correct it")
    if not (gib := float(size[1])):  # not told
        return name, card
    gib /= 1024 if gib >= 1024 else 1
    count = _count(line["AcceleratorCount"], place) or 1
    if any(_agrees(each, card) for each in (gib, gib / count)):
        return name, card
    for each in (gib, gib / count):
        whole = f"{name}-{round(each)}GB"
        if (other := _card(whole)) is not None and _agrees(each, other):
            return whole, other
    _refuse(
        f"{place}: memory of a GPU",
        told,
        f"{card.memory_gib:g} of {name}; name the card as `hetopt list gpus` has it",
    )


def _agrees(gib: float, card: Gpu) -> bool:
    return abs(gib - card.memory_gib) <= card.memory_gib / 8


def _known(listed: Sequence[str]) -> dict[str, columns.Column]:
    """Return the columns of a list by our names; prices are never of a minute."""
    found = columns.known(listed, NAMES)
    return {ours: one for ours, one in found.items() if one.unit_s in (1.0, 3600.0)}


def _table(path: Path) -> Table:
    """Return the table of a list, with its columns by SkyPilot's names as well."""
    table = read_table(path)
    return columns.with_names(table, _known(table.columns))


def _card(name: str) -> Gpu | None:
    """Return the card that a list names; None for one that is not known."""
    return skypilot_gpus().get(name) or find_gpu(name)


def _count(text: str | None, place: str) -> int | None:
    """GPUs of an instance; None for a share of one, which cannot be rented whole."""
    number = _number(text, f"{place}: AcceleratorCount")
    if not 0 < number <= 1024:
        _refuse(f"{place}: AcceleratorCount", text, "1 to 1024; correct it")
    return int(number) if number == int(number) else None


def _price(text: str, place: str) -> Decimal:
    amount = re.sub(r"^(?:US)?\$ ?| ?USD$", "", text)
    if (number := _number(amount, f"{place}: price")) < 0:
        _refuse(f"{place}: price", text, "0 or more")
    return number


def _number(text: str | None, place: str) -> Decimal:
    with suppress(InvalidOperation):
        if (number := Decimal((text or "").strip())).is_finite():
            return number
    _refuse(place, text, "a number; correct it")


def _refuse(place: str, text: str | None, expected: str) -> NoReturn:
    words = f"found {cut(repr(text))}, expected {expected}"
    raise InstanceError.at(None, place, words)


def _memory_gib(info: str, count: int, card: Gpu, place: str) -> float:
    """Memory of one GPU: the reading of GpuInfo that the data sheet confirms."""
    for reading in _readings(info, place):
        for mib in (reading, reading / count, reading * 1024, reading * 1024 / count):
            if _agrees(mib / 1024, card):
                return float(round(mib / 1024, 3))
    return float(card.memory_gib)


def _readings(info: str, place: str) -> Iterator[float]:
    """Memory sizes that a GpuInfo states: of a GPU first, then in total."""
    if not info.strip():
        return
    if len(info) > _LONGEST_LITERAL:
        raise InstanceError.at(
            None, f"{place}: GpuInfo", f"found {len(info)} characters"
        )
    try:
        told = literal_eval(info)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InstanceError.at(
            None,
            f"{place}: GpuInfo",
            f"found {shown(info)}, expected a Python literal; correct it",
        ) from None
    if not isinstance(told, dict):
        return
    gpus = told.get("Gpus")
    for gpu in gpus if isinstance(gpus, list) else []:
        size = gpu.get("MemoryInfo") if isinstance(gpu, dict) else None
        yield from _positive(size.get("SizeInMiB") if isinstance(size, dict) else None)
    yield from _positive(told.get("TotalGpuMemoryInMiB"))


def _positive(value: object) -> Iterator[float]:
    if isinstance(value, int | float) and isfinite(value) and value > 0:
        yield float(value)


def _nothing(paths: Sequence[Path], asked: _Asked, regions: set[str]) -> str:
    region = asked.region
    names = ", ".join(map(str, paths))
    kind = "a spot price" if asked.spot else "a price"
    if region and region not in regions:
        known = ", ".join(sorted(regions)[:20]) or "none"
        return (
            f"{names}: found no GPUs in region {region!r}, expected one of {known}; "
            "name one of those"
        )
    return f"{names}: found no known GPU with {kind}; name another list"
