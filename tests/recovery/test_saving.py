"""When to save: policies by a clock that shares no line, the bound by all policies."""

from collections.abc import Iterator
from itertools import combinations
from math import sqrt
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples
from test_recovery_traces import CHECKPOINT_S, at, replayed
from typer.testing import CliRunner

from hetopt import cli
from hetopt.api.replaying import METHODS, saving_document
from hetopt.errors import InstanceError, UnknownName
from hetopt.recovery import saving
from hetopt.recovery.saving import Saves, Span, compare
from hetopt.report.replay import verdict


def by_clock(span: Span, saves: Saves, after: set[int]) -> int:
    """Iterations that count if a save begins after those numbered so; us by us."""
    now = done = kept = free_us = 0
    while now + span.iteration_us <= span.train_us:
        now += span.iteration_us
        done += 1
        if done in after:
            now = max(now, free_us)  # the save before is still being written
            if now + saves.write_us <= span.train_us:
                kept = done
            free_us = now + saves.write_us
            now += saves.stall_us
    return kept if span.lost else done


def random_span(rng: Random) -> tuple[Span, Saves]:
    stall = rng.randint(1, 6)
    saves = Saves(stall, stall + rng.choice([0, 0, rng.randint(1, 8)]))
    return Span(rng.randint(1, 60), rng.randint(2, 9), rng.random() < 0.7), saves


