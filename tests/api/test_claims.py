"""Claims about speed: what they come to, and verdicts that all plans agree with."""

import json
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from inputs import trials
from places import INSTANCES
from typer.testing import CliRunner

import hetopt
from hetopt import cli
from hetopt.api.claims import Truth, iteration_of
from hetopt.costs import CostTable
from hetopt.errors import InstanceError
from hetopt.problems import training_plan
from hetopt.schema import Instance

TWO_NODES = str(INSTANCES / "tiny" / "two-nodes.yaml")


def told(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, [*words])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("number", trials(8, 60))
def test_a_claim_is_refuted_where_all_plans_are_slower_and_only_there(
    number: int,
) -> None:
    for seed in range(number):
        _hold_claims_to_all_plans(random_tiny_instance(Random(seed)))


def _hold_claims_to_all_plans(instance: Instance) -> None:
    best = best_training_plan(instance, several_replicas=True)
    if best is None:
        found = hetopt.claim(instance, "1 s", limits=5)
        assert found.truth in (Truth.REFUTED, Truth.OPEN, Truth.IMPOSSIBLE)
        return
    us = best[0]
    as_fast = hetopt.claim(instance, f"{us}us", limits=10)
    assert as_fast.truth in (Truth.POSSIBLE, Truth.OPEN)
    slower = hetopt.claim(instance, f"{3 * us}us", limits=10)
    assert slower.truth is Truth.POSSIBLE
    faster = hetopt.claim(instance, f"{us // 3}us", limits=10)
    assert faster.truth is not Truth.POSSIBLE


def test_all_ways_to_say_a_speed_come_to_the_same_iteration() -> None:
    instance = hetopt.load(TWO_NODES)
    table, workload = CostTable(instance), instance.workload
    gpus = instance.planned_cluster.gpu_count
    us = Fraction(2 * 10**6)
    sequences = workload.global_batch / 2
    tokens = sequences * workload.sequence_length
    plan = hetopt.plan(instance, limits=5).plan
    assert plan is not None
    judged = training_plan.evaluate(instance, plan)
    mfu = judged.parts["mfu"] * judged.objective / float(us)
    tflops = mfu * float(table.peak_flops_per_s) / 1e12
    for text in (
        "2 s",
        "2s",
        "2000ms per iteration",
        f"{tokens} tokens/s",
        f"{tokens} tok/s",
        f"{tokens / gpus} tokens/s/GPU",
        f"{tokens / gpus} tokens per second per GPU",
        f"{sequences} samples/s",
        f"{tokens * 3600} tokens in 1 hour",
        f"2 days for {float(tokens * 2 * 86400 / 10**9)!r} billion tokens",
        f"{mfu * 100:.12f}% MFU",
        f"{tflops:.12f} TFLOP/s",
        f"{tflops / gpus:.12f} TFLOPs/GPU",
    ):
        assert float(iteration_of(instance, table, text)) == pytest.approx(float(us))


def test_what_is_beyond_the_peak_is_impossible_whatever_the_model() -> None:
    code, out, _ = told("claim", TWO_NODES, "300% MFU")
    assert code == 3
    assert out.startswith("Impossible: 300% MFU on ")
    assert "300% of the peak" in out.partition("\n")[0]


def test_the_verdict_is_a_document_too(tmp_path: Path) -> None:
    code, out, _ = told("claim", TWO_NODES, "1h", "--json", "--time-limit", "5")
    document = json.loads(out)
    assert (code, document["truth"]) == (0, "possible")
    assert document["answer"].startswith("Possible: a plan reaches ")
    assert document["best_known_us"] <= document["claimed_us"]
    assert document["bound_us"] <= document["best_known_us"]


def test_a_claim_has_a_page_and_a_picture(tmp_path: Path) -> None:
    page, picture = tmp_path / "claim.html", tmp_path / "claim.svg"
    words = ("claim", TWO_NODES, "1 ms", "--json", "--out", str(page))
    code, out, err = told(*words)
    assert code == 3
    assert "written to" in err
    document, html = json.loads(out), page.read_text()
    assert document["answer"] in html
    assert f"{document['most_tokens_per_second']:,.0f}" in html
    assert "<svg" in html
    assert told("claim", TWO_NODES, "1h", "--out", str(picture))[0] == 0
    assert picture.read_text().startswith("<?xml")
    code, out, err = told("claim", TWO_NODES, "1h", "--out", str(tmp_path / "x.txt"))
    assert (code, out) == (2, "")
    assert "expected one of .html" in err


@pytest.mark.parametrize(
    "text",
    [
        *("fast", "", "0 tokens/s", "3", "-1 s", "0% MFU", "x" * 100, "5 s/GPU"),
        *("10B tokens in 0 days", "0 tokens in 2 days", "5 for 3 tokens"),
    ],
)
def test_what_says_no_speed_is_refused(text: str) -> None:
    with pytest.raises(InstanceError, match="expected a speed"):
        hetopt.claim(TWO_NODES, text)
