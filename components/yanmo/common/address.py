"""An address that somebody gave (`Address`): what it keeps to itself is never printed, stored or passed on.

User, password and query of an address are secrets, whatever characters they have: a password that was not
escaped may hold `/`, `@`, `?`, blanks and quotation marks. No option takes such an address
(options/values.py), so none reaches a record, a child's arguments or a form; one of the environment or of a
mounted Secret is shown as this type shows it. What a library says of one, and the values of variables that
hold secrets, are hidden in prose as well (`redacted`), which all logs, cards and messages pass through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import unquote

HIDDEN = "***"
_SCHEME = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]*[a-z0-9]://", re.IGNORECASE)
_NAMED = re.compile(r"\?[^/=?;,\s]+=")
"""A query of an address whose `?` may be a glob's: s3://bucket/a?X-Amz-Signature=..., but not
s3://bucket/?.txt;genre=shi"""
_WORD = re.compile(r"[^\s'\"]+")
_AFTER = re.compile(r"[).,:;\]]*\Z")
_VARIABLE = re.compile(r"(PASSWORD|SECRET|TOKEN|_KEY)\Z", re.IGNORECASE)
_SHORTEST = 6
"""Characters of a secret that is looked for in prose: shorter ones stand in many words."""


class Address:
    """An address as it was given; as text it has neither user nor password nor query."""

    def __init__(self, given: str, *, bare: bool = False) -> None:
        """Args:
        given: the address alone, or a text with one in it: all from its first secret on is one.
        bare: whether it is an address without `http://` as well: `user:password@host`.
        """
        self.whole = given
        """With its secrets, for who connects."""
        self._shown, self.secrets = _parted(given, bare)

    @property
    def has_secrets(self) -> bool:
        """Return whether its text is not all that was given."""
        return self._shown != self.whole

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return repr(self._shown)


def _parted(given: str, bare: bool) -> tuple[str, tuple[str, ...]]:
    """Return what may be shown, and what not: each address, up to one whose query may have no end."""
    starts = [(found.end(), _is_web(found[0])) for found in _SCHEME.finditer(given)]
    if bare and not starts:
        starts = [(0, True)]
    shown, secrets, past, last_at = "", list[str](), 0, given.rfind("@")
    mark, named = given.find("?"), _NAMED.search(given)
    for (start, is_web), (end, _) in pairwise([*starts, (len(given), False)]):
        if start < past:  # within a password
            continue
        server = re.compile("[^/?#]*").match(given, start)
        has_login = last_at >= start and (is_web or bool(server and {"@", ":"} & {*server[0]}))
        if has_login:
            login = given[start:last_at]
            if "?" in login:  # of a password, or the query begins there
                return shown + given[past:start] + HIDDEN, (*secrets, given[start:])
            secrets += [login, login.partition(":")[2]]
            shown, past = f"{shown}{given[past:start]}{HIDDEN}@", last_at + 1
        if named and named.start() < max(start, past):
            named = _NAMED.search(given, max(start, past))
        if 0 <= mark < max(start, past):
            mark = given.find("?", max(start, past))
        query = mark if is_web else named.start() if named else -1
        if query >= 0 and (is_web or query < max(end, past)) and given[query + 1 :]:
            text = given[query + 1 :]
            secrets += [text, *(pair.partition("=")[2] for pair in text.split("&"))]
            return f"{shown}{given[past:query]}?{HIDDEN}", tuple(filter(None, secrets))
    return shown + given[past:], tuple(filter(None, secrets))


def _is_web(scheme: str) -> bool:
    return scheme.lower().endswith(("http://", "https://"))


def redacted(text: str) -> str:
    """`text` without the secrets of the addresses in it, and of this process's environment.

    It takes time in proportion to the text, whatever that is.
    """
    for secret in _of_environment():
        text = text.replace(secret, HIDDEN)
    return _WORD.sub(_shown_word, text) if "://" in text else text


def _shown_word(word: re.Match[str]) -> str:
    after = _AFTER.search(word[0])
    end = after.start() if after else len(word[0])
    return f"{Address(word[0][:end])}{word[0][end:]}"


def _of_environment() -> Iterator[str]:
    """Yield the secrets that variables hold, in the forms in which messages show them."""
    for name, value in os.environ.items():
        if _VARIABLE.search(name):
            secrets: tuple[str, ...] = (value,)
        elif "://" in value:
            secrets = Address(value).secrets
        else:
            continue
        for secret in secrets:
            if len(secret) >= _SHORTEST and secret.strip("*"):
                forms = (secret, unquote(secret), repr(secret)[1:-1], " ".join(secret.split()))
                yield from dict.fromkeys(form for form in forms if len(form) >= _SHORTEST)
