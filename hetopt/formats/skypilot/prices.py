"""SkyPilot's price lists (`vms.csv` of its catalogues) as offers to rent.

Columns, in any order: InstanceType, AcceleratorName, AcceleratorCount, Price,
SpotPrice, Region; those that are no others of SkyPilot's are told as not read. Rows
without an accelerator are machines without GPUs and left out, rows without a price as
well. Of rows with one accelerator and count the cheapest is kept; with several lists
that of each cloud, named `8xA100@aws`, and with `places: region` that of each region,
`8xA100@aws/us-east-1`. An offer is one accelerator in one size of instance, named
`8xA100`, rented whole; its price is that of one GPU, rounded up to a millionth of a
dollar. With `spot` SpotPrice makes offers of its own beside those of Price,
`8xA100@aws-spot`; no catalogue says how often they are lost, so `losses_per_hour` of
one machine is asked for.

Memory and peak are the card's by its data sheet. A card that is not known, a share of
one and an accelerator that is no GPU (Trainium) are left out and told. Rows that name
no machine, as GCP's do, tell the price of the cards alone, which is told.

No catalogue says how many instances there are to rent nor how fast their network is:
`quota` (GPUs of each offer) and `gbytes_per_s` are the user's. The link between GPUs of
one instance is the card's by its data sheet: all its NVLinks, or its bus.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import Field

from ...catalogue import Gpu, Price, find_gpu, generation, skypilot_gpus
from ...errors import InstanceError, cut, naming
from ...schema import Count, Efficiency, GbytesPerS, Seconds
from ...schema.record import Frequency, Written
from ...text import units
from ...text.documents import Document
from ...text.parsing import Table, read_table
from ..importing.assumptions import Assumption
from .market import assumed, completed

__all__ = ["OPTIONS", "assumed", "completed", "read", "rented_machines"]

OPTIONS: Document = {
    "region": str,
    "places": Literal["none", "cloud", "region"],
    "spot": bool,
    "losses_per_hour": Frequency,
    "restart_s": Seconds,
    "checkpoint_every_s": Seconds,
    "quota": Count,
    "gbytes_per_s": GbytesPerS,
    "efficiency": Efficiency,
    "tokens": Annotated[int, Field(ge=1, le=10**17), Written(units.COUNT)],
}
_NEEDED = ("AcceleratorName", "AcceleratorCount", "Region", "Price")
#: Columns of SkyPilot's lists; those of the last line change no offer.
_COLUMNS = {
    *(*_NEEDED, "SpotPrice", "InstanceType"),
    *("vCPUs", "MemoryGiB", "AvailabilityZone", "Arch", "Generation", "GpuInfo"),
}
_MOST_NAMES = 12  # of cards that are left out
_UNKNOWN, _UNPRICED = "cards that are not known", "cards without a price"
_MICRO = Decimal("0.000001")
#: Rows that are left out: by reason, how often each card is named.
_Gone = dict[str, Counter[str]]


class _Row(NamedTuple):
    name: str
    gpus: int
    place: str
    price: Decimal
    card: Gpu
    spot: bool
    is_alone: bool  # the price is without a machine


class _Asked(NamedTuple):
    """The options of a list of prices.

    `spot` takes SpotPrice as well, of machines lost `losses_per_hour`; `quota` is in
    GPUs of each offer. `places` tells apart what clouds or regions offer.
    """

    region: str | None = None
    places: str | None = None
    spot: bool = False
    losses_per_hour: float | None = None
    quota: int = 64
    gbytes_per_s: float = 1.25
    efficiency: float | None = None


def read(paths: Sequence[Path], **options: Any) -> Document:
    """Return `{"source": ..., "offers": [...]}` of all rows of a region, or of any.

    `options` are those of `_Asked`, and for `market` those of the job. Raises
    `InstanceError` for a file that is no such list, and where no row is left.
    """
    asked = _Asked(**{k: v for k, v in options.items() if k in _Asked._fields})
    _check_losses(asked)
    if asked.places is None:
        asked = asked._replace(places="cloud" if len(paths) > 1 else "none")
    best: dict[tuple[str, int, str], _Row] = {}
    regions, gone, told = set[str](), _Gone(), list[Assumption]()
    alone: set[str] = set()
    for path in paths:
        table = read_table(path)
        if unread := [c for c in table.columns if c and c not in _COLUMNS]:
            value = f"not read: {_listed(unread)}"
            told.append(_assumption(f"columns of {path.name}", value))
        for row in _rows(path, table, asked, regions, gone):
            if row.is_alone:
                alone.add(row.name)
            key = row.name, row.gpus, row.place
            if (old := best.get(key)) is None or row.price < old.price:
                best[key] = row
    if not any(row.spot == asked.spot for row in best.values()):
        raise InstanceError(_nothing(paths, asked, regions))
    priced = {row.name for row in best.values()}
    for why, cards in gone.items():
        if why == _UNPRICED:
            cards = Counter({n: x for n, x in cards.items() if n not in priced})
        if cards:
            each = [f"{name} ({number})" for name, number in sorted(cards.items())]
            told.append(_assumption(f"rows of {why}", f"left out: {_listed(each)}"))
    if alone:
        told.append(
            _assumption(f"price of {_listed(sorted(alone))}", "the cards alone")
        )
    offers = [_offer(row, asked) for _, row in sorted(best.items())]
    names, where = ", ".join(path.name for path in paths), asked.region or "any region"
    kind = "on demand and spot" if asked.spot else "on demand"
    return {
        "source": f"SkyPilot catalogue {names}, {where}, {kind}",
        "offers": [offer for offer in offers if offer["quota"]],
        "assumed": tuple(told),
    }


def _offer(row: _Row, asked: _Asked) -> Document:
    found: Document = {
        "gpu": f"{row.gpus}x{row.name}" + (row.place and f"@{row.place}"),
        "quota": asked.quota - asked.quota % row.gpus,
        "usd_per_hour": float(
            (row.price / row.gpus).quantize(_MICRO, rounding=ROUND_CEILING)
        ),
        "peak_tflops": row.card.peak_tflops,
        "memory_gib": float(row.card.memory_gib),
        "efficiency": asked.efficiency or generation(row.card).efficiency,
        "gbytes_per_s": asked.gbytes_per_s,
        "gpus_per_instance": row.gpus,
    }
    if row.gpus > 1:
        found["intra_gbytes_per_s"] = float(row.card.link_gbytes_per_s)
    if row.spot:
        found["losses_per_hour"] = asked.losses_per_hour
    return found


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
    return ", ".join(names[:_MOST_NAMES]) + more


def _assumption(what: str, value: str) -> Assumption:
    return Assumption(what, value, "the list", "the list")


def rented_machines(paths: Sequence[Path]) -> list[Price]:
    """Return the cheapest machine of each cloud, card and size, on demand.

    A list is dated by its file. Raises `InstanceError` as `read` does.
    """
    best: dict[tuple[str, str, int], Price] = {}
    asked, regions = _Asked(places="cloud"), set[str]()
    for path in paths:
        date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        for row in _rows(path, read_table(path), asked, regions, {}):
            key = row.place, row.card.name, row.gpus
            usd = float(row.price)
            if key not in best or usd < best[key].usd_per_hour:
                best[key] = Price(*key, usd, date, f"list {row.place}")
    if not best:
        raise InstanceError(_nothing(paths, asked, regions))
    return [price for _, price in sorted(best.items())]


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


def _place(path: Path, region: str, told: str | None, *, spot: bool) -> str:
    """Return the place and kind of an offer: SkyPilot's lists are `CLOUD/vms.csv`."""
    kind = ["spot"] if spot else []
    if told == "none":
        return "".join(kind)
    cloud = path.resolve().parent.name if path.stem == "vms" else path.stem
    return "-".join([cloud if told == "cloud" else f"{cloud}/{region}", *kind])


