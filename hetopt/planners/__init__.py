"""Planners: one file a published heuristic; a plan, no proof.

A module has

    problem                               the problem's name
    plan(data, *, seed, deadline) -> Plan | None
    narrower = ("one_pipeline",)          optional: narrower problems that all of its
                                          plans are plans of

`deadline` is a `clock.monotonic()` instant or None. A planner that finds no plan
raises `NoPlan` with the reason. Same seed, same plan.
"""
