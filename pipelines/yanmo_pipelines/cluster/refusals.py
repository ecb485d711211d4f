"""What a server of the cluster answered in the place of what was asked for, in a sentence with what to do.

KFP's and Kubernetes' servers, and the proxies before them, say no in many ways: JSON of gRPC, JSON of the
upload server with a stack trace in it, plain text, a login page. Each ends a command with a documented code:
64 what was asked cannot be, 75 try again, 78 this cluster, its address or our rights.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from yanmo.common.errors import EnvironmentFault, UsageError, in_words

log = logging.getLogger(__name__)
T = TypeVar("T")
_AWAY_SECONDS = 900.0
"""How long a server may be away while something is followed: its restart is no reason to leave."""

KFP, KUBERNETES = "KFP's API", "Kubernetes' API"


class NoAnswer(ConnectionError):
    """Nobody answered, or somebody who cannot now: the same command may succeed later."""


class NotFound(UsageError):
    """There is no such thing."""


class Exists(UsageError):
    """It is there already."""


class Forbidden(EnvironmentFault):
    """We are not known there, or have no right to it."""


class NotThatServer(EnvironmentFault):
    """Somebody answered who is not the server that was meant."""


_NO_ROUTE = {"Not Found", "404 page not found", "Method Not Allowed", ""}
"""What servers say of a path that they do not serve, in the place of a thing that they do not have."""
_QUOTA = "wait until others end, delete what is not needed, or ask for a larger quota"


def refusal(server: str, asked: str, where: str, status: int, body: bytes, kind: str) -> Exception:
    """The error for an answer other than 200.

    Args:
        server: KFP or KUBERNETES.
        asked: what was asked for, as it follows "could not": "create the run".
        where: the server's address.
        status: HTTP's.
        kind: Content-Type.
    """
    said = said_in(body, kind)
    begin = f"{where}: could not {asked}: {server} answered {status}"
    found = f"{begin} ({said})" if said else begin
    if "html" in kind or (300 <= status < 400):
        return NotThatServer(
            f"{found}: a page, as of a login or another server; expected {server}: give its own address, or "
            f"a token ({_token_advice(server)})"
        )
    if status == 401:
        return Forbidden(f"{found}: it does not know who asks; give a token ({_token_advice(server)})")
    if status == 403 and "exceeded quota" in said:
        return EnvironmentFault(f"{found}; {_QUOTA}")
    if status == 403:
        return Forbidden(f"{found}: no right to that; {_right_advice(server)}")
    if status == 404 and server == KFP and said in _NO_ROUTE:
        return NotThatServer(
            f"{found}: it has no such path; expected {server}: look at the address, and whether it is older "
            "than KFP 2.0"
        )
    if status == 404:
        return NotFound(f"{found}; look at the name or the id")
    if status == 409:
        return Exists(f"{found}; it is there already, choose another name or delete that one")
    if status in (408, 425, 429, 502, 503, 504):
        return NoAnswer(f"{found}; run the same command again")
    if status >= 500:
        return _of_a_broken_server(found, said)
    return UsageError(f"{found}; change what it names")


def _of_a_broken_server(found: str, said: str) -> Exception:
    if re.search(r"length cannot exceed|Invalid input error|too long", said):
        return UsageError(f"{found}; change what it names")
    if "exceeded quota" in said:
        return EnvironmentFault(f"{found}; {_QUOTA}")
    return NoAnswer(f"{found}; run the same command again; where it stays, read that server's log")


def as_object(server: str, asked: str, where: str, data: bytes) -> dict[str, Any]:
    """An answer of 200 as JSON.

    Raises:
        NotThatServer: it is none.
    """
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise refusal(server, asked, where, 200, data, "html")
    return found


def unreachable(server: str, asked: str, where: str, error: Exception) -> Exception:
    """The error where nobody answered; one of TLS stays, however often one asks.

    Args:
        error: urllib3's, or that of Kubernetes' client.
    """
    from urllib3.exceptions import SSLError

    inner = getattr(error, "reason", None)
    words = in_words(inner if isinstance(inner, Exception) else error).rpartition(": ")[2]
    why = re.sub(r"\[(Errno -?\d+|SSL[^]]*)\] | \(_ssl\.c:\d+\)", "", words)
    if isinstance(inner, SSLError):
        return NotThatServer(
            f"{where}: could not {asked}: no secure connection ({why}); look whether it is http:// or "
            "https://, and give the file of its authority as SSL_CERT_FILE"
        )
    return NoAnswer(
        f"{where}: could not {asked}: no answer from {server} ({why}); look at the address, and whether a "
        "port-forward still runs, then run the same command again"
    )


def patiently(look: Callable[[], T], what: str, look_seconds: float) -> T:
    """Return what `look` gives; a server that is away is waited for.

    Raises:
        NoAnswer: it was away for too long.
    """
    since = 0.0
    while True:
        try:
            return look()
        except NoAnswer as error:
            if not since:
                since = time.monotonic()
                log.warning("%s; %s goes on without us, waiting for it", error, what)
            if time.monotonic() - since > _AWAY_SECONDS:
                raise
            time.sleep(look_seconds)


def _token_advice(server: str) -> str:
    return "--token-file, or KF_PIPELINES_SA_TOKEN_PATH" if server == KFP else "by kubeconfig"


def _right_advice(server: str) -> str:
    if server == KFP:
        return "look at --namespace, or ask its owner to add this user or service account"
    return "ask for the role of yanmo-operator in this namespace"


def said_in(body: bytes, kind: str) -> str:
    """Return what an answer says, in one line of at most 300 characters."""
    text = body[:65536].decode("utf-8", "replace").strip()
    if "html" in kind:
        title = re.search(r"<title[^>]*>([^<]*)", text, re.IGNORECASE)
        return _short(title[1]) if title else ""
    try:
        found = json.loads(text)
    except ValueError:
        return _short(text)
    return _short(_message(found)) if isinstance(found, dict) else _short(text)


def _message(found: dict[str, Any]) -> str:
    """The innermost message of gRPC's, of the upload server's (its details are a stack trace), a Status's."""
    details = found.get("details")
    inner = [d.get("message") for d in details if isinstance(d, dict)] if isinstance(details, list) else []
    inner = [text for text in inner if text and text != "Internal Server Error"]
    trace = [line for line in str(found.get("error_details", "")).splitlines() if _is_said(line)]
    last = [trace[-1]] if trace else []
    return str(next(iter([*inner, *last, found.get("message") or found.get("error_message") or ""])))


def _is_said(line: str) -> bool:
    """Return whether a line of a stack trace is no place in Go's sources."""
    return bool(line.strip()) and not line.startswith("\t") and not re.match(r"[\w./()*-]+\.\S+$", line)


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= 300 else f"{line[:297]}..."
