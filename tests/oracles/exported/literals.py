"""The literals of a Python file, read without running it."""

import ast
from typing import Any

from hetopt.errors import InstanceError


def assigned(text: str, where: str) -> dict[str, Any]:
    """The literals that a module assigns at its top level, by name."""
    try:
        return {
            target.id: ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
    except (SyntaxError, ValueError) as error:
        raise InstanceError(f"{where}: {error}; export the plan again") from None
