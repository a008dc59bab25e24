"""The constants of a Python configuration, by their dotted names; nothing is run.

Read are `a.b = 1`, `name(field=1, other=Name(field=2))`, `{"name": 1}` and `dict(...)`:
numbers, texts, truths, None, lists of these, and sums and products of whole numbers;
`torch.bfloat16` and the like by their last name. A function that begins with another of
the file, `cfg = base()`, has what that one has. Of several functions
`FILE.py:FUNCTION` names the one that is meant. What else stands for a value is not
read: it is no constant.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any

from ...errors import InstanceError

_MOST_CHARACTERS = 2**20  # of a configuration
_MOST_CALLS = 20  # functions of a file that begin with each other
_MOST_WHOLE = 10**12  # so that products stay small
_ANGLES = re.compile(r"<(?:[\w.]{1,80}: ('[^'\n]{0,200}')|[^<>\n]{0,200})>")
_LINE = re.compile(r"(?m)^[ \t]*([a-z_]\w{0,80})=(.{0,2000}?),?$")
_UNREAD = object()


def read(
    text: str, place: str, function: str = ""
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Return values by names, no program, and notes.

    `InstanceError` where there are several functions that differ, and none is named.
    """
    try:
        return _read(_parsed(text, place), place, function)
    except RecursionError:
        raise InstanceError(
            f"{place}: found values nested too deep, expected a few levels; flatten it"
        ) from None


