"""Suites of solves, run one in a process each, and what they add up to.

suites     what is to be solved: a TOML file becomes tasks
child      the process of one task: solves it and writes one row
process    starts that process, and ends it at its wall and memory limits
journal    the rows on disk: flushed row by row, repaired and resumed
machine    the first line of a result file: machine, versions, commit, limits
running    all tasks, on local processes or on a Dask cluster
statistics gaps and exponents of rows
gate       the rows of a gate beside the best that is known
best       the best that is known of the library's instances
"""
