"""A current run, as `hetopt check --from` has it, read from its own files."""

from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path

from ..costs.constants.shipped import is_seen
from ..formats import runs
from ..formats.importing import changes
from ..formats.importing.asked import Asked
from ..formats.importing.changes import Advice
from ..formats.importing.placing import Claim, Settings
from ..formats.runs.source import Size
from ..result import Bound
from ..schema import Instance
from ..text.documents import Document
from .calling import AnyInstance
from .judging import load, no_plan_is_shorter
from .measured import Measurement


class CurrentRun:
    """A run that its files tell, judged against an instance and improved there."""

    def __init__(self, paths: Sequence[Path], instance: AnyInstance | None) -> None:
        self.asked: Asked
        self.module, self.asked = changes.recognise(paths)
        self.data: Instance | None = None
        self.claim: Claim | None = None
        if instance is not None:
            self.data = load(instance)
            self.claim = self.module.claimed(self.asked, self.data)
        self.advice: Advice | None = None

    def improve(self, time_limit: float) -> None:
        """Look for settings to change, where all ranks have the same ones."""
        assert self.data is not None
        if self.settings is None:
            return
        self.advice = changes.advise(self.module, self.asked, self.data, time_limit)

    def bound(self) -> "Bound | None":
        """Return what no plan is shorter than with any of the settings that were tried.

        None where no instance offers them all.
        """
        offering = self.advice.offering if self.advice is not None else ()
        found = [no_plan_is_shorter(one) for one in offering]
        return min(found, key=lambda one: one.value) if found else None

    @property
    def full_length(self) -> int | None:
        """Return the tokens each sequence is counted at, if some may be shorter."""
        if self.data is None or not self.asked.has_short_sequences:
            return None
        return self.data.workload.sequence_length

    @property
    def settings(self) -> Settings | None:
        """Return what all ranks are set to; None where an instance has not told."""
        return None if self.claim is None else self.claim.settings

    def measured(self) -> "Measurement | None":
        """Return what the files say that an iteration takes; None where none does."""
        claim = self.claim
        if claim is None or claim.plan is None or self.data is None:
            return None
        work = self.data.workload
        gpus = sum(len(replica.gpus) for replica in claim.plan.replicas())
        size = Size(work.global_batch, work.sequence_length, gpus)
        for file in self.asked.files:
            if (one := runs.measured(file.source, size)) is not None:
                of = f"{one.counted:,} iterations" if one.counted else "the whole run"
                after = f" after {one.left_out:,} of warm-up" if one.left_out else ""
                return Measurement(one.seconds, f"{one.kind} of {of}{after}")
        return None

    @property
    def notes(self) -> "Iterator[str]":
        """Yield what makes a prediction of this run less certain than of others."""
        if self.full_length is not None:
            yield (
                "sequences are not packed, so each is counted at "
                f"{self.full_length:,} tokens; shorter ones run faster and use less "
                "memory"
            )
        gpus = self.data.planned_cluster.gpus.values() if self.data is not None else ()
        cards = {gpu.card for gpu in gpus if gpu.card and not is_seen(gpu.card)}
        if cards:
            yield (
                f"not calibrated here: {', '.join(sorted(cards))}, so times there have "
                "a wider interval"
            )

    def to_json(self) -> Document:
        """Return what was read, and what to change."""
        document: Document = {
            "run": {
                "kind": self.asked.what,
                "files": [file.place for file in self.asked.files],
                "values": {k: _plain(v) for k, v in self.asked.values.items()},
                "not_read": list(self.asked.unread),
                "settings": self.settings and self.settings._asdict(),
            }
        }
        if self.full_length is not None:
            document["counted_at_full_length"] = self.full_length
        if self.claim is None:
            document["notes"] = list(self.asked.notes)
        if self.advice is not None:
            document["advice"] = self.advice.to_json()
        return document


def _plain(value: object) -> object:
    """A value that JSON has, else its text: TOML has dates, and infinity."""
    is_number = isinstance(value, float) and isfinite(value)
    return value if is_number or isinstance(value, str | int | None) else str(value)
