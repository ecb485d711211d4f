"""Which failures of S3 pass, which do not, and how long we try.

Waits grow exponentially with full jitter (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
2015), so that a thousand ranks do not come back at once. When the time is up, StorageError: exit code 75,
try again later. The time is $YANMO_S3_RETRY_SECONDS, or the whole of --wait-seconds where that is longer: a
request that is tried again keeps all the work that was done before it (common/waiting.py).

Keys and authorities in files are read again for every request or connection. Kubernetes brings a changed
Secret into a pod within about a minute, and a server may refuse the old key or certificate before that: a
process whose key, or certificate, was good tries again, as in any outage (docs/how-to/keep-a-store.md).
"""

from __future__ import annotations

import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from xml.etree.ElementTree import ParseError

from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import HTTPError, NameResolutionError, NewConnectionError
from urllib3.exceptions import SSLError as TransportSSLError

from yanmo.common import waiting
from yanmo.common.authorities import ca_source
from yanmo.common.errors import DataError, EnvironmentFault, StorageError, UsageError
from yanmo.common.waiting import current_cancellation
from yanmo.store.objects import NotSupportedHere, RequestKind, count_failed, count_request
from yanmo.store.s3.credentials import NoKey

if TYPE_CHECKING:
    from yanmo.store.s3.client import Pool

log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 15.0
_FIRST_CONTACT_SECONDS = 20.0
"""How long a server that never answered is tried: a wrong address should not cost five minutes."""
_DOWN_SECONDS = 5.0
_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
_PASSING_CODES = {
    *("RequestTimeout", "RequestTimeTooSkewed", "Throttling", "OperationAborted", "ExpiredToken"),
    *("ConditionalRequestConflict", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"),
    *("InternalError", "SlowDown"),  # in the body of a 200, to the end of an upload
}
"""Of answers with another status, 400 mostly."""
_EXCHANGED = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "UserSuspended"}
"""What servers say of a key that is gone, of halves of two keys, of an old session."""
_CREDENTIAL_CODES = {*_EXCHANGED, "AuthorizationHeaderMalformed"}
_FULL_CODES = {"QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"}


ASKED: dict[str, tuple[RequestKind, str]] = {
    "reading": ("read", "s3:GetObject"),
    **dict.fromkeys(("writing", "completing"), ("write", "s3:PutObject")),
    "aborting": ("write", "s3:AbortMultipartUpload"),
    "looking": ("stat", "s3:GetObject"),
    "listing": ("list", "s3:ListBucket"),
    "copying": ("copy", "s3:PutObject"),
    "deleting": ("delete", "s3:DeleteObject"),
}
"""First word of what is asked -> as what it is counted, and the right that it takes, as policies name it."""


class PreconditionFailed(Exception):
    """The server refused a conditional write: the object is there, or has another version."""


class OutOfRange(Exception):
    """The object ends before the range that was asked for."""


class Truncated(HTTPError):
    """The body ended before its length; as passing as a reset."""


def retry_seconds() -> float:
    """Return the seconds that one request is tried: $YANMO_S3_RETRY_SECONDS, 300 by default."""
    value = os.environ.get("YANMO_S3_RETRY_SECONDS", "300")
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"YANMO_S3_RETRY_SECONDS={value!r}: expected a number of seconds") from None


@dataclass
class RetryBudget:
    """How long the requests of one store are tried; shared by its threads."""

    seconds: float
    pool: Pool
    """What it knows of the server: whether that ever answered, and its clock."""
    longest_wait: float = 0.0
    """How long this process may wait for the store, seconds."""
    keys_may_change: bool = False
    """Whether a new key may arrive while this process runs."""
    accepted: bool = False
    """Whether the server has ever taken the key of this process."""
    down: bool = False
    """A request used up its time, or was given up: the next ones, which clean up after it, get little."""

    @property
    def limit(self) -> float:
        """Seconds that a request may take now."""
        if self.down or waiting.is_ending():
            return min(self.seconds, _DOWN_SECONDS)
        seconds = self.seconds if self.pool.reached else min(self.seconds, _FIRST_CONTACT_SECONDS)
        return max(seconds, self.longest_wait)

    def awaits_another(self, error: Exception) -> bool:
        """Return whether what is refused now was good, and lies in a file, where a new one may come."""
        if _is_of_key(error):
            return self.accepted and self.keys_may_change
        return self.pool.reached and bool(ca_source()) and _is_certificate(error)


