"""The least row of one pipeline whose stages have the memory of their places.

With 1F1B a stage that k - 1 others follow keeps k micro-batches. How many follow is
known where stages are laid from the last layer to the first: it is the walk of `rows`
in a mirror, in which the number of stages is one more number of a state.
"""

from collections.abc import Sequence

import numpy as np

from .replicas import Runs
from .rows import Rows, Steps, compiled
from .stages import Stages


class RowsInPlaces(Rows):
    """Rows of stages that no other pipeline is beside, on all GPUs that there are."""

    def __init__(
        self, places: Sequence[Stages], runs: Runs, gpus: Sequence[int]
    ) -> None:
        """`places` are the stages that 0, 1, ... others follow, and more the last."""
        super().__init__(places[0], runs, gpus)
        every = [[*self.shapes(stages)] for stages in places]
        some = [i for i, x in enumerate(every[0]) if np.isfinite(x.us).any()]
        some.sort(key=lambda i: every[0][i].before)  # as those of the nearest place are
        whole = self._steps
        layers = runs.layers
        us = np.full((len(places), layers + 1, layers, len(some)), np.inf)
        for place, shapes in enumerate(every):
            for number, i in enumerate(some):
                mirrored = layers - runs.first, layers - runs.last
                us[place, *mirrored, number] = shapes[i].us
        #: All times of stages, in ascending order.
        self.times = np.unique(us[np.isfinite(us)])
        # What a stage goes on from is the room behind it, and row 0 is where none is.
        rooms = np.zeros((len(self.rooms), len(whole.rooms) + 1), np.bool_)
        rooms[:, 1:] = whole.rooms.T
        rooms[0, 0] = True
        self._ends = 1 + np.flatnonzero(whole.rooms[:, 0])
        most = min(layers, sum(gpus))
        using = [(*every[0][i].use, 1) for i in some]
        sides = (*self.sides, most + 1)
        self._mirrored = Steps.of(
            us, whole.after, whole.before + 1, rooms, using, sides
        )

    def chains(self, stages: Stages, kind: int) -> list[int]:
        """How many GPUs of a node of a kind chains use: all of them."""
        return [len(stages.away[kind]) - 1]

    def least_us(self, slowest_us: float, most_us: float) -> float:
        """The least sum of stage times; infinite beyond `most_us`.

        No stage is slower than `slowest_us`.
        """
        if not self._mirrored.us.size:
            return np.inf
        most = np.full(self._mirrored.there.shape[1], most_us)
        least = compiled()(self._mirrored, slowest_us, most, False)
        return float(least[-1, self._ends].min(initial=np.inf))
