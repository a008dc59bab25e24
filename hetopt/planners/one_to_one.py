"""One to one: the first half of the GPUs trains, the other half generates.

The usual first guess of who runs RL apart (verl's asynchronous recipes begin with it).
GPUs come in the order of the instance.
"""

from ..search.halves import by_rule

problem = "post_training"
plan = by_rule("one_to_one", lambda x: x.dealt(x.tables.cluster.gpu_count // 2))
