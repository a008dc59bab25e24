"""Stand-ins for modules of GPUs, which sources import and nothing asked here calls."""

import sys
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock


class Absent:
    """Finds every module of these names, and gives a mock of it."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names or name in self.names:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock()
        module.__name__, module.__spec__, module.__path__ = spec.name, spec, []
        return module

    def exec_module(self, module):
        pass


def stand_in(*names):
    """Put mocks in the place of modules that are not installed here."""
    sys.meta_path.insert(0, Absent(*names))
