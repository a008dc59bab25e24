"""HAS: job by job, the most efficient configuration that idle GPUs can serve, best fit.

Frenzy's scheduler in one round: jobs in the order of their classes; each takes the
first configuration of MARP's ranking for which there are GPUs, from the node with the
fewest idle ones that holds them all, or whole nodes. The ranking is by goodput of a
GPU, or, with `efficiency` throughput, of the job. A round knows GPUs by type, and its
costs are goodput^(-1/2): configurations are ranked by the square of the cost, times
their GPUs. What Algorithm 1 does beyond a round's configurations, GPUs of several
types for one job, is the policy `frenzy`'s.

Source: Frenzy, section IV, Algorithm 1.
"""

from typing import Literal

from ..plans import Round
from ..problems.job_round import Configuration, Data
from ..search.rounds import Blocks

problem: Literal["job_round"] = "job_round"


def plan(
    data: Data,
    *,
    seed: int = 0,
    deadline: float | None = None,
    efficiency: Literal["per_gpu", "throughput"] = "per_gpu",
) -> Round:
    """Return HAS's assignment. Neither seed nor deadline has an effect."""
    blocks = Blocks(data)

    def rank(one: Configuration) -> tuple[int, int, str]:
        paid = one.cost**2 * (one.gpus if efficiency == "per_gpu" else 1)
        return paid, one.gpus, one.gpu

    for job_class in data.classes:
        ranked = sorted(job_class.configurations, key=rank)
        for _ in range(job_class.jobs):
            if not any(blocks.take(job_class.name, x.gpu, x.gpus) for x in ranked):
                break  # idle GPUs only get fewer
    return blocks.plan()
