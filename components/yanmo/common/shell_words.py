"""A command line that a person may paste into a shell: one line, no password, nothing that steers a terminal.

`shlex.join` alone keeps line breaks and control characters as they are, and its quotes within a password hide
that from `redacted`, which reads prose and ends an address at a quote or a space. Here each word is known to
be one value, so whatever stands before its last `@` is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_LOGIN = re.compile(r"(?i)(https?://).*@|([a-z][a-z0-9+.-]*://)(?:[^/?#]*:.*|[^/?#]*)@", re.DOTALL)
"""As in `errors.redacted`, with any character."""
_ENDPOINT = "--endpoint"


def shell_line(words: Iterable[str]) -> str:
    """The words of a command, each quoted where it must be."""
    shown, before = [], ""
    for word in words:
        shown.append(quoted(_without_login(word, before)))
        before = word
    return " ".join(shown)


def quoted(word: str) -> str:
    """One word for a shell; what cannot be printed as bash writes it (`$'a\\x1b'`)."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    # PEP 383: a byte of a command line that is no UTF-8; other surrogates come from JSON alone
    from_bytes = "\udc80" <= character <= "\udcff"
    data = character.encode("utf-8", "surrogateescape" if from_bytes else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def _without_login(word: str, before: str) -> str:
    """The word without the user and password of an address in it."""
    name, is_given, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if (name or before) == _ENDPOINT and "://" not in value and "@" in value:
        value = f"***@{value.rpartition('@')[2]}"
    value = _LOGIN.sub(lambda found: f"{found[1] or found[2]}***@", value)
    return f"{name}{is_given}{value}"
