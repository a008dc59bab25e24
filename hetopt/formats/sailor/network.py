"""Sailor's fits of networks: bandwidth by message size, as links of a cluster.

A fit is `[[a, b, c], cap]`: GB/s = a x^2 + b x + c with x = log2(message in MB), at
most `cap` bytes/s. Its link is the line nearest to the times of messages of 1 MB to
1 GB: a latency and a rate. Files are distinguished by their shape:

    {zone: {type: {GPUs: {zone: {type: {GPUs: fit}}}}}}    between machines, one way
    {"inter": {type: {GPUs: fit}}, "intra": {...}}         between and within equal ones
    {type: {GPUs: fit}}                                    within a machine

Between machines the rate is that of the most GPUs that were fitted and both have, the
latency that of one. Where more GPUs get more, `adapters` is how many times as much all
get as one. Fits of machines in one zone count, of different zones where there is no
other. Public fits of one pair disagree: the slower counts, and the rest is told.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InstanceError
from ...text.parsing import read_value
from ..documents import Document, Values

_SIZES_MB = [2.0**x for x in range(11)]
_ALIKE = 1.05  # rates within so much of each other are one measurement
_MORE = 1.2  # so many times one GPU's rate is more than one adapter's


class Line(NamedTuple):
    """A link: latency in us, and GB/s."""

    latency_us: float
    gbytes_per_s: float


class Ends(NamedTuple):
    """Two ends of a measurement: GPU types that send and receive, and GPUs of each."""

    sender: str
    receiver: str
    sending: int
    receiving: int


def line(fit: Any, place: str = "the fit") -> Line:
    """Return the line of a fit; `InstanceError` with the place where it is none."""
    try:
        (a, b, c), cap = fit
        rates = [
            min((a * x * x + b * x + c) * 1e9, cap) for x in map(math.log2, _SIZES_MB)
        ]
    except (TypeError, ValueError):
        rates = []
    if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise InstanceError(
            f"{place}: found {fit!r}, expected [[a, b, c], cap] with a positive "
            "bandwidth from 1 MB to 1 GB; correct it"
        )
    times = [m * 2**20 / rate for m, rate in zip(_SIZES_MB, rates, strict=True)]
    # Rows (1 / t, m / t) . (alpha, 1 / beta) = 1: normal equations of two unknowns.
    rows = [(1 / t, m * 2**20 / t) for m, t in zip(_SIZES_MB, times, strict=True)]
    xx, xy, yy = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = (sum(r[i] for r in rows) for i in (0, 1))
    det = xx * yy - xy * xy
    alpha, inverse = (yy * x - xy * y) / det, (xx * y - xy * x) / det
    return Line(max(0.0, round(alpha * 1e6, 3)), round(1 / inverse / 1e9, 3))


class Fits:
    """All fits of some files, by who sends to whom."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Read the files; `InstanceError` for one that has another shape."""
        self._within: dict[tuple[str, int], list[Line]] = {}
        self._near: dict[Ends, list[Line]] = {}
        self._far: dict[Ends, list[Line]] = {}
        self.disagreements: list[str] = []
        for path in paths:
            self._read(read_value(path), str(path))

    def _read(self, tree: object, path: str) -> None:
        if not isinstance(tree, dict) or not tree:
            raise InstanceError(
                f"{path}: found {type(tree).__name__}, expected fits by type of GPU; "
                "correct it"
            )
        if tree.keys() <= {"inter", "intra"}:
            self._of_one_type(tree.get("inter", {}), f"{path}: inter", between=True)
            self._of_one_type(tree.get("intra", {}), f"{path}: intra", between=False)
            return
        rows = list(_leaves(tree, ()))
        depths = {len(keys) for keys, _ in rows}
        if depths == {2}:
            self._of_one_type(tree, path, between=False)
            return
        if depths != {6}:
            raise InstanceError(
                f"{path}: found fits {', '.join(map(str, sorted(depths)))} deep, "
                "expected {type: {GPUs: fit}} or {zone: {type: {GPUs: {zone: {type: "
                "{GPUs: fit}}}}}}; correct it"
            )
        for (zone, one, n, other_zone, two, m), fit in rows:
            place = f"{path}: {zone}.{one}.{n}.{other_zone}.{two}.{m}"
            ends = Ends(_fold(one), _fold(two), _count(n, place), _count(m, place))
            found = self._near if zone == other_zone else self._far
            found.setdefault(ends, []).append(line(fit, place))

    def _of_one_type(self, tree: object, path: str, *, between: bool) -> None:
        for keys, fit in _leaves(tree, ()):
            place = f"{path}: {'.'.join(keys)}"
            if len(keys) != 2:
                raise InstanceError(
                    f"{place}: found a fit {len(keys)} deep, expected "
                    "{type: {GPUs: fit}}; correct it"
                )
            kind, n = _fold(keys[0]), _count(keys[1], place)
            if between:
                self._near.setdefault(Ends(kind, kind, n, n), []).append(
                    line(fit, place)
                )
            else:
                self._within.setdefault((kind, n), []).append(line(fit, place))

    def within(self, kinds: Sequence[str], gpus: int) -> Line | None:
        """Return the link within a machine, fitted for the most GPUs that it has."""
        names = list(map(_fold, kinds))
        counts = [n for kind, n in self._within if kind in names and n <= gpus]
        if not counts:
            return None
        most = max(counts)
        found = [x for k in names for x in self._within.get((k, most), ())]
        return self._slowest(found, f"{most} GPUs of {kinds[0]}")

    def between(
        self, one: Sequence[str], two: Sequence[str], sending: int, receiving: int
    ) -> Line | None:
        """One way between machines of types by any of their names; None: no fit."""
        for fits in (self._near, self._far):
            alike = [
                ends
                for ends in fits
                if ends.sender in map(_fold, one)
                and ends.receiver in map(_fold, two)
                and ends.sending <= sending
                and ends.receiving <= receiving
            ]
            if not alike:
                continue
            most = max(min(ends[2:]) for ends in alike)
            names = f"{one[0]} -> {two[0]}"
            rows = [x for e in alike if e[2:] == (most, most) for x in fits[e]]
            ones = [x for e in alike if e[2:] == (1, 1) for x in fits[e]]
            if rows and ones:
                one_gpu = self._slowest(ones, f"{names}, 1 GPU")
                every = self._slowest(rows, f"{names}, {most} GPUs")
                rate = self._plausible(one_gpu, every, most, names)
                return Line(one_gpu.latency_us, rate)
            if rows:
                return self._slowest(rows, f"{names}, {most} GPUs")
        return None

    def _plausible(self, one: Line, every: Line, gpus: int, names: str) -> float:
        """GB/s of all GPUs: no less than one's, and no more than of as many ones."""
        least, most = one.gbytes_per_s / _ALIKE, _ALIKE * gpus * one.gbytes_per_s
        if least <= every.gbytes_per_s <= most:
            return every.gbytes_per_s
        self._tell(
            f"{names}: {one.gbytes_per_s:g} GB/s of 1 GPU, "
            f"{every.gbytes_per_s:g} GB/s of {gpus}"
        )
        return min(one.gbytes_per_s, every.gbytes_per_s)

    def adapters(self, kinds: Sequence[str], gpus: int) -> int | None:
        """Return how many GPUs' rate a whole machine has; None where nothing fits."""
        all_of_them = self.between(kinds, kinds, gpus, gpus)
        one = self.between(kinds, kinds, 1, 1)
        if all_of_them is None or one is None or gpus == 1:
            return None
        times = all_of_them.gbytes_per_s / one.gbytes_per_s
        return max(1, min(gpus, round(times))) if times >= _MORE else 1

    def _slowest(self, found: Sequence[Line], what: str) -> Line:
        """Return the slowest of some fits of one link; that they disagree is kept."""
        slowest = min(found, key=lambda each: each.gbytes_per_s)
        fastest = max(each.gbytes_per_s for each in found)
        if fastest > _ALIKE * slowest.gbytes_per_s:
            self._tell(f"{what}: {slowest.gbytes_per_s:g} or {fastest:g} GB/s")
        return slowest

    def _tell(self, what: str) -> None:
        if what not in self.disagreements:
            self.disagreements.append(what)


