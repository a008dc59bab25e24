"""Line charts, step charts and scatter plots as positions, for a page to draw as SVG.

Only positions and words are computed here; `charts.html.j2` draws them, in colours
that a style sheet gives, light or dark.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..performance_profiles import Growth, Profile

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 44
COLOURS = 10  # that the style sheet has; more series are dashed
MOST_SERIES = 20
_LEAST, _MOST = 1e-300, 1e300

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and how its marks read."""

    label: str
    log: bool = False
    kind: Literal["number", "share", "seconds", "factor"] = "number"

    def place(self, value: float) -> float:
        """The value on a scale that is linear on the page."""
        return math.log10(value) if self.log else value

    def text(self, value: float) -> str:
        """A mark's words."""
        if self.kind == "share":
            return f"{value * 100:g} %"
        if self.kind == "factor":
            return f"{value:g} ×"
        return f"{value:g} s" if self.kind == "seconds" else f"{value:g}"


@dataclass(frozen=True)
class Mark:
    """A mark of an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Drawn:
    """One series: a path, dots, or both."""

    name: str
    colour: int
    dashed: bool
    path: str
    dots: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Chart:
    """A picture with its words."""

    title: str
    note: str
    x: Axis
    y: Axis
    x_marks: tuple[Mark, ...]
    y_marks: tuple[Mark, ...]
    series: tuple[Drawn, ...]


def chart(
    title: str,
    note: str,
    axes: tuple[Axis, Axis],
    series: Mapping[str, Sequence[Point]],
    *,
    style: Literal["step", "line", "dots"] = "line",
    lines: Mapping[str, Sequence[Point]] | None = None,
) -> Chart | None:
    """Series on one pair of axes; None where there is nothing to draw.

    `lines` are drawn through the dots of the series with the same name. Beyond twenty
    series the rest are left out, and the note says how many.
    """
    x, y = axes
    kept = {
        name: [p for p in points if _drawable(p, axes)]
        for name, points in series.items()
    }
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return None
    if len(kept) > MOST_SERIES:
        note += f" Shown: {MOST_SERIES} of {len(kept)}."
        kept = dict(list(kept.items())[:MOST_SERIES])
    every = [p for points in kept.values() for p in points]
    scale_x = _Scale(x, [p[0] for p in every], LEFT, WIDTH - RIGHT)
    scale_y = _Scale(y, [p[1] for p in every], HEIGHT - BOTTOM, TOP)

    def drawn() -> Iterator[Drawn]:
        for number, (name, points) in enumerate(kept.items()):
            through = (lines or {}).get(name, points if style != "dots" else ())
            at = [(scale_x.at(a), scale_y.at(b)) for a, b in through]
            yield Drawn(
                name=name,
                colour=number % COLOURS,
                dashed=number >= COLOURS,
                path=_path(at, step=style == "step"),
                dots=tuple(
                    (scale_x.at(a), scale_y.at(b), f"{x.text(a)}, {y.text(b)}")
                    for a, b in points
                    if style == "dots" or len(points) == 1
                ),
            )

    return Chart(
        title, note, x, y, tuple(scale_x.marks()), tuple(scale_y.marks()), (*drawn(),)
    )


def profile_chart(title: str, note: str, found: Mapping[str, Profile]) -> Chart | None:
    """Performance profiles: the share of instances within a factor of the best.

    Methods that solved nothing are left out; None where no two are left, or all tie.
    """
    found = {name: profile for name, profile in found.items() if profile.ratios}
    last = max((p.ratios[-1] for p in found.values()), default=1.0) * 1.02
    if len(found) < 2 or len(set(found.values())) < 2:
        return None

    def points(profile: Profile) -> list[Point]:
        corners = sorted({1.0, *profile.ratios, last})
        return [(factor, profile.share(factor)) for factor in corners]

    axes = (
        Axis("factor of the best", log=True, kind="factor"),
        Axis("instances", kind="share"),
    )
    curves = {name: points(profile) for name, profile in found.items()}
    return chart(title, note, axes, curves, style="step")


def trace_chart(
    title: str, note: str, curves: Mapping[str, Sequence[Point]]
) -> Chart | None:
    """Gap against time; a gap of 0 is drawn at the bottom, at 0.01 %."""
    least = 1e-4
    shown = {
        name: [(seconds, max(gap, least)) for seconds, gap in curve]
        for name, curve in curves.items()
    }
    axes = (
        Axis("seconds", log=True, kind="seconds"),
        Axis("gap to the bound", log=True, kind="share"),
    )
    return chart(title, note, axes, shown, style="step")


def growth_chart(
    title: str,
    note: str,
    size: str,
    points: Mapping[str, Sequence[Point]],
    laws: Mapping[str, Growth],
) -> Chart | None:
    """Time against size on logarithmic axes, with the power laws that were fitted."""
    if len({x for found in points.values() for x, _ in found}) < 3:
        return None
    lines = {
        name: [(x, law.at(x)) for x in _ends(points[name])]
        for name, law in laws.items()
        if name in points
    }
    axes = (Axis(size, log=True), Axis("seconds", log=True, kind="seconds"))
    return chart(title, note, axes, points, style="dots", lines=lines)


# --- positions -------------------------------------------------------------------


def _drawable(point: Point, axes: tuple[Axis, Axis]) -> bool:
    return all(
        # Beyond these, neither halves nor steps of an axis are numbers.
        abs(value) <= _MOST and (value >= _LEAST or not axis.log)
        for value, axis in zip(point, axes, strict=True)
    )


def _ends(points: Sequence[Point]) -> tuple[float, float]:
    sizes = [x for x, _ in points]
    return min(sizes), max(sizes)


def _path(at: Iterable[Point], *, step: bool) -> str:
    """An SVG path; a step stays at its height until the next point."""
    words: list[str] = []
    for x, y in at:
        if not words:
            words.append(f"M{x:.1f} {y:.1f}")
        else:
            words.append(f"H{x:.1f}V{y:.1f}" if step else f"L{x:.1f} {y:.1f}")
    return "".join(words) if len(words) > 1 else ""


class _Scale:
    """From values to positions, and where the marks stand."""

    def __init__(
        self, axis: Axis, values: Sequence[float], start: float, end: float
    ) -> None:
        self.axis, self.start, self.end = axis, start, end
        low, high = min(values), max(values)
        if not axis.log:
            low = min(low, 0.0)
            high = max(high, 1.0) if axis.kind == "share" else high
        if math.isclose(low, high) or high - low < _LEAST:
            low, high = (low / 2, high * 2) if axis.log else (low, high + 1)
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        low, high = self.axis.place(self.low), self.axis.place(self.high)
        value = min(max(self.axis.place(value), low), high)
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def marks(self) -> Iterator[Mark]:
        for value in self._values():
            # Rounding apart: 0.30000000000000004 is a mark at 0.3.
            value = float(f"{value:.10g}")
            yield Mark(round(self.at(value), 1), self.axis.text(value))

    def _values(self) -> list[float]:
        if not self.axis.log:
            return _round_steps(self.low, self.high)
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        for digits in ((1, 2, 5), (1, 3), (1,)):
            found = [
                digit * 10.0**power
                for power in range(first, last + 1)
                for digit in digits
                if self.low <= digit * 10.0**power <= self.high
            ]
            if len(found) <= 8:
                break
        while len(found) > 8:
            found = found[::2]
        # Within one decade, few round numbers may be left: take even steps then.
        return found if len(found) > 2 else _round_steps(self.low, self.high)


def _round_steps(low: float, high: float) -> list[float]:
    """Three to six marks at 1, 2 or 5 times a power of ten."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(d * power for d in (1, 2, 5, 10) if d * power >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]
