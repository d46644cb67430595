"""Advice taken apart: paragraphs of words, and code among them, whose lines are all indented by four spaces."""

from typing import NamedTuple


class Block(NamedTuple):
    text: str
    is_code: bool


def blocks_of(advice: str) -> list[Block]:
    """Its paragraphs in order."""
    found = []
    for part in (part for part in advice.split("\n\n") if part.strip()):
        lines = part.strip("\n").split("\n")
        is_code = all(line.startswith("    ") or not line.strip() for line in lines)
        found.append(Block("\n".join(line[4:] for line in lines) if is_code else part.strip(), is_code))
    return found
