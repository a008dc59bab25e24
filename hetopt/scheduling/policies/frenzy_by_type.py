"""Frenzy with types: MARP says how many GPUs of which type, HAS places them.

The paper's abstract and sections I and IV say that MARP predicts number *and type*;
Algorithm 1, which `frenzy` follows, names sizes of memory alone. Here a plan of MARP is
served by its own type, and never by several at once. HAS and its ranking are those of
`frenzy`.

Source: Frenzy, sections I and IV.
"""

from ...costs.job_rates import Trained
from ...problems.job_scheduling import Data
from ._rounds import kinds
from .frenzy import Frenzy, Wanted, ranked

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = False


def policy(data: Data) -> "FrenzyByType":
    """Event-driven: it decides at every arrival and end."""
    return FrenzyByType(data)


class FrenzyByType(Frenzy):
    """MARP's plans as they are, each with its type."""

    def plans(self, trained: Trained) -> list[Wanted]:
        """Return the ranking: each plan asks for GPUs of its own type."""
        if trained not in self._plans:
            kind_of = kinds(self.data)
            self._plans[trained] = [
                Wanted(one.data_parallel, one.tensor_parallel, (kind_of(one.gpu),))
                for one in ranked(self.data, trained)
            ]
        return self._plans[trained]
