"""The words of a shell script's commands; no shell is run.

A subset of bash is read, as far as launch scripts go: quotes, comments, line breaks;
`NAME=value`, `NAME+=value` and arrays `NAME=(...)`; `$NAME`, `${NAME}`, `${NAME[@]}`,
`${NAME[0]}`, `${NAME:-default}` and its like; sums and products of whole numbers in
`$((...))`; `if`, `&&` and `||` with one test that compares (`=`, `!=`, `-eq` and its
like, `-z`, `-n`), negated or not; what `bash -c TEXT` and `eval TEXT` run. What the
script does not set is empty in tests and gives way to a default; its own words (`$@`)
are taken as none, which is reported.

Anything else stays as it is written, and `Word.unread` names it: variables that are not
set elsewhere, `$(command)`, and what is set in a loop, in a function, in a `case` or
under another test, where commands are not `is_sure`. Here-documents are skipped. Other
scripts are not read: those that are sourced or started are reported.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import NamedTuple

from ...errors import InstanceError, quoted
from . import processes

_MOST_CHARACTERS = 2**17  # of a script
_MOST_EXPANDED = 2**20  # characters that all its words stand for
_LONG = 200  # characters of a sum in $((...)), longer ones are not read
_MOST_DIGITS = 12  # of a number in $((...)), so that its products stay small
_REMEDY = "paste the expanded command"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_RUN = r"\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`"
_BRACES = r"\$\{(?:[^{}]|\{[^{}]*\})*\}"
_DOUBLE = rf'"(?:\\.|{_RUN}|[^"\\])*"'
_DOLLAR = rf"(?P<run>{_RUN})|(?P<braces>{_BRACES})|\$(?P<plain>{_NAME}|[0-9@*#?!$])"
_PIECE = re.compile(
    rf"'(?P<single>[^']*)'|(?P<double>{_DOUBLE})|\\(?P<escaped>.)|{_DOLLAR}|.", re.S
)
_IN_DOUBLE = re.compile(rf"\\(?P<escaped>[$`\"\\\n])|{_DOLLAR}|.", re.S)
_PARAMETER = re.compile(
    rf"(?P<name>{_NAME}|[0-9]{{1,2}}|[@*#])(?:\[(?P<index>[@*]|[0-9]{{1,4}})\])?"
    r"(?:(?P<sign>:?[-=])(?P<default>.*))?",
    re.S,
)
_QUOTED = rf"'[^']*'|{_DOUBLE}|\\.|{_RUN}|{_BRACES}"
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n|(?<![^\s;&|()])#[^\n]*)+")
_HERE = re.compile(r"[0-9]?<<(?P<dash>-?)[ \t]*(?P<end>\\?['\"]?[\w.-]{1,80}['\"]?)")
_REDIRECTION = re.compile(r"[0-9]?(?:&>>?|>[>&|]?|<<<|<&?)[ \t]*")
_OPERATOR = re.compile(r"\n|;;?|&&?|\|[|&]?|[()]")
# Lists of arguments are read, too, in which `t|tt` and `(t|)*3` stand unquoted: within
# a word these are its characters, but in an array, which a `)` ends.
_WORD = re.compile(rf"(?:{_QUOTED}|[^\s'\"\\;&<>])+", re.S)
_ITEM = re.compile(rf"(?:{_QUOTED}|[^\s'\"\\;&<>()])+", re.S)
_ASSIGNMENT = re.compile(rf"(?P<name>{_NAME})(?P<more>\+?)=")
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "zsh")
_RUNS_TEXT = re.compile(r"-[a-z]{0,4}c")  # an option of a shell: -c, -lc
_MOST_NESTED = 6  # shells within others
_SCRIPT = re.compile(r"[^\s]{1,300}\.(?:sh|bash|slurm|sbatch|sub)")
_ENDS = {
    **dict.fromkeys(("for", "while", "until", "select"), "done"),
    **{"if": "fi", "case": "esac", "{": "}"},
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_MARK = re.compile("\ue000([0-9]+)\ue001")  # in a text: something that is not read

Truth = bool | None  # None: not known


class Word(NamedTuple):
    """A word after expansion; `unread` is what of it was not understood."""

    text: str
    unread: str | None = None


class Command(NamedTuple):
    """The words of a command; `is_sure` where it is known to run."""

    words: list[Word]
    line: int
    is_sure: bool


class Reading(NamedTuple):
    """The commands of a script in their order, and its variables at the end."""

    commands: list[Command]
    variables: Mapping[str, str]
    notes: tuple[str, ...]


class _Token(NamedTuple):
    """A word, an operator, a redirection, or an array with its items; not expanded."""

    kind: str
    text: str
    line: int
    items: tuple[str, ...] = ()


class _Block:
    """A compound command that is open: how it ends, whether its commands run."""

    def __init__(self, end: str) -> None:
        self.end = end
        self.is_test = end == "fi"  # up to `then` or `do`; tests are run
        self.runs: Truth = True if self.is_test else None
        self.was_taken: Truth = False  # an earlier branch of this `if`


def read(text: str, place: str) -> Reading:
    """Return what a script runs, or may run.

    `InstanceError` where the script cannot be split into words.
    """
    if len(text) > _MOST_CHARACTERS:
        raise InstanceError(
            f"{place}: found {len(text)} characters, expected a launch script of at "
            f"most {_MOST_CHARACTERS}; {_REMEDY}"
        )
    script = _Script(place)
    script.variables |= {k: [v] for k, v in processes.of_slurm(text).items()}
    found = list(script.run(_tokens(_MARK.sub("", text), place)))
    held = {name: " ".join(values) for name, values in script.variables.items()}
    return Reading(found, held, tuple(dict.fromkeys(script.notes)))


def _tokens(text: str, place: str) -> Iterator[_Token]:
    at, line, behind = 0, 1, 0  # `behind` the here-documents of this line
    while at < len(text):
        items: tuple[str, ...] = ()
        start, kind = at, "word"
        if match := _BLANK.match(text, at):
            kind = ""
        elif match := _HERE.match(text, at):
            kind, behind = "here", _end_of_here(text, match, behind)
        elif match := _REDIRECTION.match(text, at):
            kind, match = "redirection", _WORD.match(text, match.end()) or match
        elif match := _OPERATOR.match(text, at):
            kind = "operator"
        elif (match := _ASSIGNMENT.match(text, at)) and text.startswith(
            "(", match.end()
        ):
            kind = "array"
        else:
            match = _WORD.match(text, at)
        if match is None:
            raise InstanceError(
                f"{place}: line {line}: found {quoted(text[at : at + 20])}, expected "
                f"the quote that ends it; quote it as a shell does, or {_REMEDY}"
            )
        at = match.end()
        if match[0] == "\n" and behind > at:
            at, behind = behind, 0
        if kind == "array":
            items, at = _items(text, at + 1, f"{place}: line {line}")
        if kind:
            yield _Token(kind, match[0], line, items)
        line += text.count("\n", start, at)


def _end_of_here(text: str, start: "re.Match[str]", behind: int) -> int:
    """Return where a here-document ends, which may be the end of the text.

    It begins on the next line, or `behind` another of the same line.
    """
    first = behind or text.find("\n", start.end()) + 1 or len(text)
    end = re.escape(start["end"].strip("\\'\""))
    tabs = r"\t*" if start["dash"] else ""
    match = re.compile(rf"(?m)^{tabs}{end}\r?$\n?").search(text, first)
    return len(text) if match is None else match.end()


def _items(text: str, at: int, place: str) -> tuple[tuple[str, ...], int]:
    items = []
    while not text.startswith(")", at):
        if text.startswith("\n", at):
            at += 1
        elif match := _BLANK.match(text, at):
            at = match.end()
        elif match := _ITEM.match(text, at):
            items.append(match[0])
            at = match.end()
        else:
            raise InstanceError(
                f"{place}: found an array that does not end, expected words and `)`; "
                f"close it, or {_REMEDY}"
            )
    return tuple(items), at + 1


def _both(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _not(one: Truth) -> Truth:
    return None if one is None else not one


def _either(one: Truth, other: Truth) -> Truth:
    return _not(_both(_not(one), _not(other)))


class _Script:
    """A script in reading knows its variables, and which blocks are open."""

    def __init__(self, place: str, *, nested: int = 0) -> None:
        self.place = place
        self.nested = nested  # how many shells this one is started by
        self.variables: dict[str, list[str]] = {"@": [], "*": [], "#": ["0"]}
        self.notes: list[str] = []
        self.unread: list[str] = []
        self.blocks: list[_Block] = []
        self.expanded = 0

    def run(self, tokens: Iterable[_Token]) -> Iterator[Command]:
        """Yield the commands; set variables as they do."""
        result: Truth = True  # of the commands so far that && and || join
        before = "\n"
        parts: list[_Token] = []
        for token in chain(tokens, [_Token("operator", "\n", 0)]):
            texts = [part.text for part in parts]
            is_open = "[[" in texts and "]]" not in texts
            joins = token.text in ("&&", "||") and is_open
            if token.kind != "operator" or joins:
                parts.append(token)
                continue
            if parts := self._behind_keywords(parts, result):
                runs = {"&&": result, "||": _not(result)}.get(before, True)
                for block in self.blocks:
                    runs = _both(runs, block.runs)
                own = self._result(parts)
                join = {"&&": _both, "||": _either}.get(before)
                result = own if join is None else join(result, own)
                yield from self._command(parts, runs)
            before, parts = token.text, []

    # --- blocks ---

    def _behind_keywords(self, parts: list[_Token], result: Truth) -> list[_Token]:
        """Open, turn and close blocks; return what stands behind the keywords.

        `result` is that of the test that a `then` follows.
        """
        while parts and parts[0].kind == "word":
            word = parts[0].text
            block = self.blocks[-1] if self.blocks else _Block("")
            if word in _ENDS:
                self.blocks.append(_Block(_ENDS[word]))
                if word == "while":
                    self.blocks[-1].is_test = self.blocks[-1].runs = True
                if word in ("for", "select") and len(parts) > 1:
                    self._spoil(parts[1].text, parts[1].line)
            elif word == block.end:
                self.blocks.pop()
            elif block.end == "fi" and word == "then":
                block.is_test = False
                block.runs = _both(_not(block.was_taken), result)
                block.was_taken = _either(block.was_taken, result)
            elif block.end == "done" and word == "do" and block.is_test:
                block.is_test, block.runs = False, False if result is False else None
            elif block.end == "fi" and word == "elif":
                block.is_test = block.runs = True
            elif block.end == "fi" and word == "else":
                block.runs = _not(block.was_taken)
            elif word == "function":
                parts = parts[1:]  # its name
            elif word != "do" and not (word.endswith("()") and len(parts) > 1):
                break
            parts = parts[1:]
        return parts

    def _result(self, parts: list[_Token]) -> Truth:
        """Return whether a command succeeds; one that is no test does, as a rule."""
        first = parts[0].text
        if first == "!" and len(parts) > 1:
            return _not(self._result(parts[1:]))
        if first in ("test", "false"):
            return None
        if first not in ("[", "[[") or parts[-1].text not in ("]", "]]"):
            return None if self.blocks and self.blocks[-1].is_test else True
        if any(part.kind != "word" for part in parts):
            return None
        words = [self._text(part.text, unset="") for part in parts[1:-1]]
        is_pattern = first == "[[" and any(set("*?[") & {*word} for word in words)
        if is_pattern or any(_MARK.search(word) for word in words):
            return None
        if words[:1] == ["!"]:
            return _not(_compare(words[1:]))
        return _compare(words)

    # --- commands ---

    def _command(self, parts: list[_Token], runs: Truth) -> Iterator[Command]:
        """Set the variables that a command sets; yield its words, unless it is skipped.

        What a command sets that may run or not is not known from there on.
        """
        if runs is False:
            return
        declares = parts[0].text in _DECLARING
        for number, part in enumerate(parts[declares:], declares):
            match = _ASSIGNMENT.match(part.text)
            if match is None and not (declares and part.kind == "word"):
                yield from self._called(parts[number:], runs)
                return
            if match is not None and runs:
                self._assign(match, part)
            elif match is not None:
                self._spoil(match["name"], part.line)

    def _called(self, parts: list[_Token], runs: Truth) -> Iterator[Command]:
        """Yield a command, or those of the text that it has a shell run."""
        texts = [part.text for part in parts if part.kind == "word"]
        words = [word for text in texts for word in self._words(text)]
        self._set_by(words, parts, runs)
        readers = {word.rpartition("/")[2] for word in words} & {*_SHELLS, "sbatch"}
        if readers and any(part.kind == "here" for part in parts):
            raise InstanceError(
                f"{self.place}: line {parts[0].line}: found a here-document that a "
                f"shell runs, expected a script of its own; {_REMEDY}"
            )
        text = self._text_to_run(words)
        if text is None:
            told = list(map(self._without_unread, words))
            yield Command(told, parts[0].line, runs is True)
            return
        inner = _Script(self.place, nested=self.nested + 1)
        inner.notes, inner.unread = self.notes, self.unread
        inner.expanded = self.expanded
        # Another shell has its own variables.
        is_own = words[0] == "eval"
        inner.variables = self.variables if is_own else {**self.variables}
        for one in inner.run(_tokens(text, self.place)):
            sure = one.is_sure and runs is True
            yield Command(one.words, parts[0].line, sure)
        self.expanded = inner.expanded
        for name in processes.VARIABLES & inner.variables.keys():
            self.variables.setdefault(name, inner.variables[name])

    def _text_to_run(self, words: list[str]) -> str | None:
        """Return the text that a command has a shell run; None for other commands."""
        if not words or self.nested >= _MOST_NESTED:
            return None
        if (text := _text_of(words)) is not None:
            return text
        if (script := _script_of(words)) is not None:
            told = self._without_unread(script).text
            self.notes.append(f"{told}: not read, as it is another script")
        return None

    def _set_by(self, words: list[str], parts: list[_Token], runs: Truth) -> None:
        """Set and unset the variables that a command does, behind its assignments."""
        for total in words[1:] if words[:1] == ["let"] else ():
            self._spoil(total.partition("=")[0].strip(), parts[0].line)
        if words[:2] == ["set", "--"]:
            for name in "@*#":
                self._spoil(name, parts[0].line)
        for name in words[1:] if words and words[0] == "unset" else ():
            if runs:
                self.variables.pop(name, None)
            else:
                self._spoil(name, parts[0].line)
        if runs is None:
            # Behind the pattern of a `case` a command may stand in the same line.
            for part in parts:
                if (match := _ASSIGNMENT.match(part.text)) is not None:
                    self._spoil(match["name"], part.line)

    def _assign(self, match: re.Match[str], part: _Token) -> None:
        name, more = match["name"], bool(match["more"])
        held = self.variables.get(name, []) if more else []
        if part.kind == "array":
            new = [word for item in part.items for word in self._words(item)]
            self.variables[name] = [*held, *new]
        else:
            text = self._text(part.text[match.end() :])
            self.variables[name] = [*held[:-1], "".join(held[-1:]) + text]

    def _spoil(self, name: str, line: int) -> None:
        self.variables[name] = [
            self._mark(f"${name} (set at line {line} only if something holds)")
        ]

    # --- expansion ---

    def _mark(self, what: str) -> str:
        """Return a text that stands for something that is not read."""
        self.unread.append(what)
        return f"\ue000{len(self.unread) - 1}\ue001"

    def _without_unread(self, word: str) -> Word:
        """Return a word with what is not read as it is written."""
        marks = [self.unread[int(number)] for number in _MARK.findall(word)]
        text = _MARK.sub(lambda one: self.unread[int(one[1])], word)
        return Word(text, marks[0] if marks else None)

    def _text(self, raw: str, unset: str | None = None) -> str:
        """Return what a word stands for where it stays one."""
        return " ".join(self._words(raw, unset, is_split=False))

    def _words(
        self, raw: str, unset: str | None = None, *, is_split: bool = True
    ) -> list[str]:
        """Return the words that one stands for.

        `unset` is what a variable is that the script does not set; None: not read.
        """
        words = _Words()
        for piece in _PIECE.finditer(raw):
            group = piece.groupdict()
            if group["double"] is not None:
                self._add_quoted(group["double"][1:-1], unset, words)
            elif group["escaped"] == "\n":
                continue  # the word goes on in the next line
            elif group["single"] is not None or group["escaped"] is not None:
                words.glue(group["single"] or group["escaped"] or "")
            elif (values := self._expand(group, unset)) is None:
                words.glue(piece[0])
            elif is_split:
                words.spread(values)
            else:
                words.glue(" ".join(values))
            if self.expanded + words.length > _MOST_EXPANDED:
                raise InstanceError(
                    f"{self.place}: found {quoted(raw)}, where words stand for more "
                    f"than {_MOST_EXPANDED} characters, expected fewer; {_REMEDY}"
                )
        self.expanded += words.length
        return words.finished()

    def _add_quoted(self, inside: str, unset: str | None, words: "_Words") -> None:
        """Add a text in double quotes: one word, but for all items of an array."""
        if not re.fullmatch(rf"\$(?:@|\{{(?:@|{_NAME}\[@\])\}})", inside):
            words.glue("")
        for piece in _IN_DOUBLE.finditer(inside):
            group = piece.groupdict()
            if group["escaped"] is not None:
                words.glue(group["escaped"].strip("\n"))
            elif (values := self._expand(group, unset)) is None:
                words.glue(piece[0])
            elif piece[0].endswith("[@]}") or piece[0] in ("$@", "${@}"):
                words.join(values)
            else:
                words.glue(" ".join(values))

    def _expand(
        self, group: Mapping[str, str | None], unset: str | None
    ) -> list[str] | None:
        """Return what stands behind a `$`; None for a character that is itself."""
        if (run := group["run"]) is not None:
            is_sum = run.startswith("$((") and run.endswith("))")
            total = self._value(run[3:-2]) if is_sum else None
            return [self._mark(run) if total is None else str(total)]
        inside = group["plain"]
        if (braces := group["braces"]) is not None:
            inside = braces[2:-1]
        return None if inside is None else self._parameter(inside, unset)

    def _parameter(self, inside: str, unset: str | None) -> list[str]:
        written = f"${inside}" if re.fullmatch(r"\w+|\W", inside) else f"${{{inside}}}"
        match = _PARAMETER.fullmatch(inside)
        if match is None:
            return [self._mark(written)]
        values = self.variables.get(match["name"])
        if match["name"] in "@*#":
            self.notes.append(
                f"{written}: the script is taken to be started without arguments; if "
                f"it has any, {_REMEDY}"
            )
        if values is not None and match["name"] in "@*":
            values = [*values]
        elif values is not None:
            index = match["index"]
            every = index is not None and index in "@*"
            values = values if every else values[int(index or 0) :][:1]
        if (sign := match["sign"]) is not None:
            if values is None or (":" in sign and not "".join(values)):
                values = self._words(match["default"], unset, is_split=False)
                if "=" in sign:
                    self.variables[match["name"]] = values
        elif values is None:
            values = [self._mark(written) if unset is None else unset]
        return values

    def _value(self, total: str) -> int | None:
        inside = re.sub(
            rf"\$?\b({_NAME})\b|\$\{{({_NAME})\}}",
            lambda one: "".join(self.variables.get(one[1] or one[2], ["?"]))[:_LONG],
            total,
        )
        if len(inside) > _LONG or not re.fullmatch(r"[0-9()+*/%\s-]*", inside):
            return None
        try:
            return _sum(ast.parse(inside.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None


class _Words:
    """Words under construction: the last one may still be added to."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._last: str | None = None
        self.length = 0  # of all words, and how many

    def glue(self, text: str) -> None:
        """Add to the last word, or begin one."""
        self._last = (self._last or "") + text
        self.length += len(text) + 1

    def join(self, values: list[str]) -> None:
        """Add words of which the first is glued, and the last may be added to."""
        for number, value in enumerate(values):
            if number:
                self._end()
            self.glue(value)

    def spread(self, values: list[str]) -> None:
        """Add values that no quotes protect: blanks divide them."""
        for number, value in enumerate(values):
            if number or value[:1].isspace():
                self._end()
            self.join(value.split())
            if value[-1:].isspace():
                self._end()

    def _end(self) -> None:
        if self._last is not None:
            self._done.append(self._last)
        self._last = None

    def finished(self) -> list[str]:
        self._end()
        return self._done


