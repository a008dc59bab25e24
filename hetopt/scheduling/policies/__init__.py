"""Policies: who gets which GPUs. One file a policy; the file name is its name.

    problem = "job_scheduling"
    kinds(data) -> (GPU type -> int)     types with one number are one kind to it
    policy(data) -> Policy               with `rounds` and `decide(state)`

See `hetopt.scheduling.simulator` for what `decide` sees and may do.
"""
