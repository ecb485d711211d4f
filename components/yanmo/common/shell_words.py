"""A command line that a person may paste into a shell: one line, no secret, nothing that steers a terminal.

`shlex.join` alone keeps line breaks and control characters as they are, and its quotes within a password hide
that from `redacted`, which reads prose and ends an address at a quote or a space. Here each word is known to
be one value.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from yanmo.common.address import Address

BARE = ("--endpoint", "--host", "--pushgateway", "--to-endpoint", "--ui")
"""Options whose value is an address without `http://` as well: those that declare `metavar="URL"`."""


def shell_line(words: Iterable[str]) -> str:
    """Return the words of a command, each quoted where it must be."""
    shown, before = [], ""
    for word in words:
        shown.append(quoted(_without_secrets(word, before)))
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


def _without_secrets(word: str, before: str) -> str:
    """Return the word without what an address in it keeps to itself."""
    name, is_given, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{name}{is_given}{Address(value, bare=(name or before) in BARE)}"
