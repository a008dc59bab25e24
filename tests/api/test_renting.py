"""What to rent: costs follow from plans, prices and losses, and are bounded."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import said as told
from places import INSTANCES

from hetopt import catalogue
from hetopt.api import boxes
from hetopt.api.boxes import Cards
from hetopt.api.renting import Rentals, rent
from hetopt.errors import InstanceError, Unsupported
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.report.renting import answer
from hetopt.schema import ModelSpec

TOKENS = 10**9
#: Few layers and one size: every search ends by itself, whatever the clock says.
FEW = ModelSpec(name="few", layers=2, hidden=4096, heads=32, vocabulary=1000)
ENDS = {"micro_batches": [1], "limits": Limits(gap=1.0)}
LIST = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,"
    "GpuInfo,SpotPrice\n"
    "big,H100,8,1,1,20.0,r1,,8.0\n"
    "dear,H100,8,1,1,24.0,r2,,\n"
    "small,A100-80GB,8,1,1,10.0,r1,,\n"
)


@pytest.fixture(scope="module")
def found() -> Rentals:
    cards = ["A100-80GB-SXM4", "H100-80GB-SXM5", "B200"]
    how = {"batch": 16, "sequence": 1024, **ENDS}
    return rent(FEW, TOKENS, cards, **how)


def test_the_same_run_is_priced_on_every_card(found: Rentals) -> None:
    assert {row.price.card for row in found.by_card} == {
        "A100-80GB-SXM4",
        "H100-80GB-SXM5",
        "B200-180GB-SXM",
    }
    for row in found.rows:
        judged = training_plan.evaluate(row.result.data, row.result.plan)
        assert judged.valid
        assert judged.objective == row.result.objective
        iterations = -(-TOKENS // (16 * 1024))
        hours = iterations * judged.objective / 3.6e9
        assert row.seconds / 3600 == pytest.approx(hours)
        assert row.usd == pytest.approx(row.machines * row.price.usd_per_hour * hours)
        assert row.least_usd <= row.usd
        assert row.least_s <= row.seconds


def test_an_instance_is_rented_for_as_it_is_trained() -> None:
    """Batch, sequence, micro-batches and adapters are its own, until they are told."""
    told = ["finetune=lora", "rank=8", "beside=attention"]
    shape = {"sequence_length": 2048, "global_batch": 32, "micro_batch_sizes": [1]}
    data, _ = boxes.instance_of(FEW, [Cards("H100-80GB-SXM5", 8)], shape, told)
    found = rent(data, TOKENS, ["A100-80GB-SXM4"], limits=Limits(gap=1.0))
    assert (found.batch, found.sequence) == (32, 2048)
    sizes = {"batch": 32, "sequence": 2048, **ENDS}
    as_told = rent(FEW, TOKENS, ["A100-80GB-SXM4"], **sizes, options=told)
    assert [row.seconds for row in found.rows] == [row.seconds for row in as_told.rows]
    other = rent(data, TOKENS, ["A100-80GB-SXM4"], batch=16, sequence=1024, **ENDS)
    assert (other.batch, other.sequence) == (16, 1024)


def test_the_best_is_the_cheapest_and_not_below_what_is_proved(found: Rentals) -> None:
    assert found.best is found.rows[0]
    assert found.best.usd == min(row.usd for row in found.rows)
    assert found.least_usd <= found.best.usd


def test_alternatives_after_the_deadline_say_so(found: Rentals) -> None:
    assert found.best is not None
    fast, *rest = sorted(row.seconds for row in found.by_card)
    assert "after the deadline" not in answer(replace(found, deadline_s=rest[-1]))
    cut = replace(
        found,
        deadline_s=fast,
        rows=tuple(sorted(found.rows, key=lambda row: (row.seconds > fast, row.usd))),
    )
    assert cut.best.seconds <= fast
    assert answer(cut).count(", after the deadline") == len(rest)


def test_every_price_is_of_a_card_with_a_date_and_a_source() -> None:
    for price in catalogue.prices():
        assert price.card in catalogue.gpus()
        assert price.usd_per_hour > 0
        assert len(price.date) == len("2026-11-26")
        assert price.source


def test_machines_are_added_until_the_deadline_is_kept() -> None:
    how = {"batch": 64, "sequence": 4096, **ENDS}
    cards = ["A100-80GB-PCIe"]
    alone = rent(FEW, TOKENS, cards, **how)
    assert alone.best.machines == 1
    due = alone.best.least_s / 1.2
    several = rent(FEW, TOKENS, cards, deadline_s=due, **how)
    assert several.best.machines > 1
    assert several.best.seconds <= due
    assert several.best.usd >= alone.least_usd


def test_nothing_in_time_is_an_answer(tmp_path: Path) -> None:
    words = ("rent", "gpt2-xl", "--tokens", "10T", "--deadline", "1h", "--quota", "16")
    words += ("--gpus", "H100-80GB-SXM5", "--time-limit", "0.5")
    code, out, _ = told(*words)
    assert code == 3
    first = out.partition("\n")[0]
    assert "no machines within the quota can run it within 1 h (proved)" in first
    assert "--quota" in first
    assert "too slow for the deadline even on 2 machines (proved)" in out


def test_a_price_list_stands_in_for_the_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "mine" / "vms.csv"
    file.parent.mkdir()
    file.write_text(LIST)
    page = tmp_path / "r.html"
    tiny = str(INSTANCES / "tiny" / "two-nodes.yaml")  # every search ends by itself
    words = ("rent", tiny, "--tokens", "1B", "--prices", str(file))
    words += ("--gpus", "H100-80GB-SXM5,A100-80GB-SXM4", "--time-limit", "600")
    words += ("--sequence", "1024", "--batch", "16")
    code, out, _ = told(*words, "--json", "--out", str(page))
    document = json.loads(out)
    assert code == 0
    rates = {row["card"]: row["usd_per_hour"] for row in document["rows"]}
    assert rates == {"H100-80GB-SXM5": 20.0, "A100-80GB-SXM4": 10.0}
    assert re.match(r"1B tokens of \S+: cheapest is ", document["answer"])
    assert "what to rent" in page.read_text()


def test_a_name_of_several_cards_is_each_that_has_a_price() -> None:
    found = rent(FEW, TOKENS, ["A100", "B200"], batch=8, sequence=512, limits=1e-9)
    looked = {row.price.card for row in found.rows} | {*found.without}
    priced = {price.card for price in catalogue.prices()}
    several = {card for card in priced if card.startswith("A100-")}
    assert len(several) > 1
    assert looked == several | {"B200-180GB-SXM"}


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="found no price of RTX4090"):
        rent("gpt2", TOKENS, ["RTX4090"])
    with pytest.raises(Unsupported, match="deadline_s"):
        rent("gpt2", TOKENS, deadline_s=0)
    assert told("rent", "gpt2", "--tokens", "1B", "--deadline", "soon")[0] == 2
    assert told("rent", "gpt9", "--tokens", "1B")[0] == 2
    empty = tmp_path / "vms.csv"
    empty.write_text(LIST.splitlines()[0] + "\n")
    assert told("rent", "gpt2", "--tokens", "1B", "--prices", str(empty))[0] == 2
