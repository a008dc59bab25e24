"""The record of who looks for training plans, in which order, and for how long.

Every command that plans takes it from here: a constant that steers the time of planners
or walks stands in `Portfolio`, and nowhere else. What an exact method does within its
own share is the method's (`hetopt.exact`).
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Portfolio:
    """A portfolio says who looks for a training plan, when and for how long.

    A share or part is of the time limit or of what is left of it, as its line says;
    names that end in `_s` are seconds.
    """

    # --- planners, in turn ---
    #: Asked alone before any proof, where the first plan will do.
    cheapest: str = "megatron"
    #: Asked first: there is a plan soon. On hundreds of GPUs the grid takes all the
    #: time that it has, and islands find more in it.
    quick: tuple[str, ...] = ("autohet", "megatron", "islands", "grid")
    #: Asked behind them, before the others.
    good: tuple[str, ...] = ("whale", "hexiscale", "metis")
    #: Asked alone where the target runs grids only, or experts are divided: the exact
    #: method searches grids by itself.
    of_grids: tuple[str, ...] = ("megatron", "grid")
    #: Asked before all others on more than `large` nodes: islands are there sooner.
    first_if_large: str = "islands"
    large: int = 256
    #: They take a tenth of a second for hundreds of GPUs: without a plan they have all
    #: the time that there is, with one the `soon_part`-th part of what planners have.
    soonest: tuple[str, ...] = ("autohet", "megatron")
    soon_part: float = 6
    #: Other quick ones have 1 / so much of what planners have left: while there is no
    #: plan, and with one.
    parts: dict[str, tuple[float, float]] = field(
        default_factory=lambda: {"grid": (1.5, 1.5), "islands": (1.2, 1.5)}
    )
    #: A good one has 1 / so much of what planners have left, others an equal share.
    good_part: float = 2
    #: Of the time: what all planners have, and at the most each of the slower ones.
    planners_share: float = 0.4
    planner_share: float = 0.12
    #: All planners have so many seconds, up to that share: in a shorter time nothing
    #: else would find more.
    planners_least_s: float = 3.0
    planners_most_share: float = 0.8

    # --- settings to choose ---
    #: Of the time, what a race of settings has in place of our planners.
    race_share: float = 0.5

    # --- before the exact method ---
    #: An exact method that searches by itself leaves planners this part of their time,
    #: and all of it up to so many seconds, which planners need; but for layers that
    #: differ, whose best single pipelines it alone finds.
    before_search: float = 0.3
    whole_up_to_s: float = 12.0

    # --- other questions ---
    #: Of the time at most, for one planner whose plan is improved.
    one_share: float = 0.75
    #: Of the time, what planners have before the exact method where all of their plans
    #: are wanted, or the first one.
    explore_share: float = 0.5
    #: Of the time, what quick planners have before the changes that `explain` tries.
    soon_share: float = 0.2
    #: Gap at which the first plan will do: the search for a better one ends at once.
    any_gap: float = 1e9
    #: One in so many parts of the time that is left is for the next way to divide.
    variants: int = 3
    #: Of what planners leave where they find no plan: to prove that there is none.
    refuting_share: float = 0.25
    #: Seconds at most where there is no plan: to prove that there is none, and to look
    #: for settings that would fit.
    remedies_s: float = 10.0

    def planners_s(self, seconds: float) -> float:
        """Return what all planners together have of a time limit."""
        least = min(self.planners_least_s, seconds * self.planners_most_share)
        return max(seconds * self.planners_share, least)

    def part_before(
        self, seconds: float | None, *, enumerates: bool, lines_up: bool
    ) -> float:
        """Return the part of their time that planners and walks have.

        All of it before a method that looks at every plan (`enumerates`), and never
        more than they must have where it `lines_up` layers that differ.
        """
        if enumerates or not seconds:
            return 1.0
        if lines_up:
            return self.before_search
        return min(1.0, max(self.before_search, self.whole_up_to_s / seconds))


#: Chosen on the library and on generated clusters (`benchmarks/default_plan.py`,
#: `benchmarks/gap_over_time.py` and their pages in `benchmarks/results`).
PORTFOLIO = Portfolio()