@examples(300)
@given(drawn(random_span), st.integers(1, 40))
def test_equal_intervals_keep_what_a_clock_counts(
    case: tuple[Span, Saves], every: int
) -> None:
    span, saves = case
    found = saving.equal([span], saves, every, "x")
    least = max(every, saves.write_us - saves.stall_us)
    each = max(1, -(-least // span.iteration_us))
    assert found.kept == by_clock(span, saves, {*range(each, 61, each)})


@given(drawn(random_span))
def test_the_adaptive_policy_keeps_what_a_clock_counts_of_its_own_saves(
    case: tuple[Span, Saves],
) -> None:
    """What it saves after follows from the time before each save alone."""
    span, saves = case
    after, now, done = set[int](), 0, 0
    while now <= span.train_us:
        every = saving.daly_us(saves.stall_us, max(now, span.iteration_us))
        every = max(every, saves.write_us - saves.stall_us, 1)
        each = max(1, -(-every // span.iteration_us))
        done, now = done + each, now + each * span.iteration_us + saves.stall_us
        after.add(done)
    (row,) = compare([span], saves, ["adaptive"]).outcomes
    assert row.kept == by_clock(span, saves, after)


@given(drawn(random_span))
def test_the_bound_is_what_the_best_of_all_policies_keeps(
    case: tuple[Span, Saves],
) -> None:
    """Every set of iterations to save after is tried."""
    span, saves = case
    whole = range(1, span.train_us // span.iteration_us + 1)
    tried = (
        set(x) for n in range(min(len(whole), 3) + 1) for x in combinations(whole, n)
    )
    best = max(by_clock(span, saves, after) for after in tried)
    assert compare([span], saves).bound == best


def traces(rng: Random) -> Iterator[Span]:
    for _ in range(rng.randint(1, 30)):
        train = round(rng.expovariate(1 / 3e9)) + 1
        yield Span(train, rng.randint(10**5, 10**7), rng.random() < 0.8)


@pytest.mark.parametrize("seed", range(20))
def test_no_policy_exceeds_the_bound_and_none_of_equal_ones_the_search(
    seed: int,
) -> None:
    rng = Random(f"trace {seed}")
    spans = list(traces(rng))
    stall = rng.randint(10**6, 6 * 10**7)
    notice = rng.choice([0, 10**7, 10**9])
    saves = Saves(stall, stall + rng.randint(0, 10**8), notice)
    found = compare(spans, saves, saving.NAMES, [6 * 10**8, 3 * 10**9])
    rows = {one.policy: one for one in found.outcomes}
    assert all(one.kept_us <= found.bound_us for one in rows.values())
    assert all(found.gap(one) >= 0 for one in rows.values())
    if notice == 0:
        # An interval of a grid is near any other: the best of it may be missed by one
        # iteration of each span, and no more.
        slack = sum(span.iteration_us for span in spans) + found.bound_us // 50
        for one in rows.values():
            assert rows["searched"].kept_us >= one.kept_us - slack or one.policy == (
                "adaptive"
            )
    if notice >= saves.write_us:
        without = compare(spans, saves._replace(notice_us=0)).outcomes
        assert rows["searched"].kept_us >= max(x.kept_us for x in without)


def test_a_notice_that_leaves_time_loses_one_save_and_no_more() -> None:
    span, saves = Span(10**9, 10**6, lost=True), Saves(10**7, 10**7, 2 * 10**7)
    (row,) = compare([span], saves, ["searched"]).outcomes
    assert row.kept == (10**9 - 10**7) // 10**6


def test_youngs_and_dalys_intervals_minimise_the_expected_time() -> None:
    """Daly's model, minimised by trying: exponential losses of mean M."""
    from math import exp

    for stall, mean in ((60, 3600), (30, 86_400), (300, 7200)):

        def wasted(every: float, stall: float = stall, mean: float = mean) -> float:
            return mean * (exp((every + stall) / mean) - 1) / every

        best = min((wasted(x) for x in range(1, 5 * mean, 7)), default=0.0)
        daly = saving.daly_us(stall * 10**6, mean * 10**6) / 10**6
        young = saving.young_us(stall * 10**6, mean * 10**6) / 10**6
        assert wasted(daly) <= best * 1.001
        assert wasted(young) <= best * 1.02
        assert young == pytest.approx(sqrt(2 * stall * mean), rel=1e-6)
    assert saving.daly_us(10, 2) == 2


def test_a_replay_tells_when_to_save_along_its_plans(tmp_path: Path) -> None:
    """Losses and training time are those of its legs."""
    steps = at((0, 12), (600, 8), (1500, 12), (2400, 6), (4000, 6))
    found = replayed(tmp_path, steps, restart_s=2.0)
    rows = found.saving(stall_s=5.0, intervals_s=[CHECKPOINT_S])
    assert set(rows) == {one.method for one in found.replays}
    for one in found.replays:
        made = rows[one.method]
        trained = sum(max(0, leg.end_us - leg.run.ready_us) for leg in one.legs)
        assert sum(span.train_us for span in made.spans) == trained
        assert made.losses == sum(leg.lost for leg in one.legs) > 0
        assert made.bound >= max(row.kept for row in made.outcomes)
        lost = {row.policy: made.lost_us(row) for row in made.outcomes}
        assert lost[made.best.policy] == min(lost.values())
        assert made.least_lost_us is not None
        assert made.least_lost_us <= min(lost.values())
        assert min(made.behind(row) for row in made.outcomes) == 0
        assert made.best.policy in verdict(made)
    document = saving_document(rows[METHODS[0]])
    assert [row["policy"] for row in document["policies"]][-1] == "every 60 s"
    with pytest.raises(UnknownName, match="policy"):
        found.saving(["hourly"], stall_s=5.0)
    with pytest.raises(InstanceError, match="write_s"):
        found.saving(stall_s=5.0, write_s=1.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "young"], "found no --stall"),
        (["--stall", "5"], "need --policy"),
        (["--policy", "5 parsecs", "--stall", "5"], "--policy"),
        (["--policy", "young", "--stall", "5", "--write", "1"], "found less than"),
    ],
)
def test_wrong_words_about_saving_are_told_before_anything_is_replayed(
    words: list[str], message: str, tmp_path: Path
) -> None:
    given = ["replay", "p.json", "tiny/two-nodes", "--trace", "none.csv", *words]
    told = CliRunner().invoke(cli.app, given)
    assert told.exit_code == 2
    assert message in told.stderr
