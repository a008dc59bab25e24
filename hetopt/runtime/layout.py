"""The layout says who holds what and talks to whom: ranks, parts, hops, sums.

A rank is a GPU of the plan, counted host by host. All of it is arithmetic on the plan,
done alike on every rank, so that nothing has to be agreed upon.

A layer may lie on replicas of different tensor-parallel degrees. Its parameters are
then summed lane by lane: the borders of all degrees cut them into lanes, and in each
lane one rank of every replica has it.

Where several GPUs divide experts, blocks of GPUs are what replicas are elsewhere: an
expert lies on one rank of every block.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ..plans import TrainingPlan
from ..problems.training_plan import divided as dividing
from ..schema import Recompute
from .parameters import EMBEDDING, HEAD, Parameter

Ranks = tuple[int, ...]  # ascending, as process groups have them


class Team(NamedTuple):
    """A replica of a stage: its ranks, its layers, and its share of each micro-batch.

    Its layers are one run, or several where pipelines are interleaved; between two of
    them a micro-batch goes through all other stages.
    It takes the samples `first_sample` up to `first_sample + samples` of the pipeline's
    micro-batch, which has `micro_batch_size`; the pipeline's samples begin at `base`
    in the global batch.
    """

    ranks: Ranks
    pipeline: int
    stage: int
    stages: int
    runs: tuple[range, ...]
    recompute: Recompute
    first_sample: int
    samples: int
    micro_batches: int
    micro_batch_size: int
    base: int

    @property
    def degree(self) -> int:
        """Tensor-parallel degree."""
        return len(self.ranks)

    @property
    def is_first(self) -> bool:
        """Return whether it has the embedding."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Return whether it has the head."""
        return self.stage == self.stages - 1

    @property
    def units(self) -> frozenset[str]:
        """The units that it computes."""
        ends = [EMBEDDING] * self.is_first + [HEAD] * self.is_last
        return frozenset([*(str(x) for run in self.runs for x in run), *ends])

    def holds(self, parameter: Parameter) -> bool:
        """Return whether a parameter lies here."""
        return not self.units.isdisjoint(parameter.units)

    def samples_of(self, micro_batch: int) -> range:
        """Return its samples of a micro-batch, by their places in the global batch."""
        first = self.base + micro_batch * self.micro_batch_size + self.first_sample
        return range(first, first + self.samples)


class Hop(NamedTuple):
    """Rows of a rank's own samples that it exchanges with another rank."""

    first: int
    stop: int
    peer: int


class Lane(NamedTuple):
    """A part of some parameters, and the ranks that have it: one of each replica.

    Of parameters that are cut it is what lies between two shares. Those that are not
    cut belong to the first lane, whose ranks pass sums on within their replicas.
    """

    ranks: Ranks
    start: Fraction
    stop: Fraction
    cut: tuple[Parameter, ...]
    uncut: tuple[Parameter, ...]


class Piece(NamedTuple):
    """A piece is what a rank updates of a parameter: indices along its axis, or all.

    Of all ranks with the same piece, one is its owner.
    """

    parameter: Parameter
    start: int
    stop: int
    owned: bool


