"""The executor: runs any plan that the judge calls valid, on PyTorch.

`jobs` makes of an instance and its plan what ranks need to know, or says by name what
is not run; `supervisor` starts a process for each rank and watches over them;
`training` is one rank. `layout`, `schedule` and `parameters` are arithmetic and need no
PyTorch, so that a plan is refused before anything starts.
"""
