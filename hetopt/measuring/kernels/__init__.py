"""Micro-benchmarks of one GPU, and the constants of that card which fit them.

`products`, `attention`, `memory` and `models` say what is timed, `measuring` times it
within seconds that are given; `observing` says what the model of times predicts of each
row, `fitting` moves the constants until it fits, `documents` writes them.

What measures imports PyTorch and nothing else that has to be installed, so that

    PYTHONPATH=. python -m hetopt.measuring.kernels --out rows.jsonl

runs on a machine without hetopt's dependencies; `hetopt profile --constants FILE
--rows rows.jsonl` fits elsewhere.
"""

#: What micro-benchmarks may take, seconds.
LEAST_S, MOST_S = 5, 3600
