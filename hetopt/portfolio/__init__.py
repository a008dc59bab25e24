"""The one portfolio: who looks for a training plan, when, and for how long.

`search` is what `plan`, `compare` and the page of `serve` run, so that they find the
same plan within the same limits and with the same seed: planners in turn, or a
race of settings (`hetopt.search.racing`) where a plan chooses them, then the exact
method, which searches by itself. `recover`, `fit` and `rent` take planners by the
same order and shares (`in_turn`), and `explain` starts from the plans of the quick
ones (`soon`). Every share stands in `shares.Portfolio`.
"""

from .asking import as_interrupted as as_interrupted
from .asking import ask as ask
from .asking import exactly as exactly
from .asking import options_of as options_of
from .asking import with_bound as with_bound
from .searching import first as first
from .searching import improve as improve
from .searching import improve_result as improve_result
from .searching import least as least
from .searching import search as search
from .searching import soon as soon
from .shares import PORTFOLIO as PORTFOLIO
from .turns import in_turn as in_turn
from .turns import order as order
