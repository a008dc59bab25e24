"""Policies: who gets which GPUs. One file a policy; the file name is its name.

    problem = "job_scheduling"
    kinds(data) -> (GPU type -> int)     types with one number are one kind to it
    follows_requests = True              a job gets the GPUs that its user asks for, or
                                         more where these do not do; False: any number
    policy(data) -> Policy               with `rounds` and `decide(state)`

See `hetopt.scheduling.simulator` for what `decide` sees and may do.
"""