class Retry:
    """Repeats one request until it succeeds, fails for good or its time is up.

    `failures` counts the tries that ended without an answer one can trust: after one, a 412 to a
    conditional write may be the echo of our own earlier try.
    """

    def __init__(
        self, what: str, retry_budget: RetryBudget, *, absent_passes: Callable[[], bool] = lambda: False
    ) -> None:
        """Args:
        absent_passes: whether NoSuchKey, which the server has just said, is to be tried again. radosgw 16
            gives it to a PUT that meets the remains of an earlier, cut one of the same object.
        """
        self.what, self._retry_budget, self._absent_passes = what, retry_budget, absent_passes
        self._kind = ASKED[what.partition(" ")[0]][0]
        self._cancellation = current_cancellation()
        self.failures = 0
        self._started = time.monotonic()

    def run(self, request: Callable[[], T]) -> T:
        """Return the request's result.

        Raises:
            FileNotFoundError, PreconditionFailed: the server's answer about the object.
            EnvironmentFault, UsageError: credentials, certificate, bucket.
            StorageError: the server's time is up.
        """
        try:
            with waiting.Wait("store") as wait:
                return self._run(request, wait)
        except (SystemExit, KeyboardInterrupt):
            self._retry_budget.down = True  # whatever cleans up now must not wait; an answer ends that
            raise

    def _run(self, request: Callable[[], T], wait: waiting.Wait) -> T:
        budget = self._retry_budget
        while True:
            offset = budget.pool.clock_offset
            try:
                count_request(self._kind)
                result = request()
                budget.down, budget.accepted = False, True
                return result
            except (MinioException, HTTPError, ParseError, OSError, ValueError, EnvironmentFault) as error:
                final, awaited = _final(error, self.what), budget.awaits_another(error)
                budget.accepted |= isinstance(final, FileNotFoundError | PreconditionFailed)
                if awaited or (_is_forbidden(error) and budget.pool.clock_offset != offset):
                    final = None  # a new one may come; or our clock was off, as its Date tells: sign again
                if final is not None and not (_is_absent(error) and self._absent_passes()):
                    raise final from error
                self.failures += 1
                count_failed(self._kind)
                wait.because(f"{self.what}: {describe(error)}")
                self._wait(error, awaited)

    def _wait(self, error: Exception, awaited: bool) -> None:
        wait = random.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self.failures, 20)))
        spent = time.monotonic() - self._started
        if self._cancellation.is_set():
            raise StorageError(f"{self.what}: cancelled") from error
        self._check_name(error, spent + wait)
        if spent + wait > self._retry_budget.limit:
            self._retry_budget.down = True
            mend = "; put a key or an authority that is good into its file" if awaited else ""
            raise StorageError(
                f"{self.what}: {self.failures} tries in {spent:.0f} s failed, the last with: "
                f"{describe(error)}{mend}. The same command goes on where this one ended, once the server "
                "answers"
            ) from error
        level = logging.WARNING if self.failures in (3, 10, 30) else logging.DEBUG
        log.log(level, "%s: try %d failed (%s); again", self.what, self.failures, describe(error))
        self._cancellation.wait(wait)

    def _check_name(self, error: Exception, spent: float) -> None:
        """Wait no hours for a server that has never answered and has no address: its name is wrong.

        Raises:
            EnvironmentFault: so it is.
        """
        if spent > _FIRST_CONTACT_SECONDS and not self._retry_budget.pool.reached and _has_no_address(error):
            raise EnvironmentFault(
                f"{self.what}: no server has the name in the store's endpoint (docs/explanation/store.md "
                "says where that comes from); correct it"
            ) from error


