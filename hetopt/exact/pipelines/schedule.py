"""What steers the time and the strength of proofs, in one record.

No value here can make a proof wrong: they say what is tried first, and how finely.
"""

from pydantic import Field

from ...schema import Record


class Schedule(Record):
    """Sizes and ratios of the engine.

    Ratios are of the slowest stage of a pipeline, shares of the synchronisation time
    that plans may have in all.
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
    places: int = Field(
        default=8, description="Stages behind a stage that are told apart, at the most."
    )
    counted_states: int = Field(
        default=60_000,
        description="Numbers of GPUs by class, times places, at the most.",
    )
    counted_few: int = Field(
        default=4000,
        description="Numbers of GPUs by class, so few that counting comes early.",
    )
    counted_vectors: int = Field(
        default=40_000_000, description="Of stages in several nodes, at the most."
    )
    counted_first: float = Field(
        default=1.1, description="Of intervals whose least costs counting asks first."
    )
    counted_ratio: float = Field(
        default=1.05, description="Of intervals that counting begins with."
    )
    counted_intervals: int = Field(
        default=400, description="That counting looks at in one box, at the most."
    )
    listed_near: float = Field(
        default=1.15,
        description="What the linear master takes, where all columns are listed.",
    )
    counted_near: float = Field(
        default=1.1,
        description="What the linear master takes, where counting is tried.",
    )
