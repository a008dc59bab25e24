"""The front door: load, plan, solve, provision, compare, judge, recover and schedule.

Every function takes an instance as a name of the library, a path, or an `Instance`, and
`limits` and `progress` as `calling` says. What `hetopt` offers is found here, too, and
the names below, all on first use.
"""

from importlib import import_module

_HOME = {
    "calling": ("Listener",),
    "judging": ("no_plan_is_shorter", "posed", "posed_plan", "posed_training"),
    "posing": ("options_of_problem", "pose"),
    "solving": ("carriers", "methods_for", "options_of"),
}


def __getattr__(name: str) -> object:
    root = import_module("hetopt")
    if name in root.__all__:
        return getattr(root, name)
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
