"""From a text to the value of an option, within its bounds: the only place where options are read; and to the
time zone that one names.

Every number has finite bounds, so that no option holds infinity, 1e300 or a thousand digits, and none is read
in another base: `010` is ten. A text has no NUL and can be written as UTF-8, as every record is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from yanmo.common.address import Address
from yanmo.common.words import did_you_mean

MOST = 10**9
"""Upper bound of a number that declares none."""
MOST_EXACT = 10**15
"""Integers are exact up to here in doubles, which JSON and KFP make of numbers."""
AUTO = "auto"
"""Value of an option that takes it, for "not given here". An empty text means the same."""

_NUMBER = re.compile(r"[+-]?([0-9](_?[0-9])*(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_LONGEST_NUMBER = 40
_NO_SECRETS = (
    "an address without user, password and query: secrets come from the environment or a mounted Secret "
    "(docs/explanation/store.md)"
)
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class WrongValue(ValueError):
    """A text or a value that an option cannot have; says what was expected and found."""

    def __init__(self, expected: str, found: Any, hint: str = "") -> None:
        super().__init__(f"{brief(found)}: expected {expected}{hint}{mistyped(str(found))}")


_TYPED = {
    **{chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)},
    **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d", '"'),
    **dict.fromkeys("\u2018\u2019\u201a", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u3000\u00a0\u2002\u2003\u2009", " "),
    **{"\u3001": ",", "\u3002": ".", "\u2044": "/", "\u223c": "~"},
}
"""Characters of a Chinese keyboard or a word processor -> those that are meant."""


def mistyped(text: str) -> str:
    """`; it holds ...` for a text with full-width or curly characters, where others are meant."""
    found = [each for each in dict.fromkeys(text) if each in _TYPED]
    codes = {each: f"U+{ord(each):04X}" for each in found}
    named = {each: f"{each} ({code})" if each.isprintable() else code for each, code in codes.items()}
    shown = ", ".join(f"{named[each]} for {_TYPED[each]!r}" for each in found[:3])
    return f"; it holds {shown}" if found else ""


def brief(found: Any) -> str:
    """Return a value for a message: without secrets, quoted where it is not one word, and cut."""
    text = f"{found:g}" if isinstance(found, float) else str(Address(str(found)))
    text = text if len(text) <= 60 else f"{text[:50]}... ({len(text)} characters)"
    return text if text and text.isprintable() and text == text.strip() else ascii(text)


def number_in(text: str) -> float | None:
    """Return the number in a text as KFP, YAML and people spell it (`1000`, `1e3`, `3e-4`); else None."""
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return float(text.replace("_", ""))


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of a number."""

    least: float = 0
    most: float = MOST
    above_least: bool = False
    """Whether it is above the least and not equal to it."""
    below_most: bool = False

    def hold(self, value: float) -> bool:
        """Return whether a number is within them; NaN is not."""
        low = value > self.least if self.above_least else value >= self.least
        return low and (value < self.most if self.below_most else value <= self.most)

    def __str__(self) -> str:
        low = f"above {self.least:.16g} and" if self.above_least else f"from {self.least:.16g}"
        if self.below_most:
            return f"{low} below {self.most:.16g}" if self.above_least else f"{low} to below {self.most:.16g}"
        return f"{low} at most {self.most:.16g}" if self.above_least else f"{low} to {self.most:.16g}"


