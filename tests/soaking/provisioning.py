"""Provisioning, of problem data and of an instance's offers, beside all structures."""

import json
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

import brute_force

from hetopt.exact import provisioning as exact
from hetopt.modelling import Limits
from hetopt.problems import provisioning
from hetopt.schema import Instance
from soaking import Contradiction
from soaking._subproblems import agree, posed, some_statement, stated

LARGEST = 10**9 - 1
HOUR_US = 3_600_000_000

WEIGHT = 70


def draw(rng: Random) -> dict[str, Any]:
    """Small problems, half of them posed by an instance; limits met, or by 1 not."""
    share = 0.04  # a statement takes longer than all else
    if rng.random() < 0.5:
        tree = _instance(rng)
        statement = some_statement(rng, "provisioning", share)
        return {"instance": tree, "statement": statement}
    tree = _limited(rng, _data(rng))
    statement = some_statement(rng, "provisioning", share)
    if rng.random() < 0.25:
        counts = rng.sample(range(1, 8), rng.randint(1, 4))
        tree["other_than_machines"] = sorted(counts)
    return {"data": tree, "statement": statement}


def _data(rng: Random) -> dict[str, Any]:
    layers, k = rng.randint(1, 5), rng.choice([1, 1, 2, 4, 10**6])
    degrees = rng.choice([[1], [2], [1, 2], [2, 1], [3, 1]])
    times = rng.choice([[0], [0, 1], [*range(20, 400)], [LARGEST, 1]])
    sizes = rng.choice([[0], [1, 2, 3], [LARGEST, 0]])
    memory = [0, layers, 2 * layers, 3 * layers + 1, LARGEST, rng.randint(1, 30)]
    offers = [
        {
            "gpu": f"G{i}",
            "quota": rng.choice([0, 1, 2, 2, 3, 4, 6, 10**6]),
            "usd_per_hour": rng.choice([0.0, 0.000001, 0.75, 1.0, 2.5, 1000.0]),
            "memory_mib": rng.choice(memory),
            "layer_mib": rng.choice(sizes),
            "in_flight_mib": rng.choice([0, 0, 1, *sizes]),
            "by_data_parallel": {
                str(d): {
                    "forward_us": rng.choice(times),
                    "backward_us": rng.choice(times),
                    "sync_us": rng.choice([0, *times, rng.randint(0, 1500)]),
                }
                for d in degrees
            },
            "gpus_per_instance": rng.choice([1, 1, 1, 2, 4]),
        }
        for i in range(rng.randint(1, 3))
    ]
    if len(offers) > 1 and rng.random() < 0.3:
        offers[1] = {**offers[0], "gpu": "G1"}
    beside = {
        "storage_usd_per_hour": rng.choice([0.000001, 0.25, 17.0, 1000.0]),
        "egress_usd": rng.choice([0.0, 0.000001, 0.01, 3.5, 10.0**6]),
    }
    lossy = {"restart_s": rng.choice([0.0, 90.5]), "checkpoint_every_s": 1800.0}
    if rng.random() < 0.3:
        beside |= lossy
        for offer in offers:
            offer["losses_per_hour"] = rng.choice([0.0, 0.001, 0.37, 1000.0])
    elif rng.random() < 0.6:
        beside = {}
    return {
        **beside,
        "layers": layers,
        "micro_batches": k,
        "data_parallel": degrees,
        "max_stages": rng.choice([1, 2, 3, 3]),
        "iterations": rng.choice([1, 100, 10**9]),
        "offers": offers,
    }


def _limited(rng: Random, data: dict[str, Any]) -> dict[str, Any]:
    """With a deadline or a budget at, just below or beside what some plan needs."""
    plans = list(brute_force.valid("provisioning", posed("provisioning", data)))
    aim = rng.choice(["deadline", "deadline", "budget", "neither"])
    if not plans or aim == "neither":
        limits = [{}, {"deadline_s": 0.0}, {"budget_usd": 0.0}]
        return {**data, **rng.choice(limits)}
    problem = posed("provisioning", data)
    judged = [provisioning.evaluate(problem, plan) for _, plan in plans]
    if aim == "deadline":
        all_us = [
            ceil(
                data["iterations"]
                * e.parts["iteration_us"]
                * e.parts.get("losses_factor", 1)
            )
            for e in judged
        ]
        us = rng.choice([min(all_us), rng.choice(all_us)]) + rng.choice([0, 0, -1, 1])
        seconds = max(0, us) / 10**6
        return {**data, "deadline_s": min(1e9, seconds)}
    usd = rng.choice([min(e.objective for e in judged), rng.choice(judged).objective])
    places = 10 ** rng.choice([3, 6, 9])
    rounded = ceil(usd * places) - rng.choice([0, 0, 1])
    return {**data, "budget_usd": min(1e9, max(0, rounded) / places)}


