"""One pipeline: Metis's own space, proved optimal. Metis's oracle.

The space that is proved is that of `hetopt.problems.one_pipeline`: one pipeline, any
number of stages in any order, each a contiguous run of layers on any GPUs of any nodes
(of several types, of several nodes; GPUs may stay idle), cut into replicas of one
degree that lie on one node each; every micro-batch size of the instance that divides
the global batch, any samples of the replicas. The time is the judge's: sum_j tau_j +
(n - 1) max_j tau_j and the slowest stage's synchronisation.

Stage options are first known by counts: their replicas by class of nodes, and whether
they lie on one node. For a range of slowest stages and of slowest syncs, the least sum
of stage times is a shortest path over the layers on which GPUs have prices (Lagrange);
options that are on no path below the limit are fixed to zero by their reduced cost. Of
those that remain, tables by GPU counts bound what the layers before a cut take, and a
search by labels, cut by cut, puts them on named nodes; of equal nodes one is tried.
Limits rise from the bound until a plan is found below one; then nothing below that plan
must be left. Dives into the most promising boxes, their maxima raised, find plans
before limits come near them.

`Unsupported` for settings that it does not carry (`hetopt.capability`), and for times
beyond 48 bits of us. Source: the space is Metis's (sections 4.1, 4.2 and Eq. 1); the
method is our own.
"""

from collections.abc import Callable
from heapq import heappop, heappush, nsmallest

from ... import capability
from ...bounds.longest import longest
from ...bounds.single_gpu import offer_single_gpus
from ...costs import without_update
from ...errors import ObjectiveMismatch, Unsupported
from ...modelling import Limits
from ...plans import TrainingPlan
from ...problems import Objective
from ...result import Result
from ...schema import Instance
from ...solving.run import Halt, Report, Run
from .boxes import OpenBox, Size
from .cluster_tables import BIG, ClusterTables
from .search import Goal

problem = "one_pipeline"
METHOD = "exact method one_pipeline"  # in the capability matrix

_SOURCE = "pipelines by counts of GPUs"
_FIRST = 0.001  # of the bound, the first limit above it; then twice as much
_RISE = 5  # while the bound is still low, limits rise by a fifth
_HOPELESS = 1 << 48  # us; where bounds reach this, nothing fits
_NEAR = 4  # boxes near which plans are
_DEAR = 0.01  # of the bound; passes that rise by more look for a plan before
_GPUS = 64  # clusters up to this size, for plans that may have several pipelines


def solve(
    data: Instance,
    *,
    limits: Limits = Limits(),  # noqa: B008 -- frozen
    warm_start: TrainingPlan | None = None,
    report: Report | None = None,
) -> Result:
    """The fastest plan of one pipeline with proof, or the best known and a bound.

    Raises `InstanceError` for an instance without a cluster and for a bad warm start,
    `Unsupported` as `require` does.
    """
    require(data)
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run:
        _work(run, data)
    return run.result()


def faster(
    data: Instance,
    than: Objective | None,
    limits: Limits,
    offer: Callable[[TrainingPlan], object],
    sizes: tuple[int, ...] = (1,),
) -> int:
    """Offer the best pipeline found within the limits that takes less than `than` us.

    Of micro-batches of some `sizes`, for methods whose plans may have several
    pipelines. No pipeline takes less than what is returned, in us: 0 where nothing is
    known, and beyond all times where none fits. Raises what `Ctrl-C` raises, after the
    offer.
    """
    if (searched := of_sizes(data, sizes)) is None:
        return 0
    run = Run(problem, searched, limits)
    run.objective = than
    try:
        _work(run, searched)
        return BIG if run.objective is None else int(run.objective)
    except Halt:  # the best found until then is offered
        return 0 if run.bound is None else int(run.bound.value)
    finally:
        if run.plan is not None:
            offer(run.plan)