def _read(
    tree: ast.Module, place: str, function: str
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if function and function not in functions:
        raise InstanceError(
            f"{place}: found no function {function!r}, expected one of "
            f"{', '.join(functions) or 'none'}; correct it"
        )
    rest = [one for one in tree.body if one not in functions.values()]
    found = _values(rest, {})
    chosen = function or None
    if chosen is None:
        telling = [n for n, one in functions.items() if _values(one.body, functions)]
        used = {_called(one) for one in functions.values()}
        tops = [one for one in telling if one not in used]
        if len(tops) > 1:
            held = [_values(functions[one].body, functions) for one in tops]
            if any(one != held[0] for one in held[1:]):
                raise InstanceError(
                    f"{place}: found the functions {', '.join(tops)}, expected one; "
                    f"name it: {place}:{tops[0]}"
                )
        chosen = tops[0] if tops else None
    if chosen is not None:
        found |= _values(functions[chosen].body, functions)
    what = () if chosen is None else (f"read of the function {chosen}",)
    return found, "", what


def printed(text: str) -> dict[str, Any]:
    """Return the fields of an object with which a text begins, as `Name(field=1, ...)`.

    Its brackets end it; fields that are no constants are left out.
    """
    depth, at, quote = 0, text.index("("), ""
    for at in range(at, len(text)):  # noqa: B020
        one = text[at]
        if quote:
            quote = "" if one == quote and text[at - 1] != "\\" else quote
        elif one in "'\"":
            quote = one
        else:
            depth += (one in "([{") - (one in ")]}")
            if not depth:
                break
    inside = text[: at + 1]
    lines = _LINE.findall(inside)
    if len(lines) >= inside.count("\n") // 2 > 0:  # a field a line, texts unquoted
        return {name: _plain(value) for name, value in lines}
    # Enumerations, `<Name.VALUE: 'value'>`, and classes are no Python.
    inside = _ANGLES.sub(lambda one: one[1] or "None", inside)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = ast.parse(inside, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pairs = re.findall(r"\b([a-z_]\w{0,80})=([^,\n()]{1,200}),", inside)
        return {name: _plain(value.strip()) for name, value in pairs}
    return dict(_of_call(node, "")) if isinstance(node, ast.Call) else {}


def _plain(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _parsed(text: str, place: str) -> ast.Module:
    if len(text) > _MOST_CHARACTERS:
        raise InstanceError(
            f"{place}: found {len(text)} characters, expected at most "
            f"{_MOST_CHARACTERS}; give the configuration alone"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what looks strange there
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = getattr(error, "lineno", None)
        line = "" if where is None else f"line {where}: "
        raise InstanceError(f"{place}: {line}not Python: correct it") from None


def _called(function: ast.FunctionDef) -> str:
    """Return the name of the function whose result a function begins with."""
    for one in function.body:
        value = getattr(one, "value", None)
        if isinstance(one, ast.Assign | ast.Return) and isinstance(value, ast.Call):
            return value.func.id if isinstance(value.func, ast.Name) else ""
    return ""


def _values(
    body: list[ast.stmt], functions: dict[str, ast.FunctionDef], depth: int = 0
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in body:
        match one:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=value)
            ) if value is not None:
                found |= _called_values(value, functions, depth)
                found |= _of(value, _dotted(target))
            case ast.Return(value=value) | ast.Expr(value=value) if value is not None:
                found |= _called_values(value, functions, depth)
                found |= _of(value, "")
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                found |= _values(one.body, functions, depth)
            case ast.With():
                found |= _values(one.body, functions, depth)
    return found


def _called_values(
    value: ast.expr, functions: dict[str, ast.FunctionDef], depth: int
) -> dict[str, Any]:
    is_one = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    name = value.func.id if is_one else ""  # type: ignore[attr-defined]
    if name not in functions or depth >= _MOST_CALLS:
        return {}
    return _values(functions[name].body, functions, depth + 1)


def _of(value: ast.expr, name: str) -> dict[str, Any]:
    """Return what an assigned value says; of a variable's name fields are enough."""
    if isinstance(value, ast.Call):
        # `cfg = Config(...)`: the fields are those of the whole.
        return dict(_of_call(value, "" if "." not in name else f"{_behind(name)}."))
    if isinstance(value, ast.Dict):
        return dict(_of_dict(value, ""))
    constant = _constant(value)
    if constant is _UNREAD or not name:
        return {}
    return {_behind(name): constant}


def _behind(name: str) -> str:
    """Return a dotted name without the variable that it begins with."""
    return name.partition(".")[2] or name


def _of_call(call: ast.Call, before: str) -> Iterator[tuple[str, Any]]:
    for word in call.keywords:
        if word.arg is None:
            continue
        yield from _of_field(word.value, before + word.arg)


def _of_dict(tree: ast.Dict, before: str) -> Iterator[tuple[str, Any]]:
    for key, value in zip(tree.keys, tree.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield from _of_field(value, before + key.value)


def _of_field(value: ast.expr, name: str) -> Iterator[tuple[str, Any]]:
    constant = _constant(value)
    if constant is not _UNREAD:
        yield name, constant
    elif isinstance(value, ast.Call):
        fields = list(_of_call(value, f"{name}."))
        # A part without fields is there all the same: `SelectiveAC.Config()`.
        yield from fields or [(name, _dotted(value.func) or "set")]
        if fields:
            yield f"{name}.class", _dotted(value.func)
    elif isinstance(value, ast.Dict):
        yield from _of_dict(value, f"{name}.")


def _constant(node: ast.expr) -> Any:
    """Return a constant's value; `_UNREAD` for what is none."""
    match node:
        case ast.Constant(value=value) if isinstance(
            value, bool | int | float | str | None
        ):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return -node.operand.value  # type: ignore[attr-defined]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            held = [_constant(item) for item in items]
            return _UNREAD if _UNREAD in held else held
        case ast.BinOp(left=left, op=ast.Mult() | ast.Add() | ast.FloorDiv()):
            one, other = _constant(left), _constant(node.right)
            if type(one) is not int or type(other) is not int:
                return _UNREAD
            if max(abs(one), abs(other)) > _MOST_WHOLE:
                return _UNREAD
            match node.op:
                case ast.Mult():
                    return one * other
                case ast.Add():
                    return one + other
            return one // other if other else _UNREAD
        case ast.Attribute(attr=name) if re.fullmatch(r"(b?float|int)\w{1,12}", name):
            return name
    return _UNREAD


def _dotted(node: ast.expr) -> str:
    """Return a name as it is written, `a.b.c`; empty for what is none."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = _dotted(value)
            return f"{before}.{name}" if before else name
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            return f"{_dotted(value)}.{key}"
    return ""
