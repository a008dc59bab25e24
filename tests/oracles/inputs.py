"""Random inputs of properties: how many are drawn, and how hypothesis draws them.

Generators take a `random.Random`. Hypothesis hands them one of which it decides every
number, so that an input that fails shrinks to one of few GPUs, layers and settings.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from brute_force_training import random_tiny_instance
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from random_data import MAKERS
from random_plans import plan_by

from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

T = TypeVar("T")
_USUAL = 100  # examples of the profile `hetopt`


def examples(count: int) -> settings:
    """So many inputs in the default run, and more in a profile that asks for more."""
    return settings(max_examples=count * settings.default.max_examples // _USUAL)


def trials(few: int, many: int) -> list[Any]:
    """Return numbers of trials: `few` in the default run, `many` in the slow one."""
    return [few, pytest.param(many, marks=pytest.mark.slow)]


def drawn(make: Callable[..., T], *arguments: Any, **named: Any) -> SearchStrategy[T]:
    """What a generator makes of a random number generator and other arguments."""
    randoms = st.randoms(use_true_random=False)
    return randoms.map(lambda random: make(random, *arguments, **named))


def tiny_instances() -> SearchStrategy[Instance]:
    """Instances small enough for `best_training_plan`; some have no plan."""
    return drawn(random_tiny_instance)


def tiny_problems(problem: str) -> SearchStrategy[Any]:
    """Data of a subproblem that `brute_force` can enumerate."""
    return drawn(MAKERS[problem])


def plans_of(instance: Instance) -> SearchStrategy[TrainingPlan]:
    """Plans that keep every rule but, perhaps, memory."""
    return drawn(lambda random: plan_by(instance, random))


def seeds(most: int = 10**6) -> SearchStrategy[int]:
    """Seeds of what is random by itself."""
    return st.integers(0, most)
