"""A symmetric run in the model's terms, and what the formulas say of it."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from ..constants import Table
from ..formulas import iteration, memory
from ..formulas.architecture import Architecture
from ..formulas.layout import Layout
from ..formulas.machine import Machine


class NotModelled(Exception):
    """A run that the model cannot express; the text says why, and what would help."""


def untold(fields: Sequence[str], what: str = "") -> NotModelled:
    """Return the refusal of a run that leaves fields out; `what` says what to give."""
    it = what or ("it" if len(fields) == 1 else "them")
    return NotModelled(f"{', '.join(fields)} missing: give {it}")


class Described(NamedTuple):
    """A run in the model's terms."""

    machine: Machine
    architecture: Architecture
    layout: Layout

    def terms(self, c: Table) -> Mapping[str, float]:
        """Return the seconds of an iteration by term."""
        return iteration.terms(c, *self)

    def peak(self, c: Table) -> memory.Terms:
        """Return the bytes by term of the fullest GPU, as they show."""
        return memory.peak(c, *self)

    def died(self, c: Table) -> float:
        """Return the chance that the run dies of memory."""
        return memory.died(c, *self)

    def systems(self, model: str | None) -> tuple[str, ...]:
        """Return what one run tells of another: framework and card, and model."""
        own = f"{self.layout.framework}/{self.machine.card}"
        return own, f"{own}/{self.layout.precision}", f"{own}/{model}"

    @property
    def configuration(self) -> Hashable:
        """Return what runs have in common that differ in batches alone."""
        return replace(self.layout, micro_batch=1, micro_batches=1)

    def recomputing(self) -> Self:
        """Return the run if it recomputed everything."""
        layout = replace(self.layout, recompute="full", recomputed=1.0)
        return self._replace(layout=layout)
