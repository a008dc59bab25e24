"""The files of a run with other values in them, each edit read back.

An edit replaces the text of a value, or the assignment of the shell variable that
stands there; a new name takes a line like that of a name beside it. It counts only
where the file, read again, says the new value and is else the same: what cannot be
written so is named, and the file left as it is.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InstanceError
from ..runs.source import Source
from . import forms
from .asked import Asked, File

_VALUE = r"\"[^\"\n]*\"|'[^'\n]*'|(?!--)(?:\$\{[^}\n]*\}|[^\s\\'\")])+"
_VARIABLE = re.compile(r"\"?\$\{?([A-Za-z_]\w{0,80})")
_PLACES = 20  # of a name in a file, at which an edit is tried


class Edited(NamedTuple):
    """A file and its new text; `left` are names that could not be written."""

    texts: dict[Path, tuple[str, str]]
    left: tuple[str, ...]

    def diff(self) -> str:
        """Return the changes as `diff -u` prints them, which `patch` takes."""
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for path, (old, new) in self.texts.items()
            for line in unified_diff(
                old.splitlines(keepends=True),
                new.splitlines(keepends=True),
                str(path),
                str(path),
            )
        )


def edit(module: object, asked: Asked, wanted: Asked, beside: Sequence[str]) -> Edited:
    """Return the files of a run with the values of `wanted`.

    A new name goes to one of those that it stands `beside`, the first that is there.
    """
    files, left = list(asked.files), []
    names = [*asked.values, *(n for n in wanted.values if n not in asked.values)]
    now = asked
    for name in names:
        if now.values.get(name) == wanted.values.get(name):
            continue
        goal = now.changed({name: wanted.values.get(name)})
        found = next(_edits(module, now, goal, name, beside), None)
        if found is None:
            left.append(asked.spelled(name))
        else:
            now = found
    texts = {
        old.source.path: (old.source.text, new.source.text)
        for old, new in zip(files, now.files, strict=True)
        if old.source.text != new.source.text
    }
    return Edited(texts, tuple(left))


def _edits(
    module: Any, now: Asked, goal: Asked, name: str, beside: Sequence[str]
) -> Iterator[Asked]:
    """Yield the run after every edit of one name that does what it should."""
    number, key = now.written.get(name, (None, ""))
    anchors = [now.written[one] for one in beside if one in now.written]
    places = [at for at, _ in anchors] if number is None else [number]
    for at in dict.fromkeys(places):
        file = now.files[at]
        keys = [key for one, key in anchors if one == at]
        for text in _texts(now, file, name, key, goal.values.get(name), keys):
            source = Source(file.source.path, text, file.source.part)
            try:
                form = forms.read(source)
                files = [*now.files]
                files[at] = File(source, form)
                found = module.asked(tuple(files))
            except InstanceError:
                continue
            if found is not None and _same(found, goal):
                yield found


def _same(found: Asked, goal: Asked) -> bool:
    return _texts_of(found) == _texts_of(goal)


def _texts_of(asked: Asked) -> dict[str, str]:
    return {name: str(value) for name, value in asked.values.items()}


def _texts(
    now: Asked, file: File, name: str, key: str, new: object, anchors: Sequence[str]
) -> Iterator[str]:
    """Yield texts in which a name may have its new value."""
    text = file.source.text
    if file.form.is_command:
        if key:
            yield from _in_command(text, key, new)
        else:  # what a tool has where nothing is told is off by name
            new = "false" if new is None else new
            own = now.spelled(name).removeprefix("--")
            yield from _added_to_command(text, own, new, anchors)
    elif "log" in file.form.kind:
        return
    elif key:
        yield from _in_tree(file, text, key, new)
    else:
        last = now.spelled(name).rpartition(".")[2]
        part = name.rpartition(".")[0]
        near = sorted(anchors, key=lambda one: one.rpartition(".")[0] != part)
        yield from _added_to_tree(file, last, new, near)


# --- commands ----------------------------------------------------------------------


def _flag(key: str) -> str:
    """Return the pattern of a flag, or of a `name=value` without dashes."""
    name = re.escape(key).replace(r"\-", "[-_]")
    return rf"(?<!\S)(?:--{name}(?![\w.-])|{name}(?==))"


def _in_command(text: str, key: str, new: object) -> Iterator[str]:
    key = key.removeprefix("--")
    flag = re.compile(_flag(key) + rf"(?:(?P<sign>[= \t]+)(?P<value>{_VALUE}))?")
    if new is None:
        yield _without(text, flag)
        return
    places = list(flag.finditer(text))[:_PLACES]
    for match in places:
        if variable := _VARIABLE.match(match["value"] or ""):
            yield from _assign(text, variable[1], str(new))
    yield _replace(text, [match for match in places if match["value"]], str(new))


def _assign(text: str, name: str, new: str) -> Iterator[str]:
    """Yield texts in which a variable has another value, or another default."""
    assigned = re.compile(rf"(?m)(?:^|[ \t;]){name}=(?P<value>{_VALUE})")
    default = re.compile(r"(\"?\$\{\w{1,80}:?-)[^}\"]*(\}\"?)")
    for match in list(assigned.finditer(text))[:_PLACES]:
        if parts := default.fullmatch(match["value"]):
            start, end = match.span("value")
            yield text[:start] + parts[1] + new + parts[2] + text[end:]
        else:
            yield _replace(text, [match], new)


def _without(text: str, flag: "re.Pattern[str]") -> str:
    """A script without a flag and its value, nor the line that it had for itself."""
    for match in reversed(list(flag.finditer(text))[:_PLACES]):
        start, end = match.span()
        line = text.rfind("\n", 0, start) + 1
        rest = re.compile(r"[ \t]*\\?[ \t]*\r?(?:\n|$)").match(text, end)
        if not text[line:start].strip() and rest is not None:
            start, end = line, rest.end()
            if "\\" not in rest[0]:  # the command ends a line before
                kept = text[:start].rstrip(" \t\r\n")
                start = len(kept.removesuffix("\\").rstrip(" \t"))
                end = rest.end() - rest[0].count("\n")
        else:
            start -= len(text[:start]) - len(text[:start].rstrip(" \t"))
        text = text[:start] + text[end:]
    return text


def _added_to_command(
    text: str, name: str, new: object, anchors: Sequence[str]
) -> Iterator[str]:
    """Before a flag that is there, on a line of its own where that one has one."""
    for key in anchors:
        flag = re.compile(_flag(key) + rf"(?:[= \t]+(?:{_VALUE}))?")
        if (match := flag.search(text)) is None:
            continue
        start = match.start()
        written = name.replace("-", "_") if "_" in match[0].split()[0] else name
        word = f"--{written} {shlex.quote(str(new))}" if new != "" else f"--{written}"
        line = text.rfind("\n", 0, start) + 1
        rest = re.compile(r"[ \t]*\\?[ \t]*\r?\n").match(text, match.end())
        before = text[line:start]
        added = f"{word} "
        if not before.strip() and rest is not None:
            added = f"{word}{rest[0]}{before}"
            if "\\" not in rest[0] and text[:line].rstrip(" \t\n").endswith("\\"):
                added = f"{word} \\\n{before}"
        yield text[:start] + added + text[start:]


def _replace(text: str, places: list["re.Match[str]"], new: str) -> str:
    """Return a text with another value at some places; quotes stay."""
    for match in reversed(places):
        start, end = match.span("value")
        quote = text[start] if text[start] in "\"'" else ""
        value = f"{quote}{new}{quote}" if quote else shlex.quote(new)
        text = text[:start] + value + text[end:]
    return text


# --- configurations ----------------------------------------------------------------


def _in_tree(file: File, text: str, key: str, new: object) -> Iterator[str]:
    last = re.escape(key.rpartition(".")[2])
    named = re.compile(
        rf"(?<![\w.-])[\"']?{last}[\"']?[ \t]*[:=][ \t]*"
        r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^,\s#)}\]]+)"
    )
    if "." in key or file.form.kind == "Python":
        named = re.compile(named.pattern.replace(r"(?<![\w.-])", r"(?<![\w-])", 1))
    places = list(named.finditer(text))[:_PLACES]
    for match in places:
        old = match["value"]
        value = _literal(file, new, old)
        start, end = match.span("value")
        if value is not None:
            yield text[:start] + value + text[end:]
        else:
            line = text.rfind("\n", 0, match.start()) + 1
            yield text[:line] + text[text.find("\n", end) + 1 :]


def _literal(file: File, new: object, old: str) -> str | None:
    """Return a value as its kind of file writes it; None where a line has to go."""
    kind, quote = file.form.kind, old[:1] if old[:1] in ("'", '"') else ""
    if new is None:
        if old.strip("\"'").lower() in ("true", ""):
            return "False" if kind == "Python" else "false"
        return {"TOML": None, "Python": "None"}.get(kind, "null")
    text = str(new)
    if text.lower() in ("", "true", "false"):
        text = text.lower() or "true"
        return text.title() if kind == "Python" else text
    if quote or kind == "YAML" or re.fullmatch(r"-?[0-9]+", text):
        return f"{quote}{text}{quote}"
    return f'"{text}"'


def _added_to_tree(
    file: File, last: str, new: object, anchors: Sequence[str]
) -> Iterator[str]:
    """Add a setting on a line like that of a name beside it."""
    text = file.source.text
    for key in anchors[:_PLACES]:
        own = re.escape(key.rpartition(".")[2])
        line = re.compile(
            rf"(?m)^(?P<before>[^\n#]*?[\"']?)(?<![\w-]){own}"
            r"(?P<sign>[\"']?[ \t]*[:=][ \t]*)"
            r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^,\s#)}\]]+)(?P<comma>,?)[^\n]*\n"
        )
        for match in list(line.finditer(text))[:_PLACES]:
            value = _literal(file, new, "")
            comma = "," if file.form.kind == "JSON" else match["comma"]
            made = f"{match['before']}{last}{match['sign']}{value}{comma}\n"
            yield text[: match.start()] + made + text[match.start() :]
