"""Sends a line to a chat, or a document to a program, by a POST to an address that is a secret.

It never fails a night and hardly slows one: three tries within 20 seconds in all, whatever the server does,
then a warning. The warning says what happened and not where: no address, token or signature, and nothing of
an answer that holds them. Redirects are not followed, as the address would be handed to another server.

- slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks; `&`, `<` and `>` are
  escaped, so that no text of a night can call a channel or a person.
- dingtalk: https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages; a robot that is
  signed gets `timestamp` (milliseconds) and `sign`, base64 of HMAC-SHA256 with the secret as key over
  `timestamp\\nsecret`; one with a keyword gets `Yanmo` in each line. It answers 200 also where it refuses.
- json: all of the row, for a program.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote_plus, unquote, urlencode, urlsplit

from yanmo.common.answers import visible
from yanmo.nights.line import night_line
from yanmo.nights.night import Row
from yanmo.nights.settings import Webhook

log = logging.getLogger(__name__)
SCHEMA = "yanmo.night-line/1"
TRIES, ALL_SECONDS, TRY_SECONDS = 3, 20.0, 8.0
_FIRST_WAIT = 1.0
_MOST_OF_AN_ANSWER = 4096
_PASSING = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Sent:
    """How sending ended."""

    is_sent: bool
    why: str = ""
    """Why not, in words that hold nothing secret."""


class _Refused(Exception):
    """The server has answered, and another try would be answered so again."""


class _Failed(Exception):
    """Another try may be answered."""


def send(
    to: Webhook, channel: str, row: Row, link: str, *, seconds: float = ALL_SECONDS, tries: int = TRIES
) -> Sent:
    """Send how a night stands; never raises for what the server does.

    Args:
        link: address of the night's page; "" for none.
        seconds: that all of it may take.
    """
    end = time.monotonic() + seconds
    body = json.dumps(_body(to.shape, channel, row, link), ensure_ascii=False).encode("utf-8", "replace")
    why = "no time was left"
    for number in range(tries):
        left = end - time.monotonic()
        if left <= 0:
            break
        try:
            _within(min(left, TRY_SECONDS), lambda: _post(to, body))
            return Sent(True)
        except _Refused as error:
            return Sent(False, _without_secrets(to, str(error)))
        except _Failed as error:
            why = _without_secrets(to, str(error))
        if number + 1 < tries:
            time.sleep(max(min(_FIRST_WAIT * 2**number, end - time.monotonic()), 0.0))
    return Sent(False, why)


def _within(seconds: float, act: Callable[[], None]) -> None:
    """`act`, for so long at most: a server that sends a byte now and then is left where it is."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True, name="webhook")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise _Failed(f"no answer within {seconds:.0f} s")
    if raised:
        raise raised[0]


def _post(to: Webhook, body: bytes) -> None:
    """One POST; returns where the server took it."""
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "yanmo"}
    try:
        request = Request(_address(to), body, headers, method="POST")
        with build_opener(NoRedirect()).open(request, timeout=TRY_SECONDS) as answer:
            said = answer.read(_MOST_OF_AN_ANSWER)
    except HTTPError as error:
        with error:
            said = error.read(_MOST_OF_AN_ANSWER) if error.fp else b""
        raise _of_status(error.code, said) from None
    except URLError as error:
        raise _of_connection(error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _of_connection(error) from None
    except ValueError:
        raise _Refused("the address cannot be used") from None
    if to.shape == "dingtalk":
        _check_dingtalk(said)


def _of_status(status: int, said: bytes) -> Exception:
    if 300 <= status < 400:
        return _Refused(f"answered {status}, a redirect, which is not followed")
    return (_Failed if status in _PASSING else _Refused)(f"answered {status}{_words(said)}")


def _of_connection(error: object) -> Exception:
    """What failed, without the words of the error, which may hold the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _Refused("its TLS certificate is not trusted; SSL_CERT_FILE names another CA")
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (TimeoutError, "no answer in time"),
        (ConnectionRefusedError, "connection refused"),
        (ConnectionError, "the connection broke"),
        (ssl.SSLError, "no TLS connection"),
    )
    words = (words for kind, words in kinds if isinstance(error, kind))
    return _Failed(next(words, f"no answer ({type(error).__name__})"))


def _check_dingtalk(said: bytes) -> None:
    """Raise where DingTalk's answer, of status 200, is a refusal."""
    try:
        answer = json.loads(said)
        code = answer["errcode"]
    except (ValueError, KeyError, TypeError):
        raise _Failed(f"answered what is no answer of DingTalk's{_words(said)}") from None
    if code == 0:
        return
    hint = " (keyword, signature or address are not as the robot asks)" if code == 310000 else ""
    busy = code in (130101, -1)  # too many messages in a minute; busy
    raise (_Failed if busy else _Refused)(f"refused with errcode {code}{hint}{_words(said)}")


def _words(said: bytes) -> str:
    text = visible(" ".join(said.decode("utf-8", "replace").split()))
    return f": {text[:200]}" if text else ""


def _without_secrets(to: Webhook, text: str) -> str:
    """`text` with `***` for the address, each part of it that may be a token, and the secret."""
    parts = urlsplit(to.url)
    query = [value for _, value in parse_qsl(parts.query, keep_blank_values=True)]
    pieces = {to.url, to.secret, parts.path, parts.query, *query, *parts.path.split("/")}
    pieces |= {unquote(piece) for piece in pieces}
    for piece in sorted((piece for piece in pieces if len(piece) >= 4), key=len, reverse=True):
        text = text.replace(piece, "***")
    return text


def _address(to: Webhook) -> str:
    if to.shape != "dingtalk" or not to.secret:
        return to.url
    signed = signature(to.secret, str(round(time.time() * 1000)))
    return f"{to.url}{'&' if urlsplit(to.url).query else '?'}{signed}"


def signature(secret: str, timestamp: str) -> str:
    """What is added to the address of a DingTalk robot that is signed.

    Args:
        timestamp: milliseconds; the robot takes what is within an hour of its clock.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode(), hashlib.sha256).digest()
    return urlencode({"timestamp": timestamp}) + "&sign=" + quote_plus(base64.b64encode(digest))


def _body(shape: str, channel: str, row: Row, link: str) -> dict[str, Any]:
    if shape == "slack":
        return {"text": _for_slack(night_line(channel, row, "en", link))}
    if shape == "dingtalk":
        return {"msgtype": "text", "text": {"content": night_line(channel, row, "zh", link)}}
    lines = {"line": night_line(channel, row, "en", ""), "line_zh": night_line(channel, row, "zh", "")}
    return {"schema": SCHEMA, "channel": channel, "page": link, **lines, "night": row.to_dict()}


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
