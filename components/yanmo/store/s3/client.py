"""minio's client as Yanmo needs it: one place for TLS, conditional headers, checksums, clock and errors.

minio 7.2.20 is pinned, because two of its private names are used: `_put_object(headers=)`, for want of a
public conditional PUT (a header put into `metadata` would go out as X-Amz-Meta-*, an unconditional
overwrite), and `_build_headers`, for the checksum of a body. tests/components/store/s3/test_wire.py looks at
what is sent and at what is believed.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import os
import re
import time
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit

import urllib3
from minio import Minio
from minio.time import to_amz_date, utcnow

from yanmo.common.address import Address
from yanmo.common.authorities import ca_bundle
from yanmo.common.errors import UsageError
from yanmo.store.s3.credentials import Guarded, find_credentials, find_endpoint, find_region
from yanmo.store.s3.strict_http import StrictPool

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
_SIGNED_BYTES = 65536
"""Bodies up to here are signed with their sha256. Larger ones (data, whose sha256 stands in a signed
manifest) carry Content-MD5, which the server checks too, at a third of the time on each side."""


class Pool(StrictPool):
    """Connections to the server, and what its Date header says about this machine's clock."""

    clock_offset = 0.0
    """The server's clock minus ours, seconds; 0 while they agree within a minute."""
    reached = False
    """Whether the server ever answered."""

    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> Any:  # type: ignore[override]
        """As in urllib3."""
        response = super().urlopen(method, url, redirect, **kw)
        self.reached = True
        date = email.utils.parsedate_tz(response.headers.get("Date", ""))
        if date is not None:
            offset = email.utils.mktime_tz(date) - time.time()
            self.clock_offset = offset if abs(offset) > 60 else 0.0
        return response


class Client(Minio):  # type: ignore[misc]
    """minio's client with bodies checked by the server and requests dated by the server's clock."""

    def __init__(self, endpoint: str, pool: Pool, credentials: Guarded, **kw: Any) -> None:
        super().__init__(endpoint, http_client=pool, credentials=credentials, **kw)
        self.pool = pool
        self.keys_may_change = credentials.may_change

    def _build_headers(self, host: str, headers: Any, body: bytes | None, creds: Any) -> Any:
        result = {**(headers or {}), "Host": host, "User-Agent": self._user_agent}
        if body is not None:
            result["Content-Length"] = str(len(body))
        if (
            body is not None
            and "Content-MD5" not in result
            and (len(body) > _SIGNED_BYTES or self._base_url.is_https)
        ):
            result["Content-MD5"] = base64.b64encode(
                hashlib.md5(body, usedforsecurity=False).digest()
            ).decode()
        unsigned = self._base_url.is_https or (body is not None and len(body) > _SIGNED_BYTES)
        result["x-amz-content-sha256"] = (
            "UNSIGNED-PAYLOAD" if unsigned else hashlib.sha256(body or b"").hexdigest()
        )
        if creds.session_token:
            result["X-Amz-Security-Token"] = creds.session_token
        date = utcnow() + timedelta(seconds=self.pool.clock_offset)
        result["x-amz-date"] = to_amz_date(date)
        return result, date


_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")


def bucket_problem(name: str) -> str:
    """Return why S3 does not allow a name for a bucket; "" where it does."""
    if _BUCKET.match(name):
        return ""
    if not name:
        return "it names no bucket"
    return (
        f"a bucket's name has 3 to 63 of a-z, 0-9, '.' and '-', at both ends a letter or digit: {name[:80]!r}"
    )


def connect(scheme: str, endpoint: str, connections: int) -> Client:
    """Return a client for the server that option, environment or secret name.

    Args:
        scheme: `s3`, or `minio` for KFP's own server.
        endpoint: the option; "" to look elsewhere.
        connections: how many are kept open at most.

    Raises:
        UsageError: a malformed endpoint or region.
        EnvironmentFault: no credentials.
    """
    url = find_endpoint(endpoint, scheme)
    parts = _parts(url)
    pool = Pool(
        maxsize=connections,
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        retries=False,  # ours know which requests may be repeated, and how (retry.py)
        cert_reqs="CERT_REQUIRED",
        ca_certs=ca_bundle() if parts.scheme == "https" else None,
    )
    try:
        client = Client(
            parts.netloc,
            pool,
            secure=parts.scheme == "https",
            region=find_region() or None,
            credentials=find_credentials(),
        )
    except ValueError as error:
        raise UsageError(f"S3 endpoint {url!r}: {error}") from error
    _set_addressing(client)
    return client


_LABEL = r"[A-Za-z0-9_](?:[\w-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL}){{0,50}}\.?|\[[0-9a-fA-F:.]+\])(?::[0-9]{{1,5}})?", re.ASCII)
"""A name, an IPv4 or IPv6 address, and maybe a port: all else would be looked for again and again."""


def _parts(url: str) -> SplitResult:
    """Return the parts of an endpoint; no error shows a password in it, whatever characters that has."""
    shown = Address(url, bare=True)
    if shown.has_secrets:
        raise UsageError(
            f"S3 endpoint {shown!r}: expected http(s)://host[:port] without user, password and query; "
            "keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (docs/explanation/store.md)"
        )
    wanted = "expected http(s)://host[:port] (--endpoint or AWS_ENDPOINT_URL)"
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
    except ValueError as error:  # half an IPv6 address
        raise UsageError(f"S3 endpoint {url!r}: {wanted}: {error}") from error
    is_server = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.netloc)
    is_url = url.isprintable()  # urlsplit leaves line breaks out
    if not is_server or not is_url or parts.path.strip("/") or parts.fragment:
        raise UsageError(f"S3 endpoint {url!r}: {wanted}")
    return parts


def _set_addressing(client: Client) -> None:
    style = os.environ.get("YANMO_S3_ADDRESSING", "auto")
    if style not in ("auto", "path", "virtual"):
        raise UsageError(f"YANMO_S3_ADDRESSING={style!r}: expected auto, path or virtual")
    if style == "virtual":
        client.enable_virtual_style_endpoint()
    elif style == "path":
        client.disable_virtual_style_endpoint()
