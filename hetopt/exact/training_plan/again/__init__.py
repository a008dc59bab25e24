"""Cases that counts of GPUs refute, refuted again: rows of stages from the last one.

The method (`counts`) walks from the first layer to the last and keeps which node the
next stage must begin in. Here rows grow from their end, and it is known how they begin:
with stages in one node that use so many of its GPUs, or in any way. Nothing is shared
with the method but the cost tables.

One pipeline of micro-batches of one sequence is laid on named nodes (`on_nodes`).
"""
