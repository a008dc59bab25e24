"""Exact methods: one decomposition a problem, each ending in a proof or a valid bound.

The file name is the name of the problem. A module has

    problem                 the problem's name
    solve(data, *, limits, warm_start=None, report=None) -> Result

`limits` is `hetopt.modelling.Limits`; `warm_start` a plan, judged before it is used;
`report(incumbent, bound)` is called on progress, with None for what is not known yet.
At the time limit, on KeyboardInterrupt and on SIGTERM the incumbent and a valid bound
are returned.
"""
