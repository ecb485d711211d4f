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
from urllib.parse import unquote

HIDDEN = "***"
_SCHEME = re.compile(r"[a-z0-9+.-]*[a-z0-9]://", re.IGNORECASE)
_NAMED = re.compile(r"\?[^/=?]+=")
"""A query of an address whose `?` may be a glob's: s3://bucket/a?X-Amz-Signature=..., but not s3://bucket/?.txt"""
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
        """Whether its text is not all that was given."""
        return self._shown != self.whole

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return repr(self._shown)


def _parted(given: str, bare: bool) -> tuple[str, tuple[str, ...]]:
    """What may be shown, and what not."""
    found = _SCHEME.search(given)
    if not found and not bare:
        return given, ()
    start = found.end() if found else 0
    head, rest = given[:start], given[start:]
    is_web = not found or found[0].lower().endswith(("http://", "https://"))
    server = re.split("[/?#]", rest, maxsplit=1)[0]
    login, at, after = rest.rpartition("@")
    has_login = bool(at) and (is_web or "@" in server or ":" in server)
    if not has_login:
        login, after = "", rest
    elif "?" in login:  # of a password, or the query begins there
        return head + HIDDEN, (rest,)
    secrets = [login, login.partition(":")[2]]
    query = re.search(r"\?", after) if is_web else _NAMED.search(after)
    shown = head + (f"{HIDDEN}@" if has_login else "")
    if query and after[query.start() + 1 :]:
        text = after[query.start() + 1 :]
        secrets += [text, *(pair.partition("=")[2] for pair in text.split("&"))]
        after = f"{after[: query.start()]}?{HIDDEN}"
    return shown + after, tuple(filter(None, secrets))


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
    """The secrets that variables hold, in the forms in which messages show them."""
    for name, value in os.environ.items():
        if _VARIABLE.search(name):
            secrets: tuple[str, ...] = (value,)
        elif "://" in value:
            secrets = Address(value).secrets
        else:
            continue
        for secret in secrets:
            if len(secret) >= _SHORTEST and not secret.startswith("***"):
                forms = (secret, unquote(secret), repr(secret)[1:-1], " ".join(secret.split()))
                yield from dict.fromkeys(form for form in forms if len(form) >= _SHORTEST)
