"""Three to one: the first quarter of the GPUs trains, three quarters generate.

A rule of thumb where answers are long (AReaL, arXiv 2505.24298, runs most of its
experiments so). For the rest it is `one_to_one`.
"""

from ..search.halves import by_rule

problem = "post_training"
plan = by_rule("three_to_one", lambda x: x.dealt(x.tables.cluster.gpu_count // 4))
