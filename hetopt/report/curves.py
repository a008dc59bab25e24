"""Performance profiles and gaps over time of many runs: as numbers, and drawn.

`compare --curves` and `bench` write them: `profiles.csv` and `gap_over_time.csv` have
every step of every curve, an SVG beside them each picture.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..performance_profiles import LEAST_S, Profile, ScoredRun, proof, quality
from ..result import known_gap
from ..text.writing import writable, write_bytes, write_text
from . import figures, writers
from .sheet import Figure

QUALITY, PROOF = "quality", "proof"
_PROFILE_FIELDS = ("problem", "measure", "method", "factor", "share")
_COURSE_FIELDS = (
    *("problem", "instance", "method", "seed", "seconds", "objective", "bound", "gap"),
)
_TOLD = {
    QUALITY: (
        "Performance profile: quality",
        "The share of instances on which a method's plan is within a factor of the "
        "best plan of this page (Dolan and Moré). Where a method found none, its curve "
        "stays below the top; methods without any plan are not drawn.",
    ),
    PROOF: (
        "Performance profile: time to a proof",
        "The share of instances that a method proved within a factor of the fastest "
        "proof of this page. An instance that nobody proved is left out for all, and "
        "methods that proved none are not drawn.",
    ),
}


@dataclass(frozen=True)
class Curves:
    """How methods compare over the runs of one problem, and how their gaps closed."""

    problem: str
    runs: Sequence[ScoredRun]

    @cached_property
    def profiles(self) -> Mapping[str, Mapping[str, Profile]]:
        """Return profiles by measure and method."""
        return {QUALITY: quality(self.runs), PROOF: proof(self.runs)}

    def profile(self, measure: str) -> Figure | None:
        """Return the picture of a measure; None where it shows no difference."""
        return figures.profiles(*_TOLD[measure], self.profiles[measure])

    def traces(self) -> Figure | None:
        """Return the picture of gaps over time; None where no run has a gap."""
        found = {_name(run): _gaps(run) for run in self.runs}
        return figures.traces({name: gaps for name, gaps in found.items() if gaps})

    def drawn(self) -> Iterator[tuple[str, Figure]]:
        """Yield each picture under the name of its file."""
        for measure in _TOLD:
            if (figure := self.profile(measure)) is not None:
                yield f"profile_{measure}", figure
        if (figure := self.traces()) is not None:
            yield "gap_over_time", figure


def _name(run: ScoredRun) -> str:
    """The run, in a legend."""
    seed = f", seed {run.seed}" if run.seed else ""
    return f"{run.instance}, {run.label}{seed}"


def _gaps(run: ScoredRun) -> list[tuple[float, float]]:
    """Return seconds and the gap by then, from when there is one."""
    return [
        (max(float(seconds), LEAST_S), gap)
        for seconds, incumbent, bound in run.trace
        if (gap := known_gap(incumbent, bound)) is not None
    ]


def write(folder: Path, found: Sequence[Curves]) -> None:
    """Write the numbers and pictures into a folder, each file whole.

    Pictures of several problems have the problem in their names.
    """
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "profiles.csv": (_PROFILE_FIELDS, _shares(found)),
        "gap_over_time.csv": (_COURSE_FIELDS, _points(found)),
    }
    for name, (fields, rows) in texts.items():
        write_text(folder / name, writers.comma_separated(fields, rows))
    for curves in found:
        of = f"-{curves.problem}" if len(found) > 1 else ""
        for name, figure in curves.drawn():
            picture = figures.picture(figure.draw, "svg")
            write_bytes(folder / f"{name}{of}.svg", picture)


def _shares(found: Sequence[Curves]) -> Iterator[dict[str, object]]:
    for curves in found:
        for measure, profiles in curves.profiles.items():
            for method, profile in profiles.items():
                for factor in sorted({1.0, *profile.ratios}):
                    yield {
                        "problem": curves.problem,
                        "measure": measure,
                        "method": method,
                        "factor": factor,
                        "share": profile.share(factor),
                    }


def _points(found: Sequence[Curves]) -> Iterator[dict[str, object]]:
    for curves in found:
        for run in curves.runs:
            for seconds, objective, bound in run.trace:
                yield {
                    "problem": curves.problem,
                    "instance": run.instance,
                    "method": run.label,
                    "seed": run.seed,
                    "seconds": seconds,
                    "objective": None if objective is None else float(objective),
                    "bound": None if bound is None else float(bound),
                    "gap": known_gap(objective, bound),
                }
