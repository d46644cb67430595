"""The one text form of policies and thresholds, `global_norm(max_norm=zscore(z=2.5))`: its grammar, and its writing.

    value     = number | "none" | text | texts | call
    call      = name "(" [argument {"," argument} [","]] ")"
    argument  = value | name "=" value | text ":" value
    texts     = "(" [text {"," text} [","]] ")"            the same in [ ]
    text      = in " or ', where a backslash takes the next character as it is

What the names mean comes with the table that `read` is given (policies.py has it). Nothing is ever evaluated.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, NoReturn

from gradsight.errors import ConfigurationError

MAX_LENGTH = 65_536
MAX_DEPTH = 8

_TOKEN = re.compile(
    r"""(?P<number>[+-]?(?:(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?|(?:inf|nan)\b))
      | (?P<name>[^\W\d]\w*)
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<mark>[()\[\],=:])
      | (?P<end>\Z)""",
    re.VERBOSE | re.DOTALL,
)


class Call(NamedTuple):
    """`name(arguments)`; `at` is where it stands in the text, from 0 on, here and below."""

    name: str
    arguments: "list[Argument]"
    at: int


class Argument(NamedTuple):
    """One argument of a call: bare, after a keyword, or after a pattern."""

    keyword: str | None
    pattern: str | None
    value: Any  # int, float, None, str, tuple of str, or Call
    at: int


def read(text: str, kinds: Mapping[str, Any]) -> Any:
    """What a text describes: an object of one of the kinds, or a bare number, None, str, tuple of str.

    Args:
        kinds: name → dataclass. One with `takes_patterns` is made from a mapping pattern → value.

    Raises:
        ConfigurationError: the text describes nothing; the message says what is wrong, and where.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"policy must be a text like 'global_norm(1.0)', got {text!r}.")
    if len(text) > MAX_LENGTH:
        raise ConfigurationError(f"policy must be at most {MAX_LENGTH:,} characters, got {len(text):,}.")
    return _Builder(text, kinds).built(_Reader(text).whole())


def written(description: Any) -> str:
    """The canonical text of a threshold or policy, a dataclass with a `text_name`.

    The first argument is always written, any other one only where it isn't the default. An argument that is the only
    required one stands bare where it is a number; all others are named.
    """
    arguments = [field for field in fields(description) if field.init]
    required = [field.name for field in arguments if field.default is MISSING]
    parts = []
    for place, field in enumerate(arguments):
        value = getattr(description, field.name)
        if place == 0 or field.default is MISSING or value != field.default:
            bare = required == [field.name] and isinstance(value, int | float)
            parts.append(_value_text(value) if bare else f"{field.name}={_value_text(value)}")
    return f"{description.text_name}({', '.join(parts)})"


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _misplaced(message: str, text: str, at: int) -> ConfigurationError:
    """The error that says what is wrong, and where in the text."""
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return ConfigurationError(f"{message.removesuffix('.')}, at character {at + 1} of {shown!r}.")


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"({', '.join(map(quoted, value))}{',' if len(value) == 1 else ''})"
    return repr(value) if isinstance(value, int | float) else str(value)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def _tokens(text: str) -> Iterable[_Token]:
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        found = _TOKEN.match(text, at)
        if found is None:
            what = "a text without its closing quote" if text[at] in "\"'" else repr(text[at])
            raise _misplaced(f"policy must not hold {what}", text, at)
        yield _Token(str(found.lastgroup), found.group(), at)
        if found.lastgroup == "end":
            return
        at = found.end()


