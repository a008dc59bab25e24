"""The constants of a Python configuration, by their dotted names; nothing is run.

Read are `a.b = 1`, `name(field=1, other=Name(field=2))`, `{"name": 1}` and `dict(...)`:
numbers, texts, truths, None, lists of these, sums and products of whole numbers, names
of the file's own constants and of arguments with a default; `torch.bfloat16` and the
like as they are written. Of several functions `FILE.py:FUNCTION` names the one that is
meant; one that calls another with settings is refused. What else stands for a value is
not read: it is no constant.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import InstanceError
from ...text.documents import Document

_MOST_CHARACTERS = 2**20  # of a configuration
_MOST_WHOLE = 10**12  # so that products stay small
_LINE = re.compile(r"(?m)^[ \t]*([a-z_]\w{0,80})=(.{0,2000}?),?$")
_PAIR = re.compile(r"\b([a-z_]\w{0,80})=([^,\n()]{1,200})(?=[,)])")
_DTYPE = re.compile(r"torch\.(?:b?float|u?int)\w{1,12}")
_UNREAD = object()


def read(
    text: str, place: str, function: str = "", *, is_run: Callable[[Document], bool]
) -> tuple[Document, str, tuple[str, ...]]:
    """Return values by names, no program, and notes.

    `is_run` says of the values of a function whether they are a run's. `InstanceError`
    where there are several such functions that differ, and none is named.
    """
    tree = parsed(text, place)
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if function and function not in functions:
        raise InstanceError(
            f"{place}: found no function {function!r}, expected one of "
            f"{', '.join(functions) or 'none'}; correct it"
        )
    names: Document = {}
    try:
        rest = [one for one in tree.body if one not in functions.values()]
        found = _block(rest, names)
        held = {name: _of_function(one, names) for name, one in functions.items()}
    except RecursionError:
        raise InstanceError(
            f"{place}: found values nested too deep, expected a few levels; flatten it"
        ) from None
    runs = [function] if function else [name for name in held if is_run(held[name])]
    if any(held[one] != held[runs[0]] for one in runs[1:]):
        raise InstanceError(
            f"{place}: found the functions {', '.join(runs[:20])}, expected one; "
            f"name it: {place}:{runs[0]}"
        )
    if not runs:
        return found, "", ()
    called = {
        node.func.id
        for node in ast.walk(functions[runs[0]])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    for name in filter(called.__contains__, held):
        if is_run(held[name]):
            raise InstanceError(
                f"{place}: function {runs[0]}: found a call of {name}, expected its "
                "settings there; give the configuration that the run saved or printed"
            )
    return found | held[runs[0]], "", (f"read of the function {runs[0]}",)


def printed(text: str) -> Document:
    """Return the fields of an object with which a text begins, as `Name(field=1, ...)`.

    Each has a line of its own up to that of the bracket, or all stand in one line.
    """
    inside = text.partition("\n)")[0]
    lines = _LINE.findall(inside)
    pairs = lines if lines else _PAIR.findall(inside.partition("\n")[0])
    return {name: plain(value.strip()) for name, value in pairs}


def plain(text: str) -> object:
    """Return the constant that a text is, else the text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def parsed(text: str, place: str) -> ast.Module:
    """Return the tree of a file; `InstanceError` where it is not Python."""
    if len(text) > _MOST_CHARACTERS:
        raise InstanceError(
            f"{place}: found {len(text)} characters, expected at most "
            f"{_MOST_CHARACTERS}; give only the configuration"
        )
    try:
        with warnings.catch_warnings():  # of what looks strange there
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = getattr(error, "lineno", None)
        line = "" if where is None else f"line {where}: "
        raise InstanceError(f"{place}: {line}not Python: correct it") from None


def _of_function(function: ast.FunctionDef, names: Document) -> Document:
    """Return what a function assigns and returns, its arguments at their defaults."""
    own, given = dict(names), function.args
    told = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(told[len(told) - len(given.defaults) :], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if default is not None:
            own[argument.arg] = _constant(default, names)
    return _block(function.body, own)


def _block(body: list[ast.stmt], names: Document) -> Document:
    """Return what statements assign; later ones know earlier variables."""
    found: Document = {}
    for one in body:
        match one:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=value)
            ) if value is not None:
                found |= dict(_assigned(value, _dotted_name(target), names))
                if isinstance(target, ast.Name):
                    names[target.id] = _constant(value, names)
            case ast.Return(value=value) | ast.Expr(value=value) if value:
                found |= dict(_assigned(value, "", names))
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))) | ast.With():
                found |= _block(one.body, names)
    return found


def _assigned(
    value: ast.expr, name: str, names: Document
) -> Iterator[tuple[str, object]]:
    """Yield what an assignment gives; the fields of a variable are enough.

    `cfg = Config(...)`: the fields are those of the whole, without its name.
    """
    behind = name.partition(".")[2]
    constant = _constant(value, names)
    if constant is _UNREAD:
        yield from _fields(value, behind, names)
    elif name:
        yield behind or name, constant


def _fields(
    value: ast.expr, name: str, names: Document
) -> Iterator[tuple[str, object]]:
    """Yield the constants of a value, by names that begin with the value's own."""
    before = f"{name}." if name else ""
    constant = _constant(value, names)
    match value:
        case _ if constant is not _UNREAD:
            yield name, constant
        case ast.Call(func=function, keywords=words):
            found = [
                field
                for word in words
                if word.arg is not None
                for field in _fields(word.value, before + word.arg, names)
            ]
            yield from found
            if name:  # a part without fields is there all the same
                called = _dotted_name(function) or "set"
                yield (f"{name}.class", called) if found else (name, called)
        case ast.Dict(keys=keys, values=values):
            for key, one in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _fields(one, before + key.value, names)
        case ast.List(elts=items) if name:
            if calls := [one for one in items if isinstance(one, ast.Call)]:
                yield name, [_dotted_name(one.func) for one in calls]


def _constant(node: ast.expr, names: Document) -> Any:
    """Return a constant's value; `_UNREAD` for what is none."""
    match node:
        case ast.Name(id=name):
            return names.get(name, _UNREAD)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            held = [_constant(item, names) for item in items]
            return _UNREAD if _UNREAD in held else held
        case ast.BinOp(left=left, op=sign, right=right):
            return _calculate(_constant(left, names), sign, _constant(right, names))
        case ast.Attribute() if _DTYPE.fullmatch(name := _dotted_name(node)):
            return name
        case ast.Constant() | ast.UnaryOp():
            try:
                value = ast.literal_eval(node)
            except ValueError:  # minus a name
                return _UNREAD
            is_read = isinstance(value, bool | int | float | str | None)
            return value if is_read else _UNREAD
    return _UNREAD


def _calculate(one: object, sign: ast.operator, other: object) -> object:
    """A sum, product or quotient of whole numbers; `_UNREAD` for anything else."""
    if type(one) is not int or type(other) is not int:
        return _UNREAD
    if max(abs(one), abs(other)) > _MOST_WHOLE:
        return _UNREAD
    match sign:
        case ast.Mult():
            return one * other
        case ast.Add():
            return one + other
        case ast.FloorDiv():
            return one // other if other else _UNREAD
    return _UNREAD


def _dotted_name(node: ast.expr) -> str:
    """Return a name as it is written, `a.b.c`; empty for what is none."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = _dotted_name(value)
            return f"{before}.{name}" if before else name
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            return f"{_dotted_name(value)}.{key}"
    return ""
