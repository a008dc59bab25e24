"""The engine of proofs about training plans: columns, prices, boxes.

`hetopt/exact/README.md` explains the method. From the bottom up:

    arcs        stages of one size of micro-batches, from the stage table
    coupling    what a box lets a stage hold, and what it demands of shares of nodes
    kernels     shortest paths over stages: by the compiled core
    pricing     paths against prices: a column, or the proof that there is none
    unordered   the same where layers are equal and their order does not matter
    master      column generation in one box, to whole prices that refute it
    counts      whole pipelines by the GPUs that they use
    boxes       ranges of what pipelines share, and how they are divided
    bound       the tree of boxes, for one target time after another
"""
