"""A recovery's document carried out on a checkpoint's folder.

The new folder keeps the document in its `recovery.json`, with the digest of what was
asked for. The same request later goes on with that recovery: planning anew, in limited
time, could end with another plan.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import checkpoints
from ..errors import InstanceError
from ..plans import Recovery, TrainingPlan
from ..problems.recovery import CLOUD, Saved
from ..recovery import posing
from ..recovery.posing import Storage
from ..text.complaints import validated
from ..text.parsing import read_text
from .judging import load


def request(
    old_plan: str, instance: str, new_plan: Path | None, words: Sequence[Any]
) -> str:
    """The digest of what is asked for: the files' contents, and the other options."""
    texts = [read_text(Path(path)) for path in (old_plan, new_plan) if path is not None]
    asked = [texts, load(instance).digest, list(words)]
    text = json.dumps(asked, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def earlier(out: Path, asked: str) -> dict[str, Any] | None:
    """The document of a recovery that `out` was begun for by the same request.

    Raises `InstanceError` where it was begun by another.
    """
    document = checkpoints.begun(out)
    if document is not None and document.get("request") != asked:
        raise InstanceError(
            f"{out}: found the recovery of another request, expected an empty folder "
            "or the same options as before; name another folder or remove this one"
        )
    return document


def saved_in(checkpoint: Path, instance: str, storage: Storage) -> list[Saved]:
    """The shards that lie in a checkpoint and that the problem may count on."""
    data = load(instance)
    units = [unit.name for unit in posing.units(data)]
    rows = checkpoints.saved_rows(checkpoint, data.model, units, storage.media[0])
    gone = _unread(storage)
    return [row for row in rows if row.place not in gone]


def _unread(storage: Storage) -> set[str]:
    """Places whose shards do not count: too old, or out of reach."""
    return {*storage.unsaved, *([] if storage.cloud_gbytes_per_s else [CLOUD])}


def to_apply(
    document: Mapping[str, Any], asked: str, storage: Storage
) -> dict[str, Any]:
    """A result document with what it takes to carry it out, now or later."""
    alive = {node["name"] for node in document["instance"]["nodes"]}
    places = sorted((alive | {CLOUD}) - _unread(storage))
    return {**document, "request": asked, "places": places}


def carried_out(
    document: Mapping[str, Any],
    checkpoint: Path,
    out: Path,
    report: Callable[[int, int], None] | None = None,
) -> checkpoints.Applied:
    """Move the shards as a recovery's document says, and keep it in `recovery.json`."""
    where = str(out / "recovery.json")
    recovery = validated(Recovery, document.get("plan"), where, ("plan",))
    made = document.get("new_plan")
    tree = made.get("plan") if isinstance(made, dict) else None
    plan = validated(TrainingPlan, tree, where, ("new_plan", "plan"))
    manifest = checkpoints.read_manifest(checkpoint)
    places = document.get("places") or []
    readable = [s for s in checkpoints.catalogue(checkpoint) if s.place in places]
    whole = checkpoints.completed(recovery, plan, manifest, readable)
    return checkpoints.apply(whole, checkpoint, out, report, document)
