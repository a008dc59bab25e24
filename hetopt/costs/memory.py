"""Memory of one GPU of a stage, term by term, in MiB; each term is rounded up.

    states      = bytes_per_parameter * sum p_l / t
    activations = in flight * layers * 2 b S H (/ t with sequence parallelism)
                  + b S H (10 + 24/t + 5 a S / (H t))        recompute = full
                = in flight * layers * b S H (10 + 24/t + 5 a S / (H t))       none
                = layers * 2 b S H                           activations: checkpoint
    head        = states of V H / t and logits 6 b S V / t      (last stage)
    embedding   = states of V H / t                             (first stage)

With tied embeddings a stage that is first and last holds V H once.
"""

from fractions import Fraction

from ..schema import CostSettings, ModelSpec, Workload
from .compute import ceil

MIB = 2**20


def mib(number_of_bytes: Fraction | int) -> int:
    """Bytes as MiB, rounded up."""
    return ceil(Fraction(number_of_bytes) / MIB)


def in_flight(costs: CostSettings, micro_batches: int, stages: int, j: int) -> int:
    """Micro-batches whose activations stage `j` (from 0) of `stages` holds."""
    if costs.in_flight == "one":
        return 1
    if costs.in_flight == "gpipe":
        return micro_batches
    return min(micro_batches, stages - j)


def states_mib(costs: CostSettings, parameters: int, t: int) -> int:
    """Weights, gradients and optimiser states of `parameters`."""
    return mib(Fraction(costs.bytes_per_parameter * parameters, t))


def _full_layer(model: ModelSpec, workload: Workload, t: int, b: int) -> Fraction:
    """Bytes of all activations of one layer, as if nothing were recomputed."""
    s, h = workload.sequence_length, model.hidden
    scores = Fraction(0)
    if not workload.costs.flash:
        scores = Fraction(5 * model.heads * s, h * t)
    return b * s * h * (10 + Fraction(24, t) + scores)


def activations_mib(
    model: ModelSpec, workload: Workload, layers: int, t: int, b: int, in_flight: int
) -> int:
    """Activations of `layers` layers for `in_flight` micro-batches of `b`."""
    costs = workload.costs
    boundary = Fraction(2 * b * workload.sequence_length * model.hidden)
    if costs.activations == "checkpoint":
        return mib(layers * boundary)
    if costs.recompute == "none":
        return mib(in_flight * layers * _full_layer(model, workload, t, b))
    if costs.sequence_parallel:
        boundary /= t
    kept = mib(in_flight * layers * boundary)
    return kept + mib(_full_layer(model, workload, t, b))


def ends_mib(
    model: ModelSpec, workload: Workload, first: bool, last: bool, t: int, b: int
) -> int:
    """Embedding on the first stage, head and logits on the last."""
    costs = workload.costs
    if costs.head == "omit":
        return 0
    states = states_mib(costs, model.embedding_parameters, t)
    copies = first + last
    if first and last and model.tied_embeddings:
        copies = 1
    total = copies * states
    if last:
        logits = 6 * b * workload.sequence_length * model.vocabulary
        total += mib(Fraction(logits, t))
    return total
