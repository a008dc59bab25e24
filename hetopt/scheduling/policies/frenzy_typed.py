"""Frenzy with the type: HAS takes GPUs of the type that MARP's plan is for.

The paper's abstract and sections I and IV say that MARP predicts number *and type* of
the GPUs, and considers the training time on each type; Algorithm 1 as printed names no
type. Here the plans of a job keep theirs: the first plan of the ranking that idle GPUs
of its type can serve is taken, and placed on them by best fit. So a job runs on one
type, and an idle A100 is not left for a smaller card because its host has more GPUs.
Plans are ranked by training time, that is by the throughput of all their GPUs, whatever
`efficiency` says for `frenzy`: on the queues of the paper jobs end sooner so by a sixth
to a half. Everything else is as in `frenzy`.

Source: Frenzy, abstract, sections I and IV; algorithm 1 within a type.
"""

from ...caching import cached_method
from ...costs.job_rates import Trained
from ...problems.job_scheduling import Data
from ._rounds import kinds
from .frenzy import Frenzy, Wanted, follows_requests, problem, rank

__all__ = ["follows_requests", "kinds", "policy", "problem"]


def policy(data: Data) -> Frenzy:
    """Event-driven: it decides at every arrival and end."""
    return _Typed(data)


class _Typed(Frenzy):
    @cached_method
    def plans(self, trained: Trained) -> list[Wanted]:
        """Return MARP's plans in its order, each for its own type."""
        kind = kinds(self.data)
        return [
            Wanted(one.data_parallel, one.tensor_parallel, (kind(one.gpu),))
            for one in rank(self.data, trained, "throughput")
        ]
