"""After nodes left or arrived: what was lost, what to move, and what to run next.

    placing     nodes that are alike exchange their parts, so that less is moved
    replanning  new training plans, weighed with the time to move their states
    traces      which nodes are there when, by the counts of a trace of spot GPUs
    pooling     training plans by what there is to run on, made once
    replay      a job along a trace: checkpoints, losses, moves, and GPU time

Source: AutoHet, section IV.
"""
