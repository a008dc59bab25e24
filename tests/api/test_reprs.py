"""What a user sees who types a call in a prompt: a line or a few, not pages."""

from collections.abc import Callable
from typing import Any

import pytest

import hetopt
from hetopt.planners import megatron

SMALL, OFFERS = "tiny/two-nodes", "tiny/offers"


def plan() -> Any:
    return megatron.plan(hetopt.load(SMALL))


ANSWERS: dict[str, Callable[[], Any]] = {
    "plan": lambda: hetopt.plan(SMALL, "megatron"),
    "provision": lambda: hetopt.provision(OFFERS, deadline_s=100),
    "frontier": lambda: hetopt.frontier(OFFERS),
    "compare": lambda: hetopt.compare(SMALL, ["megatron", "whale"]),
    "check": lambda: hetopt.check(plan(), SMALL),
    "explain": lambda: hetopt.explain(plan(), SMALL, limits=0),
    "recover": lambda: hetopt.recover(
        plan(), SMALL, ["node1"], old_instance=SMALL, planners=["megatron"]
    ),
    "fit": lambda: hetopt.fit("gpt2", ["A100-40G"], 4),
    "schedule": lambda: hetopt.schedule("generated:queue/8/1", ["opportunistic"])[0],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_shown_in_a_few_lines(name: str) -> None:
    shown = repr(ANSWERS[name]())
    assert len(shown) <= 300
    assert len(shown.splitlines()) <= 4