def of_sizes(instance: Instance, sizes: tuple[int, ...]) -> Instance | None:
    """Return what `faster` searches, without further costs; None where it does not.

    In micro-batches of one sequence each stage has one replica, so nothing
    synchronises, whatever would hide it.
    """
    workload = instance.workload
    if not sizes or not {*sizes} <= {*workload.micro_batch_sizes}:
        return None
    if instance.planned_cluster.gpu_count > _GPUS:
        return None
    if sizes == (1,):
        instance = instance.with_costs(sync_overlap="none")
    found = without_update(instance.with_workload(micro_batch_sizes=sizes))
    try:
        require(found)
    except Unsupported:
        return None
    return found


def require(instance: Instance) -> None:
    """Raise `Unsupported` where settings or times are beyond this method."""
    capability.require(METHOD, instance)
    if (most := longest(instance).whole_us(instance)) >= _HOPELESS:
        raise Unsupported(
            f"one_pipeline: an iteration may take {most} us, expected less than "
            f"{_HOPELESS}: check workload.costs.pipeline_factor, sync_factor, the "
            "links and the speeds of the GPUs"
        )


def _work(run: Run, instance: Instance) -> None:
    offer_single_gpus(instance, run.offer)
    cluster = ClusterTables(instance)
    batch = instance.workload.global_batch
    sizes = []
    for b in sorted({b for b in instance.workload.micro_batch_sizes if batch % b == 0}):
        run.check()
        sizes.append(Size(cluster, b, run.check))
    _Boxes(run, sizes).work()


class _Boxes:
    """The open boxes of all micro-batch sizes, the least bound first."""

    def __init__(self, run: Run, sizes: list[Size]) -> None:
        self.run, self.sizes = run, sizes
        self._goal = Goal(self.limit, self._found, run.check)
        self._number = 0  # a heap of boxes with equal bounds keeps their order
        self._open: list[tuple[int, int, int, OpenBox]] = []
        for place, size in enumerate(sizes):
            self._push(place, size.whole())
        self._limit = BIG

    def _push(self, place: int, job: OpenBox) -> None:
        self._number += 1
        heappush(self._open, (job.bound, self._number, place, job))

    def limit(self) -> int:
        """Pipelines that take this long, or longer, are not looked for now."""
        known = self.run.objective
        return self._limit if known is None else min(self._limit, int(known))

    def work(self) -> None:
        """Until no box is open below the incumbent."""
        self._find_level()
        share = _FIRST
        while self._open and self._open[0][0] < self._top():
            bound = max(self._open[0][0], 1)
            self._limit = BIG if share > 8 else int(bound * (1 + share)) + 1
            if share > _DEAR and self._limit < self._top():
                for least, _, place, job in nsmallest(_NEAR, self._open):
                    if least < self.limit():
                        self.sizes[place].dive(job, 1 + share, self._goal)
            while self._open and self._open[0][0] < self.limit():
                self._step(search=True)
            share *= 2
        if self.run.objective is None:
            sizes = ", ".join(str(size.b) for size in self.sizes) or "none"
            self.run.reasons = (
                "memory: no pipeline fits the GPUs of this cluster, whatever its "
                f"stages; micro-batch sizes that divide the global batch: {sizes}",
            )

    def _find_level(self) -> None:
        """Raise the bound to where boxes must be searched: ever higher limits."""
        while self._open and self._open[0][0] < min(self._top(), _HOPELESS):
            bound = self._open[0][0]
            self._limit = bound + bound // _RISE + 1
            while self._open and self._open[0][0] < self.limit():
                if self._open[0][3].settled:
                    return
                self._step(search=False)

    def _step(self, *, search: bool) -> None:
        self.run.check()
        _, _, place, job = heappop(self._open)
        try:
            left = self.sizes[place].work(job, self._goal, search=search)
        except BaseException:
            self._push(place, job)  # it is still open: the bound must know
            raise
        for part in left:
            self._push(place, part)
        self._tell()

    def _top(self) -> int:
        return BIG if self.run.objective is None else int(self.run.objective)

    def _found(self, plan: TrainingPlan, us: int) -> None:
        self.run.offer(plan)
        if self.run.plan is plan and self.run.objective != us:
            raise ObjectiveMismatch(
                f"{problem}: claimed {us}, the judge finds {self.run.objective}"
            )

    def _tell(self) -> None:
        least = min(self._open[0][0] if self._open else BIG, self._top())
        if 0 < least < BIG:
            self.run.tighten(least, _SOURCE)
