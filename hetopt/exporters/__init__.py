"""Exporters: one file a target, which launches or plans what a training plan says.

The file name is the name of the format, and the first line of its docstring says what
it writes. A module has

    SUPPORTS: frozenset[Feature]          what the target can express
    refusals(data, plan) -> list[str]     its further reasons not to take a plan
    export(data, plan) -> dict[str, str]  texts by file name
    validate(files) -> list[str]          the target's own rules that the texts break
    read(files) -> TrainingPlan           the plan that the texts tell

Most write files that a trainer or a planner of others reads; those that a scheduler
reads (`_allocation`) ask for the plan's machines and carry the plan beside them. The
README of this folder leads from a model and some hosts to a launched run.

A plan that uses a feature which the target lacks is refused, never rounded. What is
read back equals the plan in the normal form of `_shapes.normal`.
"""
