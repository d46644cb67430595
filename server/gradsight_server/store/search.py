"""Finding a text within another, where upper and lower case are one, in any language and on either engine."""

from typing import Any

from sqlalchemy import ColumnElement, func


def contains(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """Whether the column has the text in it.

    The engines make letters one as far as they know them: SQLite those of ASCII, PostgreSQL those of the database's
    locale. The others that are in the text are made one here.
    """
    found: ColumnElement[Any] = column
    for letter in sorted({letter for letter in text if not letter.isascii()}):
        lower = letter.lower()
        for other in sorted({letter, letter.upper(), letter.title()} - {lower}):
            if len(other) == 1:
                found = func.replace(found, other, lower)
    return found.icontains("".join(map(str.lower, text)), autoescape=True)
