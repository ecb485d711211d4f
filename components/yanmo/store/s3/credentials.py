"""Where an S3 server is and who we are: the environment, mounted secrets, an AWS file, web identity.

Nothing here is ever an option, so that no credential reaches a manifest, a log or a run form. Sources, the
first that gives both keys wins:

1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), or MINIO_ACCESS_KEY, MINIO_SECRET_KEY;
2. files of a mounted Secret: $YANMO_S3_SECRET_DIR, else the folders where the pipeline mounts `yanmo-store`
   and KFP's `mlpipeline-minio-artifact` (read at every use, so that a rotated Secret is seen);
3. an AWS credentials file: AWS_SHARED_CREDENTIALS_FILE, else ~/.aws/credentials (AWS_PROFILE);
4. web identity (IRSA): AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, then ECS and EC2 roles.
"""

from __future__ import annotations

import configparser
import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from minio.credentials import AWSConfigProvider, Credentials, EnvAWSProvider, EnvMinioProvider
from minio.credentials.providers import IamAwsProvider, Provider
from urllib3 import Retry, Timeout
from urllib3.exceptions import HTTPError

from yanmo.common.authorities import ca_bundle
from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.store.mounted import mounted, secret_folders, value_in
from yanmo.store.s3.strict_http import StrictPool

_ACCESS = ("access_key_id", "accesskey", "AWS_ACCESS_KEY_ID")
_SECRET = ("secret_access_key", "secretkey", "AWS_SECRET_ACCESS_KEY")
_TOKEN = ("session_token", "AWS_SESSION_TOKEN")


class MountedSecret(Provider):  # type: ignore[misc]
    """Both keys from one folder of files, as Kubernetes mounts a Secret."""

    def retrieve(self) -> Credentials:
        """Return the keys as they are now.

        Raises:
            ValueError: no folder has both.
        """
        for folder in secret_folders():
            access, secret, token = _pair(folder)
            if access and secret:
                return Credentials(access, secret, token or None)
        raise ValueError("no mounted secret")


def _pair(folder: Path) -> tuple[str, ...]:
    """Key, secret and token of one folder; read again where they were exchanged meanwhile."""
    found: tuple[str, ...] = ()
    for _ in range(5):
        before, found = found, tuple(value_in(folder, names) for names in (_ACCESS, _SECRET, _TOKEN))
        if found == before:
            break
    return found


class NoKey(EnvironmentFault):
    """Where there was a key there is none now: a Secret that is being exchanged, maybe."""


class Guarded(Provider):  # type: ignore[misc]
    """A provider whose errors say what to do and never what it sent (a web identity token is in its URL)."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def may_change(self) -> bool:
        """Return whether new keys may arrive while this process runs; not in its environment."""
        return not isinstance(self._provider, EnvAWSProvider | EnvMinioProvider)

    def retrieve(self) -> Credentials:
        """Return the credentials.

        Raises:
            ConnectionError: the service that gives them cannot be reached now.
            EnvironmentFault: there are none any more.
        """
        name = type(self._provider).__name__
        try:
            return self._provider.retrieve()
        except HTTPError as error:
            reason = type(error).__name__
            raise ConnectionError(f"{name}: the credentials service cannot be reached ({reason})") from None
        except (ValueError, OSError, configparser.Error) as error:
            status = re.search(r"(?:status code|code) (\d{3})\b", str(error))
        if status and (int(status[1]) == 429 or int(status[1]) >= 500):
            raise ConnectionError(f"{name}: the credentials service answered {status[1]}")
        refused = f": the service answered {status[1]}" if status else ""
        raise NoKey(
            f"no S3 credentials from {name}{refused}; docs/explanation/store.md says where they are sought"
        )


def find_credentials() -> Guarded:
    """Return the provider that has credentials here.

    Raises:
        StorageError: the service that would give them cannot be reached now.
        EnvironmentFault: none has; says where was looked.
    """
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # its warnings and debug lines show whole URLs
    for provider in _providers():
        guarded = Guarded(provider)
        try:
            guarded.retrieve()
        except ConnectionError as error:
            raise StorageError(f"{error}; run the same command again") from None
        except EnvironmentFault:
            if isinstance(provider, IamAwsProvider):
                raise
            continue
        return guarded
    folders = ", ".join(str(folder) for folder in secret_folders())
    raise EnvironmentFault(
        "no S3 credentials: looked for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, "
        f"accesskey and secretkey in {folders}, profile {os.environ.get('AWS_PROFILE', 'default')!r} of an "
        "AWS credentials file, and AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE (docs/explanation/store.md)"
    )


def _providers() -> Iterator[Provider]:
    yield EnvAWSProvider()
    yield EnvMinioProvider()
    yield MountedSecret()
    yield AWSConfigProvider()
    # Only where a pod, task or machine says so: the probe of EC2's address hangs elsewhere.
    if any(
        os.environ.get(name)
        for name in (
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "YANMO_S3_EC2_ROLE",
        )
    ):
        pool = StrictPool(
            timeout=Timeout(connect=5.0, read=15.0),
            retries=Retry(total=3, backoff_factor=0.5, backoff_jitter=0.5),
            ca_certs=ca_bundle(),
        )
        yield IamAwsProvider(custom_endpoint=os.environ.get("AWS_ENDPOINT_URL_STS"), http_client=pool)


def find_endpoint(given: str, scheme: str) -> str:
    """Return the server's URL: the option, environment, mounted secret, KFP's own service, else AWS."""
    value = (
        given
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or mounted("endpoint_url", "AWS_ENDPOINT_URL")
    )
    if value:
        return value
    return _kfp_server() if scheme == "minio" else "https://s3.amazonaws.com"


_KFP_SERVERS = ("seaweedfs", "minio-service")
"""Service of KFP's own S3 server: since 2.15, and before."""
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _kfp_server() -> str:
    """KFP's own server, in this pod's namespace or in the one where KFP is usually installed."""
    own = _NAMESPACE.read_text(encoding="utf-8").strip() if _NAMESPACE.is_file() else ""
    hosts = [
        f"{name}.{space}" for space in dict.fromkeys((own, "kubeflow")) if space for name in _KFP_SERVERS
    ]
    for host in hosts:
        with contextlib.suppress(OSError):
            socket.getaddrinfo(host, 9000)
            return f"http://{host}:9000"
    return f"http://{hosts[0]}:9000"


def find_region() -> str:
    """Return the region, or "" to ask the server."""
    return (
        os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or mounted("region", "AWS_REGION")
    )