class _Reader:
    """Recursive descent over the tokens, one method for each line of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    def whole(self) -> Any:
        value = self._value(depth=1)
        if self._peek().kind != "end":
            self._refuse("must end there")
        return value

    def _value(self, depth: int) -> Any:
        token = self._peek()
        if depth > MAX_DEPTH:
            self._refuse("nests deeper than any policy")
        if token.kind == "number":
            return self._number()
        if token.kind == "text":
            return self._unquoted()
        if token.text in ("(", "["):
            return self._texts()
        if token.kind != "name":
            self._refuse("must have a number, a name or a text in quotes there")
        self._next += 1
        if token.text.lower() == "none":
            return None
        return Call(token.text, self._arguments(depth), token.at)

    def _arguments(self, depth: int) -> list[Argument]:
        self._expect("(")
        arguments: list[Argument] = []
        while not self._accept(")"):
            if arguments:
                self._expect(",")
                if self._accept(")"):
                    break
            arguments.append(self._argument(depth + 1))
        return arguments

    def _argument(self, depth: int) -> Argument:
        token, after = self._peek(), self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if token.kind == "name" and after.text == "=":
            self._next += 2
            return Argument(token.text, None, self._value(depth), token.at)
        if token.kind == "text" and after.text == ":":
            pattern = self._unquoted()
            self._next += 1
            return Argument(None, pattern, self._value(depth), token.at)
        return Argument(None, None, self._value(depth), token.at)

    def _texts(self) -> tuple[str, ...]:
        closing = ")" if self._peek().text == "(" else "]"
        self._next += 1
        texts: list[str] = []
        while not self._accept(closing):
            if texts:
                self._expect(",")
                if self._accept(closing):
                    break
            if self._peek().kind != "text":
                self._refuse("must have a text in quotes there")
            texts.append(self._unquoted())
        return tuple(texts)

    def _unquoted(self) -> str:
        token = self._peek()
        self._next += 1
        return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)

    def _number(self) -> float:
        token = self._peek()
        try:
            is_whole = re.fullmatch(r"[+-]?[\d_]{1,20}", token.text)  # a longer one is no count of anything
            number = int(token.text) if is_whole else float(token.text)
        except ValueError:
            self._refuse("must have a number there")
        self._next += 1
        return number

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, mark: str) -> bool:
        is_there = self._peek().kind == "mark" and self._peek().text == mark
        self._next += is_there
        return is_there

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            self._refuse(f"must have {mark!r} there")

    def _refuse(self, what: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token.kind == "end" else token.text[:60]
        raise _misplaced(f"policy {what}, got {found!r}", self._text, token.at)


class _Builder:
    """Makes objects of the tree, the innermost first; what their constructors refuse is told with its place."""

    def __init__(self, text: str, kinds: Mapping[str, Any]) -> None:
        self._text = text
        self._kinds = kinds

    def built(self, tree: Any) -> Any:
        if not isinstance(tree, Call):
            return tree
        kind = self._kinds.get(tree.name)
        if kind is None:
            raise self._misplaced(f"policy must name one of {', '.join(self._kinds)}, got {tree.name!r}", tree.at)
        takes_patterns = getattr(kind, "takes_patterns", False)
        given = (self._by_pattern(tree),) if takes_patterns else ()
        named = {} if takes_patterns else self._by_name(tree, kind)
        try:
            return kind(*given, **named)
        except ConfigurationError as error:
            raise self._misplaced(str(error), tree.at) from error

    def _by_pattern(self, call: Call) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for argument in call.arguments:
            if argument.pattern is None:
                raise self._misplaced(f'{call.name} must have arguments like "*router*": global_norm(0.1)', argument.at)
            if argument.pattern in parts:
                raise self._misplaced(f"{call.name} must have each pattern once, {argument.pattern!r}", argument.at)
            parts[argument.pattern] = self.built(argument.value)
        return parts

    def _by_name(self, call: Call, kind: Any) -> dict[str, Any]:
        known = [field for field in fields(kind) if field.init]
        names = [field.name for field in known]
        takes = f"{call.name} takes {', '.join(names)}"
        given: dict[str, Any] = {}
        for place, argument in enumerate(call.arguments):
            if argument.pattern is not None:
                raise self._misplaced(f"{takes} and no patterns, got {argument.pattern!r}", argument.at)
            if argument.keyword is None and (place >= len(names) or any(a.keyword for a in call.arguments[:place])):
                raise self._misplaced(f"{takes}, bare ones first, got one too many", argument.at)
            name = names[place] if argument.keyword is None else argument.keyword
            if name not in names or name in given:
                raise self._misplaced(f"{takes}, each once, got {name!r}", argument.at)
            given[name] = self.built(argument.value)
        missing = [field.name for field in known if field.default is MISSING and field.name not in given]
        if missing:
            raise self._misplaced(f"{call.name} must have {', '.join(missing)}", call.at)
        return given

    def _misplaced(self, message: str, at: int) -> ConfigurationError:
        return _misplaced(message, self._text, at)
