"""A second lower bound on the iteration time: rows of stages in whole GPUs.

`exact.pipelines` packs fractions of pipelines, which costs nothing where there are
many, and much where there are few. Here pipelines are whole, and each is a row of
stages that have whole GPUs of each kind of nodes: what the least row takes is a walk
over the layers (`rows`), for every number of GPUs at once, and pipelines are put
together by the GPUs that they use (`bound`), in a tree of boxes (`tree`).
"""