def _rows(
    path: Path, table: Table, asked: _Asked, regions: set[str], gone: _Gone
) -> Iterator[_Row]:
    """Yield the rows with GPUs of a known card, one for each of their prices.

    Regions of all rows are put into `regions`, and how often cards are named that are
    left out into `gone`, by the reason.
    """
    columns = ("Price", "SpotPrice") if asked.spot else ("Price",)
    if missing := [c for c in (*_NEEDED, *columns) if c not in table.columns]:
        raise InstanceError.at(
            path,
            "line 1",
            f"found no column {', '.join(dict.fromkeys(missing))}, expected those of "
            "a SkyPilot catalogue (vms.csv), with USD an hour of a machine as Price; "
            "name that file, or the columns so",
        )
    for number, line in table.rows:
        name, region = _text(line, "AcceleratorName"), line.get("Region") or ""
        if not name:
            continue
        regions.add(region)
        if asked.region and region != asked.region:
            continue
        with naming(path):
            yield from _of_line(line, f"line {number}", columns, path, asked, gone)


def _of_line(
    line: Mapping[str, str | None],
    place: str,
    columns: Sequence[str],
    path: Path,
    asked: _Asked,
    gone: _Gone,
) -> Iterator[_Row]:
    name, region = _text(line, "AcceleratorName"), line.get("Region") or ""
    prices = {column: _text(line, column) for column in columns}
    card = skypilot_gpus().get(name) or find_gpu(name)
    why = None
    if not any(prices.values()):
        why = _UNPRICED
    elif card is None:
        why = _UNKNOWN
    elif not card.is_gpu:
        why = "accelerators that are no GPUs"
    elif (count := _number(line["AcceleratorCount"], f"{place}: AcceleratorCount")) % 1:
        why = "shares of a card"
    elif not 0 < count <= 1024:
        _refuse(f"{place}: AcceleratorCount", str(count), "1 to 1024; correct it")
    if why is not None or card is None:
        gone.setdefault(why or _UNKNOWN, Counter())[name] += 1
        return
    for column, text in prices.items():
        if not text:
            continue
        spot = column == "SpotPrice"
        where = _place(path, region, asked.places, spot=spot)
        price = _number(text, f"{place}: price")
        if price < 0:
            _refuse(f"{place}: price", text, "0 or more")
        if not price:  # nobody rents for nothing
            gone.setdefault("prices that are 0", Counter())[name] += 1
            continue
        is_alone = not (line.get("InstanceType", name) or "").strip()
        yield _Row(name, int(count), where, price, card, spot, is_alone)


def _text(line: Mapping[str, str | None], column: str) -> str:
    return (line[column] or "").strip()


def _number(text: str | None, place: str) -> Decimal:
    with suppress(InvalidOperation):
        if (number := Decimal((text or "").strip())).is_finite():
            return number
    _refuse(place, text, "a number; correct it")


def _refuse(place: str, text: str | None, expected: str) -> NoReturn:
    words = f"found {cut(repr(text))}, expected {expected}"
    raise InstanceError.at(None, place, words)


def _nothing(paths: Sequence[Path], asked: _Asked, regions: set[str]) -> str:
    names = ", ".join(map(str, paths))
    if asked.region and asked.region not in regions:
        known = ", ".join(sorted(regions)[:20]) or "none"
        return (
            f"{names}: found no GPUs in region {asked.region!r}, expected one of "
            f"{known}; name one of those"
        )
    kind = "a spot price" if asked.spot else "a price"
    return f"{names}: found no known GPU with {kind}; name another list"