@dataclass(frozen=True, kw_only=True)
class Values:
    """What values an option can have."""

    type: type
    several: bool = False
    """A tuple of them: numbers and choices with commas between them, other texts one at a time."""
    bounds: Bounds = field(default_factory=Bounds)
    choices: Sequence[Any] = ()
    words: Mapping[str, int] = field(default_factory=dict)
    """Words that may be given instead of a number."""
    takes_auto: bool = False
    is_address: bool = False
    """Of a server, which `http://` may be left out of."""
    is_free: bool = False
    """Any text: it is kept and shown nowhere."""

    def read(self, text: str) -> Any:
        """Return the value that a text stands for; None for `auto`.

        Raises:
            WrongValue: it is not a value that the option can have.
        """
        self.refuse_secrets(text)
        if not self.several:
            return self._read(text)
        parts = [part.strip() for part in text.split(",") if part.strip()] if self.has_commas else [text]
        if not parts:
            raise WrongValue(self.expected, text)
        return tuple(map(self._read, parts))

    def refuse_secrets(self, text: str) -> None:
        """Raise `WrongValue` for a text with an address that has a user, a password or a query.

        Options are recorded, shown and handed to other processes; secrets are not.
        """
        address = Address(text, bare=self.is_address)
        if address.has_secrets and not self.is_free:
            raise WrongValue(_NO_SECRETS, str(address))

    def fits(self, value: Any) -> bool:
        """Return whether an option can have this value."""
        if self.several:
            return isinstance(value, tuple) and all(map(self._fits, value))
        return self._fits(value)

    @property
    def has_commas(self) -> bool:
        """Return whether one text holds several values."""
        return self.several and (self.type is not str or bool(self.choices))

    def _read(self, text: str) -> Any:
        word = text.strip()
        if self.takes_auto and word in ("", AUTO):
            return None
        if word in self.words:
            return self.words[word]
        value = self._value(text)
        if value is None or not self._fits(value):
            raise WrongValue(self.expected, text, self._hint(text))
        return value

    def _fits(self, value: Any) -> bool:
        kind: Any = type(value)
        if kind is not self.type and not (self.type is float and kind is int):
            return False
        if self.choices:
            return value in self.choices
        if self.type in (int, float):
            return value in self.words.values() or self.bounds.hold(value)
        return self.type is not str or _is_text(value)

    def _value(self, text: str) -> Any:
        if self.type is bool:
            return _WORDS.get(text.strip().lower())
        if self.type is str:
            return text
        if self.type not in (int, float):
            try:
                return self.type(text)
            except ValueError:
                return None
        number = number_in(text)
        if self.type is float or number is None:
            return number
        plain = text.strip().replace("_", "")
        if plain.lstrip("+-").isdigit():
            return int(plain)  # a double would lose the last digits of a large one
        return int(number) if number.is_integer() else None

    @property
    def expected(self) -> str:
        """Description of the values that are accepted, for a message."""
        if self.choices:
            names: list[Any] = [AUTO] if self.takes_auto else []
            names += [c for c in self.choices if c != AUTO or not self.takes_auto]
            return f"{'some' if self.several else 'one'} of {', '.join(map(str, names))}"
        kinds = {
            bool: "true or false",
            str: "a text (without NUL, in UTF-8, not commas alone)",
            int: f"a whole number {self.bounds}",
            float: f"a number {self.bounds}",
        }
        what = kinds.get(self.type) or self.type.expected  # type: ignore[attr-defined]
        what += ", or several with commas" if self.has_commas else ""
        return " or ".join([what, *self.words, *([AUTO] if self.takes_auto else [])])

    def _hint(self, text: str) -> str:
        return did_you_mean(text, map(str, self.choices or self.words)) if self.choices or self.words else ""


def _is_text(text: str) -> bool:
    """Return whether it can be written; not commas alone, of which a list would silently make none."""
    if "," in text and not text.strip(" \t\n,"):
        return False
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def bounds(least: float | None, above: float | None, most: float | None, below: float | None) -> Bounds:
    """Bounds as an option declares them; the defaults are 0 and `MOST`."""
    low = above if above is not None else 0 if least is None else least
    high = below if below is not None else MOST if most is None else most
    return Bounds(least=low, most=high, above_least=above is not None, below_most=below is not None)


def zone_of(name: str) -> tzinfo:
    """Return the time zone called `name`.

    Raises:
        ValueError: this machine knows no such zone.
    """
    if name == "UTC":  # known to every machine
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"--timezone {name!r}: not a time zone that this machine knows; expected a name such as "
            "Asia/Shanghai (Debian's package tzdata holds them)"
        ) from None
