"""One record that steers the time and the strength of proofs.

No value here can make a proof wrong: they say what is tried first, for how long, and
how finely. The values were chosen on the suite `proofs` of `benchmarks/`.
"""

from itertools import pairwise
from typing import Self

from pydantic import model_validator

from ...schema import Record


class Counting(Record):
    """When and how finely whole pipelines are counted, by the GPUs that they use."""

    states: int = 60_000  # numbers of GPUs by class, at the most
    few: int = 4000  # numbers of GPUs by class, so few that counting comes early
    vectors: int = 40_000_000  # of stages in several nodes, at the most
    first_ratio: float = 1.1  # of intervals whose least costs are asked first
    ratio: float = 1.05  # of the intervals at the start
    intervals: int = 400  # intervals of one box, at the most
    #: Labels of a box that can be divided: the least and the most that are
    #: allowed, as counting refuted such boxes before.
    early_labels: tuple[int, int] = (100_000, 10_000_000)
    near: float = 1.1  # batches that the linear master takes, where counting is tried


class Goals(Record):
    """Iteration times to refute, as gaps of the incumbent, and how long each may take.

    A goal that takes long is postponed: one that can be refuted is often done in
    seconds, and one that cannot never is.
    """

    gaps: tuple[float, ...]  # in falling order, the last of them 0
    first: float  # the gap that is asked for first
    near: float  # distance of gaps between which none is asked for
    near_part: float = 0.05  # the same distance, as a part of the finer gap
    patience: float  # share of the time of one goal, or as much as all goals before it
    first_patience: float = 0.1  # the same share while no goal is reached
    easier: float = 2.0  # ratio to the next goal while none is reached

    @model_validator(mode="after")
    def _gaps_fall(self) -> Self:
        fall = all(low < high for high, low in pairwise(self.gaps))
        if not fall or self.first not in self.gaps:
            raise ValueError("gaps have to fall, and the first goal to be one of them")
        return self


class Planners(Record):
    """Planners that look for a first plan, and the shares when each ends."""

    megatron: float  # equal pipelines
    grid: float  # grids of stages and replicas
    islands: float  # pipelines within alike GPUs


class Shares(Record):
    """Shares of the time limit: when a part of the method ends, at the latest."""

    #: Planners that begin, where no plan is given.
    planners: Planners = Planners(megatron=0.1, grid=0.2, islands=0.35)
    #: The same after the bound, where there is no plan yet.
    late_planners: Planners = Planners(megatron=0.4, grid=0.8, islands=1.0)
    #: Ends of local searches, each only after a gain of the last.
    searches: tuple[float, ...] = (0.2, 0.35, 0.5)
    sites: float = 0.45  # plans that mind slow links
    grid: float = 0.5  # grids, for targets that run these
    choices: float = 0.45  # settings that a plan may choose; 0: they were raced
    one_pipeline: float = 0.25  # the best single pipeline
    only_pipeline: float = 0.8  # the same where none is of one sequence
    no_room: float = 0.1  # whether memory holds any plan
    fitting: float = 0.3  # a pipeline that fits, where none
    first_prices: float = 0.3  # of what is left, prices before a listing
    listing: float = 0.7  # all columns of a small cluster
    small: float = 0.6  # prices, where too many plans of 8 GPUs are left
    bound: float = 0.92  # the bound, before searching on
    patience: float = 0.25  # how long the last search goes on without a gain


class Searching(Record):
    """Sizes of the local search, and its seconds where no time limit ends it."""

    candidates: int = 10_000  # of one search
    limited_candidates: int = 100_000  # the same where a time limit ends it, too
    starts: int = 4  # sets of sites that are searched
    unlimited_s: float = 30.0  # without a time limit
    moment_s: float = 1.0  # at the most, on a plan that a proof came upon
    reason_s: float = 1.0  # at the most, to tell why there is no plan


class Schedule(Record):
    """Sizes and ratios of the exact method for training plans.

    Ratios are of the slowest stage of a pipeline; `coarse`, `fine` and `finest` are
    shares of the synchronisation time that plans may have in all.
    """

    first_ratio: float = 1.2  # of the intervals that a box begins with
    priced_ratio: float = 1.02  # of intervals in which a path becomes a column
    finest_ratio: float = 1.0015  # of intervals that the master's columns are in
    rounds: int = 80  # rounds of column generation in one box, at the most
    columns: int = 10  # columns that one round adds, at the most
    pool: int = 300  # columns that a box keeps
    coarse: float = 1 / 8  # synchronisation ranges before replicas are divided
    fine: float = 1 / 64  # and after they are, by their geometric mean
    finest: float = 1 / 1024  # and once they are single numbers
    hosts: int = 3  # classes whose nodes may be hosts, which boxes tell
    #: Batches that the linear master takes, where columns are listed.
    listed_near: float = 1.15
    counting: Counting = Counting()
    #: Where prices alone refute: each goal prepares the next.
    goals: Goals = Goals(
        gaps=(
            *(30, 15, 8, 5, 3, 2, 1.5, 1, 0.7, 0.5, 0.35, 0.25, 0.2, 0.17, 0.15),
            *(0.13, 0.12, 0.11, 0.1, 0.09, 0.08, 0.07),
            *(hundredths / 200 for hundredths in range(12, -1, -1)),
        ),
        first=30,
        near=0.0025,
        patience=0.05,
    )
    #: Where whole pipelines are counted: goals are far apart.
    few_goals: Goals = Goals(
        gaps=(
            *(8, 3, 1, 0.5, 0.3, 0.2, 0.1, 0.06, 0.035, 0.02),
            *(0.01, 0.005, 0.002, 0.001, 0.0005, 0.0),
        ),
        first=0.1,
        near=0.003,
        patience=0.3,
    )
    shares: Shares = Shares()
    searching: Searching = Searching()
