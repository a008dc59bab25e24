"""Bounds of the engine derived again from their certificate, by code of its own.

A certificate is a tree of boxes and whole prices at its leaves. The engine
(`exact/pipelines`) finds it; here the boxes are divided again, stages are made anew
from the cost table, and at each leaf potentials show that no pipeline takes more than
it pays for, or that whole ones together take less than the batch. The two share the
cost model and the record, and no line of a proof.

    stages      times and sizes of all stages, from the cost table
    sharing     boxes; what they let stages hold, and what stages need of their nodes
    prices      what stages cost at prices that fit into whole numbers
    paths       potentials of paths, stages in order
    segments    potentials where layers are equal: each node once
    leaf        pipelines of a part of a leaf: what they pay, and what they take
    labels      least sums of stages, by the GPUs that a pipeline uses
    packing     whole pipelines of a leaf, put together
    on_nodes    one pipeline of micro-batches of one sequence, on named nodes
    tree        the check
"""

from .tree import missing

__all__ = ["missing"]
