"""Renting what spot nodes leave behind: policies, and the bound by all choices."""

from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random

import pytest
from test_recovery_traces import at, replayed, spot
from typer.testing import CliRunner

from hetopt import cli
from hetopt.errors import InstanceError
from hetopt.recovery.renting import ALWAYS, NAMES, NEVER, Segment, Whole, compare
from hetopt.schema import Instance

HOUR = 3600 * 10**6


def drawn(random: Random) -> tuple[list[Segment], Whole]:
    """Segments of a trace, in some of which all nodes are there."""
    along = []
    for _ in range(random.randint(1, 6)):
        missing = random.choice([0, 1, 2, 5])
        time_us = random.randint(1, 10**6)
        most = time_us // 10 if missing else time_us // 7
        there = Fraction(random.randint(0, 30), 10)
        kept = Fraction(random.randint(0, most))
        lost = bool(missing) and random.random() < 0.6
        along.append(Segment(time_us, kept, there, Fraction(missing), lost))
    return along, Whole(7, random.choice([0, 10**4, 3 * 10**5]))


def by_hand(
    along: list[Segment], whole: Whole, begins: list[int | None]
) -> tuple[Fraction, Fraction]:
    """USD and iterations where each segment says from when on nodes are rented."""
    usd = kept = Fraction()
    were_rented = False
    for one, begin in zip(along, begins, strict=True):
        usd += Fraction(one.time_us, HOUR) * one.there_usd
        if begin is None or not one.missing_usd:
            kept += one.kept
            were_rented = False
            continue
        usd += Fraction(one.time_us - begin, HOUR) * one.missing_usd
        kept += one.kept / one.time_us * begin
        kept += Fraction(one.time_us - begin) / whole.iteration_us
        if one.lost or not were_rented:
            kept -= Fraction(whole.stop_us, whole.iteration_us)
        were_rented = True
    return usd, kept


@pytest.mark.parametrize("seed", range(150))
def test_the_bound_is_the_best_of_all_choices(seed: int) -> None:
    random = Random(f"renting/{seed}")
    along, whole = drawn(random)
    found = compare(along, whole)
    made = {one.policy: (one.usd, one.kept) for one in found.outcomes}
    none: list[int | None] = [None] * len(along)
    assert made[NEVER] == by_hand(along, whole, none)
    assert made[ALWAYS] == by_hand(along, whole, [0] * len(along))
    if found.bound_usd is None:
        assert all(kept <= 0 for _, kept in made.values())
        return
    prices = []
    for choice in product((None, 0), repeat=len(along)):
        usd, kept = by_hand(along, whole, [*choice])
        if kept > 0:
            prices.append(usd / kept)
    assert found.bound_usd == min(prices)
    for _ in range(50):  # renting may begin within a segment, too
        begins = [
            random.choice([None, 0, random.randrange(one.time_us)]) for one in along
        ]
        for number, before in enumerate(begins[:-1], 1):
            if before is not None and begins[number] and along[number - 1].missing_usd:
                begins[number] = 0  # it goes on
        usd, kept = by_hand(along, whole, begins)
        if kept > 0:
            assert usd / kept >= found.bound_usd
    searched = found.outcomes[-1]
    if searched.after_us is None:
        assert (searched.usd, searched.kept) == made[NEVER]
    assert found.best is not None
    assert all((found.gap(one) or 0) >= 0 for one in found.outcomes)


def test_a_replay_says_whether_to_rent(tmp_path: Path) -> None:
    """Iterations without renting are those of the replay; a free node is rented."""
    steps = at((0, 12), (600, 8), (1500, 12), (2400, 6), (4000, 6))
    bare = replayed(tmp_path, steps)
    with pytest.raises(InstanceError, match="usd_per_hour: found no price"):
        bare.renting(0.5)
    tree = spot()[0].model_dump(mode="json")
    for kind in tree["cluster"]["gpus"].values():
        kind["usd_per_hour"] = 2.0
    priced = Instance.model_validate(tree, strict=False)
    found = type(bare)(priced, *(getattr(bare, n) for n in bare.__match_args__[1:]))
    for one in found.replays:
        prices = found.renting(0.5)[one.method]
        never = prices.outcomes[0]
        assert [row.policy for row in prices.outcomes] == [*NAMES]
        assert never.kept == one.tally.iterations
        spent = Fraction(one.tally.available_us, HOUR) * 2 * Fraction(1, 2)
        assert never.usd == spent
        assert prices.bound_usd is not None
        assert prices.bound_usd <= min(row.usd / row.kept for row in prices.outcomes)
    with pytest.raises(InstanceError, match="share from 0 to 1"):
        found.renting(1.5)


def test_prices_are_asked_for_before_anything_is_replayed() -> None:
    given = ["replay", "p.json", "autohet/a100-h20-2x2-bert-large"]
    told = CliRunner().invoke(
        cli.app, [*given, "--trace", "none.csv", "--spot-price", "0.3"]
    )
    assert told.exit_code == 2
    assert "found no price" in told.stderr