class Layout:
    """A plan and the parameters of a model, laid out over ranks.

    `experts` GPUs divide those of a layer; `block_of` has each with the others, where
    they are several. Stages have `interleave` runs of layers.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        gpus: Iterable[str],
        parameters: Iterable[Parameter],
        zero: int,
        experts: int = 1,
        interleave: int = 1,
    ) -> None:
        self.rank_of = {gpu: rank for rank, gpu in enumerate(gpus)}
        self.parameters = tuple(parameters)
        self.zero = zero
        self.teams = tuple(self._teams(plan, interleave))
        self.team_of = {rank: team for team in self.teams for rank in team.ranks}
        parted = dividing.blocks(plan, experts) if experts > 1 else ()
        self.blocks = tuple(
            tuple(sorted(self.rank_of[gpu] for gpu in block.gpus)) for block in parted
        )
        self.block_of = {rank: block for block in self.blocks for rank in block}
        self.global_batch = plan.sequences

    def _teams(self, plan: TrainingPlan, interleave: int) -> Iterator[Team]:
        base = 0
        for p, pipeline in enumerate(plan.pipelines):
            runs = pipeline.held(interleave)
            for j, stage in enumerate(pipeline.stages):
                first = 0
                for replica in stage.replicas:
                    yield Team(
                        tuple(sorted(self.rank_of[gpu] for gpu in replica.gpus)),
                        p,
                        j,
                        len(pipeline.stages),
                        runs[j],
                        stage.recompute or "none",
                        first,
                        replica.samples,
                        pipeline.micro_batches,
                        pipeline.micro_batch_size,
                        base,
                    )
                    first += replica.samples
            base += pipeline.micro_batches * pipeline.micro_batch_size

    # --- activations -------------------------------------------------------------

    def received(self, rank: int, step: int) -> list[Hop]:
        """From whom a rank gets which rows: `step` -1 of inputs, +1 of gradients."""
        team = self.team_of[rank]
        place = team.ranks.index(rank)
        return [
            Hop(first, stop, other.ranks[place % other.degree])
            for other, first, stop in self._neighbours(team, step)
        ]

    def sent(self, rank: int, step: int) -> list[Hop]:
        """To whom a rank gives which rows: `step` +1 of outputs, -1 of gradients."""
        team = self.team_of[rank]
        place = team.ranks.index(rank)
        return [
            Hop(first, stop, peer)
            for other, first, stop in self._neighbours(team, step)
            for i, peer in enumerate(other.ranks)
            if i % team.degree == place
        ]

    def _neighbours(self, team: Team, step: int) -> Iterator[tuple[Team, int, int]]:
        """Replicas of the next or last stage with the own samples that they share."""
        stage = team.stage + step
        if len(team.runs) > 1:
            stage %= team.stages
        for other in self.teams:
            if (other.pipeline, other.stage) != (team.pipeline, stage):
                continue
            first = max(team.first_sample, other.first_sample)
            stop = min(
                team.first_sample + team.samples, other.first_sample + other.samples
            )
            if first < stop:
                yield other, first - team.first_sample, stop - team.first_sample

    # --- parameters --------------------------------------------------------------

    def held(self, rank: int) -> list[Parameter]:
        """The parameters that a rank has a part of."""
        team = self.team_of[rank]
        return [p for p in self.parameters if team.holds(p) and self._owns(rank, p)]

    def _owns(self, rank: int, parameter: Parameter) -> bool:
        block = self.block_of.get(rank)
        return block is None or _owner(block, parameter) in (None, rank)

    def span(self, rank: int, parameter: Parameter) -> tuple[int, int]:
        """Return what a rank has of a parameter, along its axis."""
        if parameter.expert is not None and rank in self.block_of:
            return parameter.span(0, 1)
        team = self.team_of[rank]
        return parameter.span(team.ranks.index(rank), team.degree)

    def _holders(self, parameter: Parameter) -> tuple[Ranks, ...]:
        if parameter.expert is None or not self.blocks:
            return tuple(t.ranks for t in self.teams if t.holds(parameter))
        blocks = (b for b in self.blocks if self.team_of[b[0]].holds(parameter))
        owners = (_owner(block, parameter) for block in blocks)
        return tuple((rank,) for rank in owners if rank is not None)

    @cached_property
    def lanes(self) -> list[Lane]:
        """All lanes, in one order for all ranks."""
        alike: dict[tuple[Ranks, ...], list[Parameter]] = {}
        for parameter in self.parameters:
            alike.setdefault(self._holders(parameter), []).append(parameter)
        return [
            lane for holders, mine in alike.items() for lane in _lanes(holders, mine)
        ]

    def lanes_of(self, rank: int) -> list[Lane]:
        """The lanes that a rank takes part in."""
        return [lane for lane in self.lanes if rank in lane.ranks]

    def pieces(self, rank: int) -> list[Piece]:
        """Return what a rank updates; with ZeRO 1 a lane's ranks divide what is cut."""
        team = set(self.team_of[rank].ranks)
        found = [
            Piece(parameter, 0, 0, lane.ranks[0] == rank)
            for lane in self.lanes
            if lane.start == 0 and not team.isdisjoint(lane.ranks)
            for parameter in lane.uncut
        ]
        for lane in self.lanes_of(rank):
            found += [self._piece(rank, lane, parameter) for parameter in lane.cut]
        return found

    def _piece(self, rank: int, lane: Lane, parameter: Parameter) -> Piece:
        start, stop = parameter.edge(lane.start), parameter.edge(lane.stop)
        if self.zero == 0:
            return Piece(parameter, start, stop, lane.ranks[0] == rank)
        shares = divided(start, stop, len(lane.ranks))
        return Piece(parameter, *shares[lane.ranks.index(rank)], owned=True)

    @cached_property
    def groups(self) -> list[Ranks]:
        """Sets of ranks that meet in passes, in one order for all ranks."""
        return _several([*(team.ranks for team in self.teams), *self.blocks])

    @cached_property
    def lane_groups(self) -> list[Ranks]:
        """Sets of ranks that sum gradients, in one order for all ranks."""
        return _several(lane.ranks for lane in self.lanes)


def _several(sets: Iterable[Ranks]) -> list[Ranks]:
    return list(dict.fromkeys(ranks for ranks in sets if len(ranks) > 1))


def _owner(block: Ranks, parameter: Parameter) -> int | None:
    """Return which rank of a block has an expert; None for what all have."""
    if parameter.expert is None:
        return None
    return block[int(len(block) * parameter.expert)]


def divided(start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """A run of indices in `count` parts as equal as they can be."""
    length = stop - start
    edges = [start + length * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def _lanes(holders: tuple[Ranks, ...], parameters: list[Parameter]) -> Iterator[Lane]:
    borders = {Fraction(j, len(ranks)) for ranks in holders for j in range(len(ranks))}
    cut = tuple(p for p in parameters if p.axis is not None)
    uncut = tuple(p for p in parameters if p.axis is None)
    for start, stop in pairwise(sorted({*borders, Fraction(1)})):
        ranks = sorted(team[int(start * len(team))] for team in holders)
        yield Lane(tuple(ranks), start, stop, cut, () if start else uncut)
