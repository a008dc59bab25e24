"""Questions are answered in one sentence, the first line; each is a function, too."""

import re

import pytest
from command_line import said
from places import INSTANCES

import hetopt

TWO_NODES = str(INSTANCES / "tiny" / "two-nodes.yaml")
OFFERS = "espresso/llama-7b"
QUESTIONS = {
    "fit": ("fit", TWO_NODES, "--time-limit", "1"),
    "scale": ("scale", TWO_NODES, "--time-limit", "1"),
    "rent": (
        *("rent", TWO_NODES, "--tokens", "1B", "--gpus", "H100-80GB-SXM5"),
        *("--batch", "8", "--sequence", "512", "--time-limit", "60"),
    ),
    "provision": ("provision", OFFERS, "--deadline", "5500"),
}


def told(*words: str) -> tuple[int, str]:
    return said(*words)[:2]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_first_line_is_a_sentence(name: str) -> None:
    code, out = told(*QUESTIONS[name])
    first = out.split("\n\n")[0]
    assert code == 0
    assert re.match(r"[A-Za-z0-9]", first)
    assert first.strip().endswith(".")
    assert " s." not in first or "per iteration" in first
    assert callable(getattr(hetopt, name))


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("fit", "tiny/infeasible"), "does not fit on tiny/infeasible (proved)"),
        (("scale", "tiny/infeasible"), "does not fit on two machines (proved)."),
        (("provision", OFFERS, "--deadline", "1"), "is within the limits (proved)."),
    ],
)
def test_a_proof_that_there_is_none_is_the_first_line(
    words: tuple[str, ...], answer: str
) -> None:
    code, out = told(*words, "--time-limit", "5")
    assert code == 3
    assert answer in out.partition("\n")[0]


@pytest.mark.parametrize("name", ["scale", "provision"])
def test_what_was_not_found_in_time_is_not_said_to_be_none(name: str) -> None:
    _, out = told(*QUESTIONS[name][:4], "--time-limit", "0.0001")
    first = out.partition("\n")[0]
    assert not {"never", "cannot"} & {*first.split()}
    assert "in time" in first
