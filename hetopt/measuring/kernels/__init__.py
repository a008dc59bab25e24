"""Micro-benchmarks of one GPU, and the constants of that card which fit them.

`products`, `attention`, `memory` and `models` say what is timed, `measuring` times it
within seconds that are given; `observing` says what the model of times predicts of each
row, `fitting` moves the constants until it fits, `documents` writes them.

What is fitted is the card's: the share of its sheet's peak that products of each
precision reach, and attention's of its generation; both on top of what is shipped, so
that files of several cards are in force beside each other. How a framework uses a card
(its traffic, loss, update, launches) takes whole runs to tell, `hetopt calibrate`.

What measures imports PyTorch and nothing else that has to be installed, so that

    PYTHONPATH=. python -m hetopt.measuring.kernels --out rows.jsonl

runs on a machine without hetopt's dependencies; `hetopt profile --constants FILE
--rows rows.jsonl` fits elsewhere.
"""

#: What micro-benchmarks may take, seconds.
LEAST_S, MOST_S = 5, 3600
