"""Arithmetic of the executor: every part has an owner, every row arrives, no deadlock.

Needs no PyTorch. What ranks do with it is held to a single process elsewhere.
"""

from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import given
from hypothesis.strategies import data, integers, lists
from inputs import examples, seeds
from runnable import runnable

from hetopt.plans import virtual_stages
from hetopt.runtime.jobs import Job
from hetopt.runtime.layout import Layout
from hetopt.runtime.parameters import parameters
from hetopt.runtime.schedule import actions


def job_of(seed: int) -> Job:
    rng = Random(f"job {seed}")
    return runnable(rng, 2, 8, runs=rng.choice([1, 1, 2, 3]))


JOBS = seeds().map(job_of)


def laid(job: Job) -> Layout:
    whole = parameters(job.decoder)
    return Layout(job.plan, job.gpus, whole, job.zero, interleave=job.interleave)


@examples(30)
@given(job=JOBS)
def test_owners_have_every_index_of_every_parameter_once(job: Job) -> None:
    layout = laid(job)
    owned: Counter[tuple[str, int]] = Counter()
    for rank in layout.team_of:
        for piece in layout.pieces(rank):
            uncut = piece.parameter.axis is None
            indices = [0] if uncut else range(piece.start, piece.stop)
            if piece.owned:
                owned.update((piece.parameter.name, index) for index in indices)
    want = {
        (p.name, index)
        for p in layout.parameters
        for index in range(1 if p.axis is None else p.shape[p.axis])
    }
    assert owned == dict.fromkeys(want, 1)


@examples(30)
@given(job=JOBS)
def test_pieces_of_a_lane_are_what_its_ranks_hold(job: Job) -> None:
    layout = laid(job)
    for rank in layout.team_of:
        mine: Counter[tuple[str, int]] = Counter()
        for lane in layout.lanes_of(rank):
            for p in lane.cut:
                mine.update((p.name, i) for i in range(*map(p.edge, lane[1:3])))
        held = {
            (p.name, index)
            for p in layout.held(rank)
            if p.axis is not None
            for index in range(*layout.span(rank, p))
        }
        assert mine == dict.fromkeys(held, 1)


@examples(30)
@given(job=JOBS)
def test_what_is_sent_is_received_and_covers_every_sample(job: Job) -> None:
    layout = laid(job)
    for step in (+1, -1):
        sent = Counter(
            (rank, hop.peer, hop.stop - hop.first)
            for rank in layout.team_of
            for hop in layout.sent(rank, step)
        )
        received = Counter(
            (hop.peer, rank, hop.stop - hop.first)
            for rank in layout.team_of
            for hop in layout.received(rank, -step)
        )
        assert sent == received
        for rank, team in layout.team_of.items():
            if 0 <= team.stage - step < team.stages or len(team.runs) > 1:
                rows = [range(h.first, h.stop) for h in layout.received(rank, -step)]
                assert [i for row in rows for i in row] == [*range(team.samples)]


@examples(30)
@given(job=JOBS)
def test_the_global_batch_is_read_once_at_both_ends(job: Job) -> None:
    layout = laid(job)
    for end in ("is_first", "is_last"):
        read = [
            sample
            for team in layout.teams
            if getattr(team, end)
            for i in range(team.micro_batches)
            for sample in team.samples_of(i)
        ]
        assert sorted(read) == [*range(layout.global_batch)]


def test_schedules_end_and_keep_their_number_in_flight() -> None:
    for schedule in ("1f1b", "gpipe", "one"):
        for stages in range(1, 5):
            for count in range(1, 7):
                peaks = played(schedule, stages, count)
                want = {
                    "1f1b": [min(count, stages - j) for j in range(stages)],
                    "gpipe": [count] * stages,
                    "one": [1] * stages,
                }[schedule]
                assert peaks == want


def test_interleaved_schedules_end_and_hold_what_megatron_does() -> None:
    for stages in range(2, 5):
        for runs in range(2, 4):
            for count in range(stages, 4 * stages, stages):
                peaks = played("1f1b", stages, count, runs)
                ahead = [
                    2 * (stages - 1 - j) + (runs - 1) * stages + 1
                    for j in range(stages)
                ]
                assert peaks == [min(runs * count, held) for held in ahead]


def played(schedule: str, stages: int, count: int, runs: int = 1) -> list[int]:
    """The most micro-batches in each stage, where passes wait for those they need.

    What a stage sends to another comes in the order in which that takes it.
    """
    todo = [actions(schedule, j, stages, count, runs) for j in range(stages)]  # type: ignore[arg-type]
    done: set[tuple[str, int, int]] = set()
    held, peaks = [0] * stages, [0] * stages
    sent: dict[tuple[str, int, bool], list[tuple[int, int]]] = {}
    while any(todo):
        moved = False
        for j in range(stages):
            while todo[j]:
                kind, i, run = todo[j][0]
                here, step = run * stages + j, 1 if kind == "forward" else -1
                source = here - step
                if 0 <= source < runs * stages:
                    if (kind, i, source) not in done:
                        break
                    around = source // stages != here // stages
                    assert sent[kind, j, around].pop(0) == (i, here)
                assert kind == "forward" or ("forward", i, here) in done
                target = here + step
                around = target // stages != here // stages
                if 0 <= target < runs * stages:
                    line = sent.setdefault((kind, target % stages, around), [])
                    line.append((i, target))
                held[j] += step
                peaks[j] = max(peaks[j], held[j])
                done.add((kind, i, here))
                del todo[j][0]
                moved = True
        assert moved, "every stage waits for another"
    return peaks


@given(runs=integers(1, 4), data=data())
def test_runs_are_all_layers_in_the_order_of_a_pass(runs: int, data: Any) -> None:
    layers = data.draw(lists(integers(runs, 9), min_size=1, max_size=5))
    found = virtual_stages(layers, runs)
    passed = [x for at in zip(*found, strict=True) for run in at for x in run]
    assert passed == [*range(sum(layers))]
    for mine, count in zip(found, layers, strict=True):
        sizes = [len(run) for run in mine]
        assert sum(sizes) == count
        assert min(sizes) > 0
        assert max(sizes) - min(sizes) <= 1


def test_grains_stay_whole() -> None:
    job = runnable(Random("grains"), 2, 4)
    for p in parameters(job.decoder):
        if p.axis is None:
            continue
        size = p.shape[p.axis] // p.grains
        for degree in range(1, 4):
            edges = [p.edge(Fraction(j, degree)) for j in range(degree + 1)]
            assert edges[0] == 0
            assert edges[-1] == p.shape[p.axis]
            assert all(edge % size == 0 for edge in edges)
