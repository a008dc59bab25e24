"""Tables of provisioning by allocations agree with their definition, by trying all."""

from itertools import product

from hetopt.formulations.provisioning_allocations.tables import Tables
from oracles import random_data

from hetopt import files
from hetopt.problems.provisioning import Data


def least_by_trying_all(t: Tables, stages: tuple[int, ...]) -> int | None:
    """The least of fill + (K - 1) b + uncovered over every slowest time b."""
    used = [i for i, n in enumerate(stages) if n]
    kinds, layers, number = [t.kinds[i] for i in used], t.data.layers, sum(stages)
    found = []
    for b in t.slowest:
        rooms = {
            i: [t.within(row[i], t.kinds[i], b) for row in t.room[: stages[i]]]
            for i in used
        }
        more = [t.kinds[i].both for i in used for _ in range(sum(rooms[i]) - stages[i])]
        if any(sum(rooms[i]) < stages[i] for i in used) or number + len(more) < layers:
            continue
        fill = sum(t.kinds[i].both * stages[i] for i in used)
        fill += sum(sorted(more)[: layers - number])
        widest = max(t.within(t.room[0][i], t.kinds[i], b) for i in used)
        backward, sync = max(k.backward for k in kinds), min(k.sync for k in kinds)
        uncovered = t._least_exposed(number, widest, backward, sync)
        found.append(fill + (t.data.micro_batches - 1) * b + uncovered)
    return min(found, default=None)


def tables() -> list[Tables]:
    """Tables of every degree of a small instance and of random data."""
    given: list[Data] = [files.load_problem("tiny/offers")[1]]
    given += [random_data.tiny("provisioning", seed) for seed in range(60)]
    return [t for data in given for case in data.cases if (t := Tables(case)).kinds]


def test_the_least_iteration_of_stages_is_that_over_all_slowest_times() -> None:
    compared = none = 0
    for t in tables():
        for stages in product(range(4), repeat=len(t.kinds)):
            if not 0 < sum(stages) <= min(t.data.layers, len(t.room)):
                continue
            expected = least_by_trying_all(t, stages)
            assert t._least(stages, t.longest) == expected
            if expected is None:
                none += 1
                continue
            compared += 1
            assert t._least(stages, expected) == expected
            assert t._least(stages, expected - 1) is None
    assert compared > 100
    assert none