def _instance(rng: Random) -> dict[str, Any]:
    """A model, and offers of which some are cramped."""
    hidden, layers = rng.choice([64, 1024]), rng.randint(1, 4)
    per_layer_gib = 12 * hidden * hidden * 16 / 2**30
    k = rng.choice([1, 2, 4])
    degrees = rng.choice([[1], [2], [1, 2], [2, 4]])
    offers = [
        {
            "gpu": f"G{i}",
            "quota": rng.choice([0, 1, 2, 4, 8]),
            "usd_per_hour": rng.choice([0.0, 0.5, 1.25, 6.0]),
            "peak_tflops": rng.choice([0.001, 10, 100, 10**4]),
            "memory_gib": round(per_layer_gib * rng.choice([0.5, 1, 2, 9]) + 0.1, 3),
            "gbytes_per_s": rng.choice([0.01, 1, 50]),
            "latency_us": rng.choice([0, 5, 1000.5]),
            "gpus_per_instance": rng.choice([1, 1, 2, 4]),
        }
        for i in range(rng.randint(1, 3))
    ]
    for offer in offers:
        if rng.random() < 0.3:
            offer["intra_gbytes_per_s"] = rng.choice([0.02, 1, 300])
    search = {"data_parallel": degrees, "max_stages": rng.choice([1, 2, 3])}
    if rng.random() < 0.7:
        search["micro_batches"] = k
    spot = rng.random() < 0.3
    for offer in offers:
        offer["losses_per_hour"] = rng.choice([0, 0.02, 3.1]) if spot else 0
    limits = rng.choice(
        [
            {},
            {"deadline_s": rng.choice([0.0, 0.01, 1.0, 100.0])},
            {"budget_usd": rng.choice([0.0, 0.0001, 0.01, 10.0])},
        ]
    )
    costs = {
        "recompute": rng.choice(["full", "selective", "none"]),
        "in_flight": rng.choice(["1f1b", "gpipe", "one"]),
        "activations": rng.choice(["standard", "checkpoint"]),
        "reserve_mib": rng.choice([0, 0, 50]),
        "precision": rng.choice([None, "fp32", "bf16_mixed"]),
        "zero": rng.choice([0, 0, 3]),
    }
    other: dict[str, Any] = {}
    if rng.random() < 0.4:
        other["zero"] = rng.sample([0, 1, 2, 3], rng.randint(1, 2))
    if costs["activations"] == "standard" and rng.random() < 0.4:
        rules = ["full", "selective", "none"]
        other["recompute"] = rng.sample(rules, rng.randint(1, 2))
    beside = {
        "gbytes": rng.choice([0, 100, 5000.5]),
        "usd_per_gbyte_month": rng.choice([0.08, 0.023]),
        "egress_gbytes": rng.choice([0, 0.01, 140]),
        "usd_per_egress_gbyte": rng.choice([0.0, 0.09]),
    }
    return {
        "name": "soaked",
        "storage": beside if rng.random() < 0.3 else None,
        "model": {
            "name": "m",
            "layers": layers,
            "hidden": hidden,
            "heads": 8,
            "vocabulary": 1000,
        },
        "workload": {
            "sequence_length": rng.choice([1, 128]),
            "global_batch": k * max(degrees) * rng.choice([1, 2, 3]),
            "iterations": rng.choice([1, 100]),
            "restart_s": 120 if spot else None,
            "checkpoint_every_s": rng.choice([0, 900.5]) if spot else None,
            "micro_batch_sizes": rng.choice([[1], [1], [1, 2], [2, 1]]),
            "costs": costs,
            "alternatives": other,
        },
        "offers": offers,
        "requirements": limits,
        "search": search,
    }


def check(data: dict[str, Any]) -> str:
    """The method's optimum is the best of all; an instance's rings are by formula."""
    if "instance" in data:
        instance = Instance.model_validate_json(json.dumps(data["instance"]))
        problem = provisioning.data(instance)
        _check_rings(instance, problem)
    else:
        problem = posed("provisioning", data["data"])
    best = brute_force.best("provisioning", problem)
    if data["statement"]:
        return stated("provisioning", problem, data["statement"], best)
    found = agree(exact.solve(problem, limits=Limits()), best, problem)
    return f"offers of an instance: {found}" if "instance" in data else found


def _check_rings(instance: Instance, problem: provisioning.Data) -> None:
    """Gradients of a layer: passes (d - 1) (alpha + bytes p / (d beta)), rounded up."""
    costs = instance.workload.costs
    each = {None: 2, "fp32": 4, "bf16_mixed": 2}[costs.precision]
    volume = each * instance.model.parameters[0]
    rows = [
        (one, offer, row)
        for one in problem.each
        for offer, row in zip(instance.offers, one.offers, strict=True)
    ]
    for one, offer, row in rows:
        passes = 3 if one.choice.get("zero", costs.zero) == 3 else 2
        for d in one.data_parallel:
            rate = Fraction(str(offer.gbytes_per_s)) * 1000
            alpha = Fraction(str(offer.latency_us))
            if offer.intra_gbytes_per_s and offer.gpus_per_instance % d == 0:
                rate, alpha = Fraction(str(offer.intra_gbytes_per_s)) * 1000, Fraction()
            us = ceil(passes * (d - 1) * (alpha + Fraction(volume, d) / rate))
            if row.by_data_parallel[str(d)].sync_us != us:
                raise Contradiction(f"{offer.gpu} at {d}: {us} us expected: {row}")
