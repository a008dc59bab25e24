"""MARP states the memory that a model needs on each GPU type, as a call of its own.

Both memory formulas stand side by side; a row is there where either of them fits. The
ranking is Frenzy's: what MARP takes for fitting comes first, then samples per second of
a GPU, the highest first; ties go to fewer GPUs, then to less tensor parallelism.
Neither formula divides states among replicas (ZeRO) or layers among stages: a plan may
fit where no row does, from `least_gpus` on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..costs import marp as formulas
from ..costs.job_rates import DEGREES, MICRO, JobRates, Trained
from ..errors import InstanceError, keeping
from ..schema import Cluster, Compute, CostSettings, ModelSpec, Updates, exact
from .catalogue import GPUS, cluster, sheet

NODES, A_NODE = 8, 8  # of a type that is given by its name alone
LOOKED_AT = (
    "data x tensor parallelism on GPUs of one type, no ZeRO, no pipelines (Frenzy's "
    "MARP)"
)
_USUAL = CostSettings(
    compute=Compute(recompute="none"), updates=Updates(sync_overlap="backward")
)


@dataclass(frozen=True)
class Fit:
    """One (GPU type, d, t): memory of a GPU by both formulas, and its speed."""

    gpu: str
    data_parallel: int
    tensor_parallel: int
    marp: formulas.Memory = field(repr=False)
    cost_model: formulas.Memory = field(repr=False)
    marp_fits: bool
    cost_model_fits: bool
    step_us: int
    samples_per_second: float
    utilisation: float  # of the GPUs' peak, without what is recomputed

    @property
    def gpus(self) -> int:
        """N = d t."""
        return self.data_parallel * self.tensor_parallel

    def to_json(self) -> dict[str, object]:
        """Return an object: memory in MiB by part, rounded up; the total in bytes."""
        row = {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("marp", "cost_model")
        }
        row["gpus"] = self.gpus
        for name in ("marp", "cost_model"):
            memory: formulas.Memory = getattr(self, name)
            parts = {f"{k}_mib": -(-v // 2**20) for k, v in memory.__dict__.items()}
            row[name] = {**parts, "total_bytes": memory.total}
        return row


def named_gpus(names: Sequence[str]) -> Cluster:
    """8 nodes of 8 GPUs of each type, with 6.25 GB/s between.

    A name is Frenzy's, or any that the catalogue knows; the card's own name then stands
    for it. `UnknownName` for one that is none or stands for several cards.
    """
    called = [name if name in GPUS else sheet(name).card for name in names]
    kinds = [(name, A_NODE) for name in dict.fromkeys(called) for _ in range(NODES)]
    return cluster(kinds, 6.25)


def fits(
    model: ModelSpec,
    on: Cluster,
    batch: int,
    sequence: int,
    costs: CostSettings | None = None,
) -> list[Fit]:
    """All (type, d, t) that fit by either formula, ranked; empty where none does.

    d divides `batch`, t is a power of two within a node, d t GPUs of the type exist.
    Raises `InstanceError` for a batch or sequence below 1; Ctrl-C takes along the rows
    that there are.
    """
    for word, value in (("batch", batch), ("sequence", sequence)):
        if value < 1:
            raise InstanceError(f"{word}: found {value}, expected at least 1; raise it")
    trained = Trained(model.name, model, sequence, batch)
    rates = JobRates(on, costs or _USUAL, "marp")
    found: list[Fit] = []
    with keeping(lambda: _rank(found) or None):
        for gpu, count in rates.count.items():
            for d in trained.divisors:
                for t in DEGREES:
                    if d * t <= count and t <= rates.largest[gpu]:
                        fit = _fit(trained, rates, gpu, d, t)
                        found += [] if fit is None else [fit]
    return _rank(found)


def least_gpus(
    model: ModelSpec, on: Cluster, sequence: int, costs: CostSettings | None = None
) -> dict[str, int]:
    """Return how many GPUs of each type hold the states of training, and no less.

    Weights, gradients and the optimiser's states are divided among all of the GPUs, as
    ZeRO-3 does; nothing is kept for activations.
    """
    memory = formulas.cost_model(model, sequence, 1, 1, 1, costs or _USUAL)
    states = memory.weights + memory.gradients + memory.optimiser
    return {gpu: -(-states // formulas.capacity(x)) for gpu, x in on.gpus.items()}


def _rank(found: list[Fit]) -> list[Fit]:
    return sorted(
        found,
        key=lambda f: (
            not f.marp_fits,
            f.step_us * f.gpus,
            f.gpus,
            f.tensor_parallel,
            f.gpu,
        ),
    )


def _fit(trained: Trained, rates: JobRates, gpu: str, d: int, t: int) -> Fit | None:
    shape = (trained.model, trained.sequence, trained.batch, d, t)
    paper = formulas.marp(*shape)
    ours = formulas.cost_model(*shape, rates.costs)
    kind = rates.cluster.gpus[gpu]
    paper_fits = formulas.fits(paper, kind, "marp")
    ours_fits = formulas.fits(ours, kind, "cost_model")
    if not paper_fits and not ours_fits:
        return None
    step = rates.step_us(trained, d, t, rates.compact(gpu, d * t))
    return Fit(
        gpu=gpu,
        data_parallel=d,
        tensor_parallel=t,
        marp=paper,
        cost_model=ours,
        marp_fits=paper_fits,
        cost_model_fits=ours_fits,
        step_us=step,
        samples_per_second=trained.batch * MICRO / step,
        utilisation=_utilisation(trained, float(exact(kind.peak_tflops)), step, d * t),
    )


def _utilisation(
    trained: Trained, peak_tflops: float, step_us: int, gpus: int
) -> float:
    """Model FLOPs of a step over what the GPUs' peak would do in its time."""
    model, s = trained.model, trained.sequence
    tokens = trained.batch * s
    matrices = sum(model.active_parameters) + model.embedding_parameters
    attending = sum({"attention", "window"} & {*kind} != set() for kind in model.kinds)
    attention = 2 * s * model.attention_width * attending
    flops = 6 * tokens * (matrices + attention)
    return flops / (peak_tflops * 1e6 * step_us * gpus)
