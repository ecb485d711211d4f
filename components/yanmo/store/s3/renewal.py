"""Keys and certificates that are exchanged while a process runs: what is refused now may be good in a minute.

Keys in files (a mounted Secret, an AWS file, web identity) and the authorities in AWS_CA_BUNDLE are read
again for every request or connection. Kubernetes brings a changed Secret into a pod within about a minute
(the kubelet's sync period and its cache), so that between the end of the old key and the arrival of the new
one a pod's requests are refused. They are tried again, as in any outage of the store:

- of a process whose key or certificate the server had accepted: as long as requests are tried at all;
- of one that begins just then: for `_ARRIVAL_SECONDS`, and only where --wait-seconds says that nobody sits
  before the log. A wrong key is told at once to a person who does.

Keys of the environment cannot change in a running process: their refusal ends it, as before.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from minio.error import S3Error
from urllib3.exceptions import SSLError as TransportSSLError

from yanmo.common.errors import EnvironmentFault

_ARRIVAL_SECONDS = 150.0
EXCHANGED = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "UserSuspended"}
"""What servers say of a key that is gone, of halves of two keys, of an old session."""
ADVICE = {
    "key": "the server refuses the key of {where}: put one there that it takes (docs/rotation.md)",
    "certificate": "the server's certificate is not signed by an authority in {where}: add its own there "
    "(docs/rotation.md)",
}


@dataclass
class Renewal:
    """Whether a refusal of one store may pass by itself, and for how long that is believed."""

    key_source: str = ""
    """Where new keys may arrive, in words; empty where none can."""
    unattended: bool = False
    """--wait-seconds is set: nobody waits for an answer."""
    refuses_key: Callable[[], bool] = lambda: False
    """Whether the server, which has just denied access, refuses the key itself."""
    accepted: bool = False
    """Whether the server has ever taken the key of this process."""
    met: bool = False
    """Whether its certificate was ever good: it answered at all."""

    def of(self, error: Exception) -> str:
        """`key` or `certificate` where `error` may be cured by a new one that arrives here; else empty."""
        if self.key_source and self._is_of_key(error):
            return "key"
        return "certificate" if ca_source() and is_certificate(error) else ""

    def seconds(self, what: str, usual: float) -> float:
        """How long to wait for a new one; `usual` is what an outage of the store gets."""
        if self.accepted if what == "key" else self.met:
            return usual
        return min(usual, _ARRIVAL_SECONDS) if self.unattended else 0.0

    def advice(self, what: str) -> str:
        """What to do, where none has come."""
        return ADVICE[what].format(where=self.key_source if what == "key" else ca_source())

    def _is_of_key(self, error: Exception) -> bool:
        if isinstance(error, EnvironmentFault):
            return True  # the file is not there now: it is being exchanged
        if not isinstance(error, S3Error):
            return False
        return error.code in EXCHANGED or (error.code == "AccessDenied" and self.refuses_key())


def ca_source() -> str:
    """The file of authorities that may be renewed here, in words; empty where it is certifi's own."""
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        if os.environ.get(name):
            return f"{name}={os.environ[name]}"
    return ""


def is_certificate(error: BaseException) -> bool:
    """Whether `error` says that the server's certificate is not trusted."""
    return any(
        isinstance(one, ssl.SSLCertVerificationError)
        or (isinstance(one, TransportSSLError) and "CERTIFICATE_VERIFY_FAILED" in str(one))
        for one in causes(error)
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all that led to it."""
    left: list[object] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__, getattr(one, "reason", None)]
