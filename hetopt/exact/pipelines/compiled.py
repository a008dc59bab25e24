"""Kernels compiled by numba where it is installed, and their numpy twins elsewhere."""

import numpy as np

from ...stages import NEVER
from ...stages.classes import Whole
from ...stages.memory import Flags
from . import compiling, kernels, plain
from .kernels import Costs, Graph


def least(
    graph: Graph, costs: Costs, lows: Whole, highs: Whole, scale: int, kept: Whole
) -> Whole:
    """Return the least cost of a path by interval; potentials are `kept`."""
    compiled = compiling.kernels().active == "compiled"
    kernel = kernels.least if compiled else plain.least
    return kernel(graph, costs, lows, highs, scale, kept)


def fronts(
    order: Whole, us: Whole, samples: Whole, cost: Whole, able: Flags, size: int
) -> tuple[Whole, Whole]:
    """Return the least costs of replicas that share a micro-batch, by their slowest."""
    return kernels.fronts(order, us, samples, cost, able, size)


def slowest(us: Whole, degree: int) -> Whole:
    """Return the least time of the slowest replica, by [p, GPUs at most, run].

    `us` is by [p, degree, samples, run]; all samples are shared among replicas of
    `degree` GPUs or more.
    """
    places, sides, samples, runs = us.shape
    gpus, most = sides - 1, samples - 1
    best = np.full((places, gpus + 1, most + 1, runs), NEVER, np.int64)
    best[:, :, 0] = 0
    for k in range(degree, gpus + 1):
        best[:, k] = best[:, k - 1]
        for t in range(degree, k + 1):
            for s in range(1, most + 1):
                rest = np.maximum(best[:, k - t, : most + 1 - s], us[:, t, s, None])
                np.minimum(best[:, k, s:], rest, out=best[:, k, s:])
    found: Whole = best[:, :, most]
    return found


def segment_us(
    highs: Whole,
    kind: Whole,
    gpus: Whole,
    begin: Whole,
    used: Whole,
    inner: Whole,
    outer: Whole,
    ended: Whole,
    light: Whole,
) -> Whole:
    """Return least times of equal layers on GPUs of a node."""
    return kernels.segment_us(
        highs, kind, gpus, begin, used, inner, outer, ended, light
    )


def segment_price(
    kind: Whole, gpus: Whole, begin: Whole, used: Whole, price: Whole, light: Whole
) -> Whole:
    """Return the least prices of segments, by [segment, layers]."""
    return kernels.segment_price(kind, gpus, begin, used, price, light)


def least_unordered(
    time: int,
    scales: Whole,
    us: Whole,
    price: Whole,
    kind: Whole,
    visits: Whole,
    start: Whole,
    kept: Whole,
) -> Whole:
    """Return the least cost of a path through equal layers, by interval."""
    return kernels.least_unordered(time, scales, us, price, kind, visits, start, kept)


def repeated(
    time: int,
    scales: Whole,
    highs: Whole,
    front_us: Whole,
    front_cost: Whole,
    run: Whole,
    ended: Whole,
) -> Whole:
    """Return the least cost of stages in several nodes alone."""
    return kernels.repeated(time, scales, highs, front_us, front_cost, run, ended)
