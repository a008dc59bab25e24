"""Changed certificates: none proves a bound beyond the optimum."""

import json
from random import Random
from typing import Any

import certificate_mutator as mutator

from soaking import Contradiction

WEIGHT = 140


def draw(rng: Random) -> dict[str, Any]:
    """A document that a forger made of an honest one."""
    subject, is_json = rng.choice(mutator.subjects()), rng.random() < 0.9
    change, tree = mutator.changed(rng, subject)
    return {
        "data": subject.data.model_dump(mode="json"),
        "change": change,
        "text": mutator.written(tree, is_json=is_json),
        "is_json": is_json,
    }


def check(data: dict[str, Any]) -> str:
    """Accepted only where the best of all plans confirms the bound."""
    subject = mutator.subject_of(json.dumps(data["data"]))
    found, bound = mutator.outcome(subject, data["text"], is_json=data["is_json"])
    if found == "accepted" and not subject.is_true(bound):
        raise Contradiction(
            f"{data['change']}: {bound} is accepted, the optimum is {subject.optimum}: "
            f"{data['text']}"
        )
    if found == "no file named":
        raise Contradiction(f"a complaint does not name its file: {data['text']}")
    return found
