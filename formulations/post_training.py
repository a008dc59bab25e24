"""Post-training by divisions: who trains, and how many answers an engine of each kind does.

Divisions i of the GPUs between training and engines, one of them in turn, each with a
training plan: X[i] is its training and scoring, in turn with the switch. Rooms r are nodes
alike, with so many free GPUs; weights take Y[i,r] to get there. slots[i,r,d] GPUs of a
room can be in engines of d GPUs or more. An engine of d GPUs in room r that does k of the A
answers takes G[r,d,k] a step, L[r,d,k] where a batch waits for it; s is staleness, as p / q.

    use[i]      the division is chosen           on[r]     the room has engines
    at[r,d,k]   engines of this kind do k        y         what sending weights takes
    n[r,d,k]    so many engines do               tau       a step

Minimise tau, subject to
    chosen    there is one division
    level     engines of a kind do equally many answers, where their room is on
    engines   only those that are chosen
    room      no more GPUs than there are; degrees are powers of two, so that these pack
    answers   all answers are done
    sent      weights get to all rooms that are on
    keeps_up  no engine is slower than a step, with new weights
    trains    nor is training
    loop      a batch is old by s steps at most: q (L + X + y) <= (p + q) tau
    in_turn   in turn, all comes one after another
Plans that are no better than all answers on engines of one kind are left out, and divisions
that are no better than one whose plan is known (`cases`). X is that of the plan that is known
for a division, which need not be its best (`bound`).
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import ceil, inf, prod
from typing import NamedTuple

from hetopt.errors import Unsupported
from hetopt.modelling import SIZE, Model, ReadPlan, look
from hetopt.plans import PostTraining, TrainingPlan
from hetopt.problems.post_training import Data
from hetopt.search.halves import Division, Halves, Place, Room

problem = "post_training"

MOST = 500  # divisions
ROUNDS = 20  # of a search for each one's training plan

Case = tuple[Data, "list[Choice]"]


class Choice(NamedTuple):
    """A division, a plan, X, its share that any plan takes, the least step, and rooms."""

    division: Division
    plan: TrainingPlan | None
    behind: int
    share: Fraction
    least: int
    rooms: dict[Place, Room]


def cases(data: Data) -> list[Case]:
    """Return the problem with what is known of each division; none where none fits.

    Left out are divisions in which no step is shorter than one that is known in another.
    """
    halves, found, steps, best = Halves(data), list[Choice](), [], inf
    if (many := prod(n + 1 for n in halves.units)) > MOST:
        raise Unsupported(f"{many} divisions, expected {MOST} at most: use the exact method")
    for i in [*filter(any, product(*(range(n + 1) for n in halves.units))), None]:
        least = halves.trained(i).at_least_us
        if least is not None and (way := halves.way(i, least)) is not None:
            steps.append((way.us, i))
    for us, i in sorted(steps, key=lambda step: step[0]):
        look()
        if us >= best or (known := halves.look(i, rounds=ROUNDS)).at_least_us is None:
            continue
        if known.us is not None and (way := halves.way(i, known.us)) is not None:
            best = min(best, way.us)
        rooms = {(x.kind, x.gpus): x for x in halves.rooms(i)}
        each = (known.us or known.at_least_us, known.at_least_us)
        behind, least = (max(1, data.tables.behind_us(us, shared=i is None)) for us in each)
        found.append(Choice(i, known.plan, behind, Fraction(least, behind), us, rooms))
    if found and not any(one.plan for one in found):
        raise Unsupported("no training plan was found on any division: use the exact method")
    return [(data, found)] if found else []


def build(case: Case, model: Model) -> ReadPlan:
    """State the problem on `model`; return what reads the plan back."""
    data, choices = case
    halves, t, total = Halves(data), data.tables, model.total
    I = dict(enumerate(one for one in choices if one.plan))
    R = sorted({r for one in I.values() for r in one.rooms})
    X, turn = {i: one.behind for i, one in I.items()}, [i for i, one in I.items() if one.division is None]
    Y = {(i, r): I[i].rooms[r].sent_us for i in I for r in I[i].rooms}
    every = {(r, d): one for r in R for d, one in halves.engines(r[0]).items()}
    # engines of a kind that a division has GPUs for
    slots = {(i, r, d): I[i].rooms[r].slots(d) for i in I for r, d in every if r in I[i].rooms}
    engine = {(r, d): every[r, d] for i, r, d in slots if slots[i, r, d]}
    if (many := len(engine) * t.answers) > SIZE.most:
        raise Unsupported(f"{many} kinds of engines and answers: use the exact method")
    most = {e: max(slots.get((i, *e), 0) for i in I) for e in engine}
    alone = (
        (i, r, halves.us(engine[r, d], t.steps_alone, -(-t.answers // n)))
        for (i, r, d), n in slots.items()
        if n
    )
    high = min(us + X[i] + Y[i, r] for i, r, us in alone)  # all on engines of one kind
    p, q = t.staleness.as_integer_ratio()
    G, L = {}, {}
    for (r, d), k in product(engine, range(1, t.answers + 1)):
        g, whole = (halves.us(engine[r, d], steps, k) for steps in (t.steps_apart, t.steps_alone))
        if g <= high and q * whole <= (p + q) * high:
            G[r, d, k], L[r, d, k] = g, whole
    E = sorted({e[:2] for e in G})
    K = {(r, d): [k for k in range(1, t.answers + 1) if (r, d, k) in G] for r, d in E}
    D_of = {r: [d for room, d in E if room == r] for r in R}
    longest, farthest = max(L.values()), max(Y.values())

    use, on, at = (model.binaries(name, index) for name, index in (("use", I), ("on", R), ("at", G)))
    n = model.integers("n", {e: most[e[:2]] for e in G})
    y, tau = model.integer("y", 0, farthest), model.integer("tau", 0, high)
    behind = total(X[i] * use[i] for i in I)
    g_of = {(r, d): total(G[r, d, k] * at[r, d, k] for k in K[r, d]) for r, d in E}
    l_of = {(r, d): total(L[r, d, k] * at[r, d, k] for k in K[r, d]) for r, d in E}

    # fmt: off
    model.add("chosen", (),   total(use[i] for i in I) == 1)
    model.each("level",    {(r, d): total(at[r, d, k] for k in K[r, d]) <= on[r]             for r, d in E})
    model.each("engines",  {e: n[e] <= most[e[:2]] * at[e]                                   for e in G})
    model.each("room",     {(r, d): total(D * n[r, D, k] for D in D_of[r] if d <= D for k in K[r, D])
                            <= total(d * slots[i, r, d] * use[i] for i in I if (i, r) in Y)  for r, d in E})
    model.add("answers", (),  total(e[2] * n[e] for e in G) >= t.answers)
    model.each("sent",     {r: y >= total(Y[i, r] * use[i] for i in I if (i, r) in Y) - farthest * (1 - on[r])
                                                                                             for r in R})
    model.each("keeps_up", {e: tau >= g_of[e] + y                                            for e in E})
    model.add("trains", (),   tau >= behind + y)
    model.each("loop",     {e: (p + q) * tau >= q * (l_of[e] + behind + y)                   for e in E})
    # another division leaves it open: no L is above `longest`
    model.each("in_turn",  {e: tau >= l_of[e] + behind - longest * (1 - use[i])  for i in turn for e in E})
    # fmt: on
    model.minimise(tau)

    def read(value: Callable[[object], float]) -> PostTraining:
        one = next(I[i] for i in I if round(value(use[i])))
        assert one.plan is not None  # or it were no choice
        count = {(r, d): sum(round(value(n[r, d, k])) for k in K[r, d]) for r, d in E}
        return halves.placed(
            one.division, one.plan, {r: {d: count[r, d] for d in D_of[r]} for r in one.rooms if r in D_of}
        )

    return read


def bound(case: Case, value: Fraction) -> int:
    """The least step of any plan, if none of a known training plan is below `value`.

    With X' in place of X, a step is X' / X of what it was at the least, but for rounding.
    """
    found = []
    for one in case[1]:
        known = ceil(value if one.share == 1 else one.share * (value - 1))
        found.append(max(one.least, known) if one.plan else one.least)
    return min(found)