def _final(error: Exception, what: str) -> Exception | None:
    """Return what to raise for `error`; None where another try may succeed."""
    if isinstance(error, S3Error):
        return _final_answer(error, what)
    if isinstance(error, (ServerError, InvalidResponseError)):
        if _status(error) == 412:
            return PreconditionFailed(what)
        passing = _status(error) in _PASSING_STATUS
        return None if passing else StorageError(f"{what}: {describe(error)}; is this an S3 server?")
    if _is_certificate(error):
        return EnvironmentFault(
            f"{what}: {describe(error)}; give the server's CA in AWS_CA_BUNDLE (a PEM file)"
        )
    if isinstance(error, (HTTPError, ParseError, ConnectionError, TimeoutError)):
        return None
    if isinstance(error, (OSError, UsageError, DataError, EnvironmentFault)):
        return error
    return None  # a ValueError of the client over an answer that it cannot read


def _final_answer(error: S3Error, what: str) -> Exception | None:
    status = error.response.status
    if error.code == "PreconditionFailed" or status == 412:
        return PreconditionFailed(what)
    if error.code in ("NoSuchKey", "NoSuchUpload", "NoSuchVersion"):
        return FileNotFoundError(f"{what}: no such object")
    if error.code == "InvalidRange" or status == 416:
        return OutOfRange(what)
    if error.code == "NoSuchBucket":
        return UsageError(f"{what}: there is no such bucket; create it, or correct --store")
    if error.code == "NotImplemented" or status == 501:
        return NotSupportedHere(f"{what}: {describe(error)}")
    if error.code in _FULL_CODES or status == 507:
        return StorageError(
            f"{what}: the store is full ({describe(error)}); free space and run the command again"
        )
    if error.code in _PASSING_CODES or status in _PASSING_STATUS:
        return None
    if error.code in _CREDENTIAL_CODES or status in (401, 403):
        missing = ASKED[what.partition(" ")[0]][1]
        right = f", which may not grant them {missing}" if error.code == "AccessDenied" else ""
        return EnvironmentFault(
            f"{what}: {describe(error)}; check the credentials and the bucket's policy{right}"
        )
    return StorageError(f"{what}: {describe(error)}")


def _is_absent(error: Exception) -> bool:
    return isinstance(error, S3Error) and error.code == "NoSuchKey"


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, S3Error) and error.response.status == 403


def _is_of_key(error: Exception) -> bool:
    """Return whether the server refuses the key, or its file, which is being exchanged, has none now."""
    return isinstance(error, NoKey) or (isinstance(error, S3Error) and error.code in _EXCHANGED)


def _is_certificate(error: BaseException) -> bool:
    """Return whether `error` says that the server's certificate is not trusted."""
    return any(
        isinstance(one, ssl.SSLCertVerificationError)
        or (isinstance(one, TransportSSLError) and "CERTIFICATE_VERIFY_FAILED" in str(one))
        for one in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and all that led to it."""
    left: list[object] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__, getattr(one, "reason", None)]


def _has_no_address(error: BaseException) -> bool:
    """Return whether a name server has answered that there is no such name; not that it did not answer."""
    return any(
        isinstance(one, socket.gaierror)
        and one.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", 0))
        for one in _causes(error)
    )


def _status(error: MinioException) -> int:
    return int(getattr(error, "_status_code", 0) or getattr(error, "_code", 0))


def describe(error: BaseException) -> str:
    """`error` in a few words, without addresses that might carry a signature."""
    if isinstance(error, S3Error):
        return f"{error.response.status} {error.code}: {error.message or 'no message'}"
    if isinstance(error, (ServerError, InvalidResponseError)):
        return f"HTTP status {_status(error)}"
    if isinstance(error, NameResolutionError):
        return "the server's name cannot be resolved"
    if isinstance(error, NewConnectionError):
        return "connection refused or unreachable"
    text = f"{type(error).__name__}: {str(error)[:200].partition('?')[0]}"
    if isinstance(error, TransportSSLError) and "WRONG_VERSION_NUMBER" in str(error):
        text += "; the server answered without TLS: is its address http://?"
    return text
