"""A queue as a document, which commands print and the page shows."""

from collections.abc import Sequence
from dataclasses import asdict

from .scheduler import Queue
from .store import Entry


def document(queue: Queue, entries: Sequence[Entry]) -> dict[str, object]:
    """Return jobs of a queue, with their states, plans and reasons."""
    rows = [
        {
            "id": entry.number,
            "name": entry.job.name,
            "state": entry.state,
            "why": entry.why or None,
            "job": entry.job.model_dump(mode="json"),
            "steps": entry.job.total_steps,
            "saved_step": entry.done_steps,
            "submitted_s": entry.submitted,
            "ended_s": entry.ended,
            "attempts": [asdict(one) for one in entry.attempts],
        }
        for entry in entries
    ]
    settings = queue.settings
    return {
        "queue": str(queue.store.folder),
        "engine": settings.engine,
        "policy": settings.policy,
        "jobs": rows,
    }
