"""SkyPilot's price lists (`vms.csv` of its catalogues) as offers to rent.

Columns, in any order: InstanceType, AcceleratorName, AcceleratorCount, Price,
SpotPrice, Region, GpuInfo; others are not looked at. Rows without an accelerator are
machines without GPUs and left out, rows without a price as well; other usual names of
columns (`NAMES`) are read. Of rows with one
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
from ...schema.record import Written
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
    "losses_per_hour": Annotated[float, Field(ge=0, le=1000)],
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
_NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region")
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
}
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
    unknown: dict[str, int] = {}
    alone: set[str] = set()
    for path in paths:
        for row in _rows(path, asked, regions, unknown):
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
    rows = (*_left_out(unknown), *_without_machine(alone))
    source = f"SkyPilot catalogue {names}, {where}, {kind}"
    return {"source": source, "offers": offers, "assumed": rows}


def _left_out(unknown: Mapping[str, int]) -> Iterator[Assumption]:
    """Yield which rows with a price are left out, as no card of theirs is known."""
    if unknown:
        names = [f"{name} ({rows})" for name, rows in sorted(unknown.items())]
        more = f", and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
        told = f"left out: {', '.join(names[:_MOST_NAMES])}{more}"
        change = "AcceleratorName: a name of `hetopt list gpus`"
        yield Assumption("rows of cards that are not known", told, "the list", change)


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
        listed = _table(path).columns
        date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        asked = _Asked(region, "cloud", spot="SpotPrice" in listed)
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
    path: Path, asked: _Asked, regions: set[str], unknown: dict[str, int]
) -> Iterator[_Row]:
    """Yield the rows with GPUs of a known card, one for each of their prices.

    Regions of all rows are put into `regions`, and how often cards are named that are
    not known into `unknown`.
    """
    table = _table(path)
    prices = {"Price": False} | ({"SpotPrice": True} if asked.spot else {})
    missing = [c for c in (*_NEEDED, *prices) if c not in table.columns]
    if missing:
        raise InstanceError.at(
            path,
            "line 1",
            f"found no column {', '.join(missing)}, expected a SkyPilot catalogue "
            "(vms.csv); name that file",
        )
    for number, line in table.rows:
        place = f"line {number}"
        name = (line["AcceleratorName"] or "").strip()
        told_prices = {c: text for c in prices if (text := (line[c] or "").strip())}
        if not name or not told_prices:
            continue
        region = line.get("Region") or ""
        regions.add(region)
        elsewhere = asked.region and region != asked.region
        if elsewhere:
            continue
        if (card := _card(name)) is None:
            unknown[name] = unknown.get(name, 0) + 1
            continue
        with naming(path):
            count = _count(line["AcceleratorCount"], place)
            if count is None:
                continue
            if not card.is_gpu:
                continue
            memory = _memory_gib(line.get("GpuInfo") or "", count, card, place)
            rows = []
            for column, text in told_prices.items():
                own = prices[column]
                where = _place(path, region, asked.places, spot=own)
                price = _price(text, place)
                alone = not (line["InstanceType"] or "").strip()
                rows.append(_Row(name, count, where, price, memory, card, own, alone))
        yield from rows


def _table(path: Path) -> Table:
    """Return the table of a list, with its columns by SkyPilot's names as well."""
    table = read_table(path)
    return columns.with_names(table, columns.known(table.columns, NAMES))


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
    if (number := _number(text, f"{place}: price")) < 0:
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
            if abs(mib / 1024 - card.memory_gib) <= card.memory_gib / 8:
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
