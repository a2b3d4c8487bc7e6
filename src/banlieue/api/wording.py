"""What the words of conditions and events are made of: a value, its meaning, what it asks for."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ReasonClass(StrEnum):
    """What a reason asks of us and of people."""

    FACT = "F"
    """Says how things stand; nothing is wrong."""
    TRANSIENT = "T"
    """Tried again with growing pauses."""
    WAIT = "W"
    """Waits for a change elsewhere, which is watched; tried again slowly."""
    SPEC = "S"
    """Not tried again until the spec or a referenced object changes."""
    CONFLICT = "C"
    """A person has to decide."""


class Worded(StrEnum):
    """A word with its meaning."""

    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Make the member whose value is the word."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member