def _text_of(words: list[str]) -> str | None:
    if words[:1] == ["eval"]:
        return " ".join(words[1:])
    behind = False  # a shell's name, and nothing but options since
    for option, text in pairwise(words):
        if behind and _RUNS_TEXT.fullmatch(option):
            return text
        behind = option in _SHELLS or (behind and option.startswith("-"))
    return None


def _script_of(words: list[str]) -> str | None:
    """Return the script that a command sources or starts; None for other commands."""
    if words[0] in ("source", "."):
        return " ".join(words[1:])
    behind = True  # a shell's or sbatch's name, and nothing but options since
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if behind and _SCRIPT.fullmatch(name):
            return word
        behind = name in (*_SHELLS, "sbatch", "srun") or (
            at > 0 and behind and word.startswith("-")
        )
    return None


def _compare(words: list[str]) -> Truth:
    match words:
        case [text]:
            return text != ""
        case ["-z", text]:
            return text == ""
        case ["-n", text]:
            return text != ""
        case [one, "=" | "==" | "!=" as sign, other]:
            return (one == other) == (sign != "!=")
        case [one, sign, other] if sign in _COMPARISONS:
            if all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in (one, other)):
                return _COMPARISONS[sign](int(one), int(other))
    return None


def _sum(node: ast.AST) -> int:
    """Return the value of a sum or product of whole numbers, else `ValueError`."""
    value = -1
    match node:
        case ast.Constant(value=int(number)) if len(str(number)) <= _MOST_DIGITS:
            value = number
        case ast.BinOp(left, sign, right) if type(sign) in _ARITHMETIC:
            value = _ARITHMETIC[type(sign)](_sum(left), _sum(right))
    if value < 0:
        raise ValueError("no whole numbers alone")
    return value
