"""One record that steers the time and the strength of proofs.

No value here can make a proof wrong: they say what is tried first, for how long, and
how finely. The values were chosen on the suite `proofs` of `benchmarks/`.
"""

from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from ...schema import Record


class Counting(Record):
    """When and how finely whole pipelines are counted, by the GPUs that they use."""

    states: int = Field(
        default=60_000,
        description="Numbers of GPUs by class, at the most.",
    )
    few: int = Field(
        default=4000,
        description="Numbers of GPUs by class, so few that counting comes early.",
    )
    vectors: int = Field(
        default=40_000_000, description="Of stages in several nodes, at the most."
    )
    first_ratio: float = Field(
        default=1.1, description="Of intervals whose least costs are asked first."
    )
    ratio: float = Field(default=1.05, description="Of the intervals at the start.")
    intervals: int = Field(
        default=400, description="Intervals of one box, at the most."
    )
    early_labels: tuple[int, int] = Field(
        default=(100_000, 10_000_000),
        description="Labels of a box that can be divided: the least and the most that "
        "are allowed, as counting refuted such boxes before.",
    )
    near: float = Field(
        default=1.1,
        description="Batches that the linear master takes, where counting is tried.",
    )


class Goals(Record):
    """Iteration times to refute, as gaps of the incumbent, and how long each may take.

    A goal that takes long is postponed: one that can be refuted is often done in
    seconds, and one that cannot never is.
    """

    gaps: tuple[float, ...] = Field(description="In falling order, the last of them 0.")
    first: float = Field(description="The gap that is asked for first.")
    near: float = Field(description="Distance of gaps between which none is asked for.")
    near_part: float = Field(
        default=0.05, description="The same distance, as a part of the finer gap."
    )
    patience: float = Field(
        description="Share of the time of one goal, or as much as all goals before it."
    )
    first_patience: float = Field(
        default=0.1, description="The same share while no goal is reached."
    )
    easier: float = Field(
        default=2.0, description="Ratio to the next goal while none is reached."
    )

    @model_validator(mode="after")
    def _gaps_fall(self) -> Self:
        fall = all(low < high for high, low in pairwise(self.gaps))
        if not fall or self.first not in self.gaps:
            raise ValueError("gaps have to fall, and the first goal to be one of them")
        return self


class Planners(Record):
    """Planners that look for a first plan, and the shares when each ends."""

    megatron: float = Field(description="Equal pipelines.")
    grid: float = Field(description="Grids of stages and replicas.")
    islands: float = Field(description="Pipelines within alike GPUs.")


class Shares(Record):
    """Shares of the time limit: when a part of the method ends, at the latest."""

    planners: Planners = Field(
        default=Planners(megatron=0.1, grid=0.2, islands=0.35),
        description="Planners that begin, where no plan is given.",
    )
    late_planners: Planners = Field(
        default=Planners(megatron=0.4, grid=0.8, islands=1.0),
        description="The same after the bound, where there is no plan yet.",
    )
    searches: tuple[float, ...] = Field(
        default=(0.2, 0.35, 0.5),
        description="Ends of local searches, each only after a gain of the last.",
    )
    sites: float = Field(default=0.45, description="Plans that mind slow links.")
    grid: float = Field(default=0.5, description="Grids, for targets that run these.")
    choices: float = Field(default=0.45, description="Settings that a plan may choose.")
    one_pipeline: float = Field(default=0.25, description="The best single pipeline.")
    only_pipeline: float = Field(
        default=0.8, description="The same where none is of one sequence."
    )
    no_room: float = Field(default=0.1, description="Whether memory holds any plan.")
    fitting: float = Field(default=0.3, description="A pipeline that fits, where none.")
    first_prices: float = Field(
        default=0.3, description="Of what is left, prices before a listing."
    )
    listing: float = Field(default=0.7, description="All columns of a small cluster.")
    small: float = Field(
        default=0.6, description="Prices, where too many plans of 8 GPUs are left."
    )
    bound: float = Field(default=0.92, description="The bound, before searching on.")
    patience: float = Field(
        default=0.25, description="How long the last search goes on without a gain."
    )


class Searching(Record):
    """Sizes of the local search, and its seconds where no time limit ends it."""

    candidates: int = Field(default=10_000, description="Of one search.")
    limited_candidates: int = Field(
        default=100_000, description="The same where a time limit ends it, too."
    )
    starts: int = Field(default=4, description="Sets of sites that are searched.")
    unlimited_s: float = Field(default=30.0, description="Without a time limit.")
    moment_s: float = Field(
        default=1.0, description="At the most, on a plan that a proof came upon."
    )
    reason_s: float = Field(
        default=1.0, description="At the most, to tell why there is no plan."
    )


class Schedule(Record):
    """Sizes and ratios of the exact method for training plans.

    Ratios are of the slowest stage of a pipeline; `coarse`, `fine` and `finest` are
    shares of the synchronisation time that plans may have in all.
    """

    first_ratio: float = Field(
        default=1.2, description="Of the intervals that a box begins with."
    )
    priced_ratio: float = Field(
        default=1.02, description="Of intervals in which a path becomes a column."
    )
    finest_ratio: float = Field(
        default=1.0015, description="Of intervals that the master's columns are in."
    )
    rounds: int = Field(
        default=80, description="Rounds of column generation in one box, at the most."
    )
    columns: int = Field(
        default=10, description="Columns that one round adds, at the most."
    )
    pool: int = Field(default=300, description="Columns that a box keeps.")
    coarse: float = Field(
        default=1 / 8, description="Synchronisation ranges before replicas are divided."
    )
    fine: float = Field(
        default=1 / 64, description="And after they are, by their geometric mean."
    )
    finest: float = Field(
        default=1 / 1024, description="And once they are single numbers."
    )
    hosts: int = Field(
        default=3, description="Classes whose nodes may be hosts, which boxes tell."
    )
    listed_near: float = Field(
        default=1.15,
        description="Batches that the linear master takes, where columns are listed.",
    )
    counting: Counting = Counting()
    goals: Goals = Field(
        default=Goals(
            gaps=(
                *(30, 15, 8, 5, 3, 2, 1.5, 1, 0.7, 0.5, 0.35, 0.25, 0.2, 0.17, 0.15),
                *(0.13, 0.12, 0.11, 0.1, 0.09, 0.08, 0.07),
                *(hundredths / 200 for hundredths in range(12, -1, -1)),
            ),
            first=30,
            near=0.0025,
            patience=0.05,
        ),
        description="Where prices alone refute: each goal prepares the next.",
    )
    few_goals: Goals = Field(
        default=Goals(
            gaps=(
                *(8, 3, 1, 0.5, 0.3, 0.2, 0.1, 0.06, 0.035, 0.02),
                *(0.01, 0.005, 0.002, 0.001, 0.0005, 0.0),
            ),
            first=0.1,
            near=0.003,
            patience=0.3,
        ),
        description="Where whole pipelines are counted: goals are far apart.",
    )
    shares: Shares = Shares()
    searching: Searching = Searching()
