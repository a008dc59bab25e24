"""Interleaved pipelines and transfers at both ends: simulation against closed form."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from inputs import examples

from hetopt.costs.memory import in_flight
from hetopt.explaining.simulator import run_passes
from hetopt.explaining.timeline import Times
from hetopt.schema import CostSettings

DURATIONS = st.integers(0, 9)
STAGES = st.lists(st.tuples(DURATIONS, DURATIONS), min_size=1, max_size=6)
quick = examples(30)


def times(pairs: list[tuple[int, int]]) -> list[Times]:
    return [Times(Fraction(f), Fraction(b)) for f, b in pairs]


@quick
@given(
    stages=st.integers(1, 6),
    groups=st.integers(1, 4),
    runs=st.integers(1, 4),
    f=DURATIONS,
    b=st.integers(1, 9),
)
def test_interleaving_fills_equal_stages_as_many_times_as_fast(
    stages: int, groups: int, runs: int, f: int, b: int
) -> None:
    n = groups * stages
    line = run_passes(times([(f, b)] * stages), n, "1f1b", runs)
    assert len(line.passes) == 2 * n * stages * runs
    assert line.total_us == line.closed_us
    assert line.closed_us == n * (f + b) + Fraction((stages - 1) * (f + b), runs)


@quick
@given(pairs=STAGES, groups=st.integers(1, 3), runs=st.integers(1, 3))
def test_each_run_waits_for_the_one_before_it(
    pairs: list[tuple[int, int]], groups: int, runs: int
) -> None:
    count, n = len(pairs), groups * len(pairs)
    line = run_passes(times(pairs), n, "1f1b", runs)
    ends = {
        (one.kind, one.run * count + one.stage, one.micro_batch): one
        for one in line.passes
    }
    for (kind, place, m), one in ends.items():
        waits = ends.get((kind, place - 1 if kind == "F" else place + 1, m))
        if kind == "B" and waits is None:
            waits = ends["F", place, m]
        assert waits is None or waits.end_us <= one.start_us


@quick
@given(stages=st.integers(1, 6), groups=st.integers(1, 3), runs=st.integers(1, 3))
def test_no_stage_has_more_in_flight_than_its_memory_is_counted_for(
    stages: int, groups: int, runs: int
) -> None:
    n = groups * stages
    line = run_passes(times([(1, 2)] * stages), n, "1f1b", runs)
    for stage in range(stages):
        own = [one for one in line.passes if one.stage == stage]
        assert all(a.end_us <= b.start_us for a, b in pairwise(own))
        flying, most = 0, 0
        for one in own:
            flying += 1 if one.kind == "F" else -1
            most = max(most, flying)
        held = in_flight(CostSettings(interleave=runs), n, stages, stage)
        assert most == held * runs


@quick
@given(
    stages=st.integers(1, 6),
    n=st.integers(1, 9),
    f=st.integers(1, 9),
    hop=st.integers(0, 9),
)
def test_a_transfer_that_keeps_both_ends_busy_is_waited_for_once(
    stages: int, n: int, f: int, hop: int
) -> None:
    half = Fraction(hop, 2)
    made = []
    for j in range(stages):
        sent, entered = half * (j + 1 < stages), half * (j > 0)
        own = f + sent + entered
        made.append(Times(own, own, sent))
    line = run_passes(made, n, "1f1b")
    alone = run_passes(made, 1, "1f1b").total_us
    assert alone == 2 * stages * f + (stages - 1) * hop  # once each way
    assert n * max(t.both_us for t in made) <= line.total_us