def join(cluster: Document, fits: Fits, names: Mapping[str, Sequence[str]]) -> None:
    """Put the fitted links into a cluster; `names` are those of each type in the files.

    A pair of types without a fit keeps the rate that was told for all; where none was
    told, that is an `InstanceError`.
    """
    nodes = cluster["nodes"]
    for node in nodes:
        kinds = names[node["gpu"]]
        inside = fits.within(kinds, node["count"])
        if inside is not None:
            node["intra_gbytes_per_s"] = inside.gbytes_per_s
            node["intra_latency_us"] = inside.latency_us
        if (adapters := fits.adapters(kinds, node["count"])) is not None:
            node["adapters"] = adapters
    rows = {
        (i, j): _pair(one, other, cluster, fits, names)
        for i, one in enumerate(nodes)
        for j, other in enumerate(nodes)
        if i < j
    }
    fitted = Counter(row for row in rows.values() if row is not None)
    if not fitted:
        return
    usual = cluster.get("inter")
    if usual is None:
        # The commonest is that of all; what differs is a pair.
        rate, latency, _ = next(
            (row for row, _ in fitted.most_common() if row[2] is None),
            (None, 0.0, None),
        )
        usual = {"gbytes_per_s": rate, "latency_us": latency} if rate else {}
    own = (usual.get("gbytes_per_s"), usual.get("latency_us", 0.0), None)
    pairs = [
        [nodes[i]["name"], nodes[j]["name"], *row]
        for (i, j), row in rows.items()
        if row is not None and row != own
    ]
    cluster["inter"] = {**usual, **({"pairs": pairs} if pairs else {})}


_Row = tuple[float, float, float | None]  # GB/s, us, GB/s back


def _pair(
    one: Values,
    other: Values,
    cluster: Values,
    fits: Fits,
    names: Mapping[str, Sequence[str]],
) -> _Row | None:
    kinds = names[one["gpu"]], names[other["gpu"]]
    counts = one["count"], other["count"]
    there = fits.between(kinds[0], kinds[1], counts[0], counts[1])
    back = fits.between(kinds[1], kinds[0], counts[1], counts[0])
    if there is None and back is None:
        if "inter" not in cluster:
            raise InstanceError(
                f"network: found no fit between {kinds[0][0]} and {kinds[1][0]}, "
                "expected one; measure it, or give -o inter_gbytes_per_s=X for "
                "pairs without"
            )
        return None
    there, back = there or back, back or there
    assert there is not None
    assert back is not None
    latency = max(there.latency_us, back.latency_us)
    other_way = None if back.gbytes_per_s == there.gbytes_per_s else back.gbytes_per_s
    return there.gbytes_per_s, latency, other_way


def _leaves(
    tree: object, keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(tree, dict) and len(keys) < 8:
        for key, inner in tree.items():
            yield from _leaves(inner, (*keys, str(key)))
    else:
        yield keys, tree


def _fold(name: str) -> str:
    return name.replace("_", "-").casefold()


def _count(key: str, place: str) -> int:
    if not key.isdecimal() or not 1 <= int(key[:6]) == int(key) <= 4096:
        raise InstanceError(
            f"{place}: found {key[:20]!r} GPUs, expected a number from 1; correct it"
        )
    return int(key)
