"""The constants of a Python configuration, by their dotted names; nothing is run.

Read are `a.b = 1`, `name(field=1, other=Name(field=2))`, `{"name": 1}` and `dict(...)`:
numbers, texts, truths, None, lists of these, sums and products of whole numbers, names
of the file's own constants and of arguments that have one; `torch.bfloat16` and the
like as they are written. A function that calls another of the file has what that one
has, by the arguments that it gives. Of several functions `FILE.py:FUNCTION` names the
one that is meant. What else stands for a value is not read: it is no constant.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import InstanceError
from ..documents import Document

_MOST_CHARACTERS = 2**20  # of a configuration
_MOST_CALLS = 500  # of functions of a file
_MOST_DEEP = 20  # functions that call each other
_MOST_WHOLE = 10**12  # so that products stay small
_ANGLES = re.compile(r"<(?:[\w.]{1,80}: ('[^'\n]{0,200}')|[^<>\n]{0,200})>")
_LINE = re.compile(r"(?m)^[ \t]*([a-z_]\w{0,80})=(.{0,2000}?),?$")
_DTYPE = re.compile(r"torch\.(?:b?float|u?int)\w{1,12}")
_UNREAD = object()

Functions = Mapping[str, ast.FunctionDef]


def read(
    text: str, place: str, function: str = "", *, is_run: Callable[[Document], bool]
) -> tuple[Document, str, tuple[str, ...]]:
    """Return values by names, no program, and notes.

    `is_run` says of the values of a function whether they are a run's. `InstanceError`
    where there are several such functions that differ, and none is named.
    """
    try:
        return _read_tree(parsed(text, place), place, function, is_run)
    except RecursionError:
        raise InstanceError(
            f"{place}: found values nested too deep, expected a few levels; flatten it"
        ) from None


def _read_tree(
    tree: ast.Module, place: str, function: str, is_run: Callable[[Document], bool]
) -> tuple[Document, str, tuple[str, ...]]:
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if function and function not in functions:
        raise InstanceError(
            f"{place}: found no function {function!r}, expected one of "
            f"{', '.join(functions) or 'none'}; correct it"
        )
    reader = _Reader(place, functions)
    rest = [one for one in tree.body if one not in functions.values()]
    found = reader.block(rest, reader.globals)
    chosen = function or None
    if chosen is None:
        held = {name: reader.function(name) for name in functions}
        called = {
            node.func.id
            for one in functions.values()
            for node in ast.walk(one)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        tops = [name for name in functions if is_run(held[name]) and name not in called]
        if any(held[one] != held[tops[0]] for one in tops[1:]):
            raise InstanceError(
                f"{place}: found the functions {', '.join(tops[:20])}, expected one; "
                f"name it: {place}:{tops[0]}"
            )
        chosen = tops[0] if tops else None
    if chosen is None:
        return found, "", ()
    return found | reader.function(chosen), "", (f"read of the function {chosen}",)


def printed(text: str) -> Document:
    """Return the fields of an object with which a text begins, as `Name(field=1, ...)`.

    Its brackets end it; fields that are no constants are left out.
    """
    depth, start, quote, end = 0, text.index("("), "", len(text)
    for at in range(start, len(text)):
        one = text[at]
        if quote:
            quote = "" if one == quote and text[at - 1] != "\\" else quote
        elif one in "'\"":
            quote = one
        else:
            depth += (one in "([{") - (one in ")]}")
            if not depth:
                end = at + 1
                break
    inside = text[:end]
    lines = _LINE.findall(inside)
    if len(lines) >= inside.count("\n") // 2 > 0:  # a field a line, texts unquoted
        return {name: plain(value) for name, value in lines}
    # Enumerations, `<Name.VALUE: 'value'>`, and classes are no Python.
    inside = _ANGLES.sub(lambda one: one[1] or "None", inside)
    try:
        node = _quietly(inside).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        pairs = re.findall(r"\b([a-z_]\w{0,80})=([^,\n()]{1,200}),", inside)
        return {name: plain(value.strip()) for name, value in pairs}
    call = node.value if isinstance(node, ast.Expr) else None
    try:
        return dict(_Reader("", {}).fields(call, "", {})) if call else {}
    except RecursionError:
        return {}


def plain(text: str) -> object:
    """Return the constant that a text is, else the text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _quietly(text: str) -> ast.Module:
    """The tree of a text, without Python's warnings of what looks strange there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parsed(text: str, place: str) -> ast.Module:
    """Return the tree of a file; `InstanceError` where it is not Python."""
    if len(text) > _MOST_CHARACTERS:
        raise InstanceError(
            f"{place}: found {len(text)} characters, expected at most "
            f"{_MOST_CHARACTERS}; give only the configuration"
        )
    try:
        return _quietly(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = getattr(error, "lineno", None)
        line = "" if where is None else f"line {where}: "
        raise InstanceError(f"{place}: {line}not Python: correct it") from None


class _Reader:
    """A reader knows a file's functions, and the names that are constants."""

    def __init__(self, place: str, functions: Functions) -> None:
        self.place, self.functions = place, functions
        self.globals: Document = {}
        self._calls = 0
        self._depth = 0

    def function(self, name: str, call: ast.Call | None = None, names: Document | None
                 = None) -> Document:  # fmt: skip
        """Return what a function yields for the arguments of a call."""
        self._calls += 1
        if self._calls > _MOST_CALLS or self._depth >= _MOST_DEEP:
            raise InstanceError(
                f"{self.place}: found functions that call each other more than "
                f"{_MOST_CALLS} times, expected fewer; give only the configuration"
            )
        function = self.functions[name]
        given = function.args
        own = dict(self.globals)
        told = [*given.posonlyargs, *given.args]
        pairs = [
            *zip(told[len(told) - len(given.defaults) :], given.defaults, strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            if default is not None:
                own[argument.arg] = self.constant(default, self.globals)
        for word in call.keywords if call is not None else ():
            if word.arg is not None:
                own[word.arg] = self.constant(word.value, names or {})
        self._depth += 1
        try:
            return self.block(function.body, own)
        finally:
            self._depth -= 1

    def block(self, body: list[ast.stmt], names: Document) -> Document:
        """Return what statements assign; later ones know earlier variables."""
        found: Document = {}
        for one in body:
            match one:
                case (
                    ast.Assign(targets=[target], value=value)
                    | ast.AnnAssign(target=target, value=value)
                ) if value is not None:
                    name = _dotted_name(target)
                    found |= dict(self._assigned(value, name, names))
                    if isinstance(target, ast.Name):
                        names[name] = self.constant(value, names)
                case ast.Return(value=value) | ast.Expr(value=value) if value:
                    found |= dict(self._assigned(value, "", names))
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                    found |= self.block(one.body, names)
                case ast.With():
                    found |= self.block(one.body, names)
        return found

    def _assigned(
        self, value: ast.expr, name: str, names: Document
    ) -> Iterator[tuple[str, object]]:
        """Yield what an assignment gives; the fields of a variable are enough.

        `cfg = Config(...)`: the fields are those of the whole, without its name.
        """
        behind = name.partition(".")[2]
        constant = self.constant(value, names)
        if constant is not _UNREAD:
            yield from [(behind or name, constant)] if name else []
        else:
            yield from self.fields(value, behind, names)

    def fields(
        self, value: ast.expr, name: str, names: Document
    ) -> Iterator[tuple[str, object]]:
        """Yield the constants of a value, by names that begin with the value's own."""
        before = f"{name}." if name else ""
        constant = self.constant(value, names)
        match value:
            case _ if constant is not _UNREAD:
                yield name, constant
            case ast.Call(func=ast.Name(id=own)) if own in self.functions:
                for inner, one in self.function(own, value, names).items():
                    yield before + inner, one
            case ast.Call(func=function, keywords=words):
                found = [
                    field
                    for word in words
                    if word.arg is not None
                    for field in self.fields(word.value, before + word.arg, names)
                ]
                yield from found
                if name:  # a part without fields is there all the same
                    called = _dotted_name(function) or "set"
                    yield (f"{name}.class", called) if found else (name, called)
            case ast.Dict(keys=keys, values=values):
                for key, one in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield from self.fields(one, before + key.value, names)
            case ast.List(elts=items) if name:
                calls = [one for one in items if isinstance(one, ast.Call)]
                if calls:
                    yield name, [_dotted_name(one.func) for one in calls]

    def constant(self, node: ast.expr, names: Document) -> Any:
        """Return a constant's value; `_UNREAD` for what is none."""
        match node:
            case ast.Constant(value=value) if isinstance(
                value, bool | int | float | str | None
            ):
                return value
            case ast.Name(id=name):
                return names.get(name, self.globals.get(name, _UNREAD))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self.constant(inner, names)
                is_number = type(value) in (int, float)
                return -value if is_number else _UNREAD
            case ast.List(elts=items) | ast.Tuple(elts=items):
                held = [self.constant(item, names) for item in items]
                return _UNREAD if _UNREAD in held else held
            case ast.BinOp(left=left, op=sign, right=right):
                return _calculate(
                    self.constant(left, names), sign, self.constant(right, names)
                )
            case ast.Attribute() if _DTYPE.fullmatch(name := _dotted_name(node)):
                return name
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
