"""A connection to a Ray cluster that asks for its token, or an error that says why there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yanmo.common.errors import EnvironmentFault, StorageError, UsageError, in_words
from yanmo.engine.ray_worker import GUIDE

log = logging.getLogger(__name__)
_CONNECTIONS = 3
_PASSING = ("Initialization failure from server", "a session that has already been cleaned up")
"""What a head says where the process hangs that it forks for each client, or begins too late: now and then on
a busy machine."""


def connected(address: str) -> Any:
    """Return the module `ray`, connected to the cluster at `address`."""
    if not address:
        raise UsageError(
            "--engine ray: expected --ray-address ray://HOST:10001, or auto inside of a Ray Job; there is "
            "neither that nor $RAY_ADDRESS"
        )
    if os.environ.get("RAY_AUTH_MODE") != "token":
        raise EnvironmentFault(
            "--engine ray: expected $RAY_AUTH_MODE=token, and the cluster's token in $RAY_AUTH_TOKEN or in "
            "the file that $RAY_AUTH_TOKEN_PATH names: without it whoever reaches a cluster runs programs on "
            f"it ({GUIDE})"
        )
    if not _has_token():
        raise EnvironmentFault(
            "--engine ray: no token in $RAY_AUTH_TOKEN, nor in the file that $RAY_AUTH_TOKEN_PATH names. In "
            f"Kubernetes it comes from the Secret yanmo-ray ({GUIDE})"
        )
    # Else a request after the end of a connection makes a new one, whose cluster knows no task of ours.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    try:
        import ray
    except ImportError as error:
        raise EnvironmentFault(
            "--engine ray: the package ray is not installed: `make ray-tools` in a checkout, or the image "
            "yanmo-data-ray"
        ) from error
    if ray.is_initialized():  # of a try that ended
        ray.shutdown()
    with _signals_as_before():
        for left in reversed(range(_CONNECTIONS)):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                break
            except Exception as error:
                if not left or not any(words in str(error) for words in _PASSING):
                    raise _no_connection(address, error) from error
                log.warning("the Ray cluster could not start a process for this client; asking again")
    return ray


def _has_token() -> bool:
    """Return whether there is a token where Ray looks for one."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or (path.is_file() and path.stat().st_size > 0)


def _no_connection(address: str, error: Exception) -> Exception:
    """Return the error for what kept us from connecting."""
    words = in_words(error)[:400]
    if isinstance(error, ImportError):
        return EnvironmentFault(
            f"--engine ray: a part of the package is missing ({words}): ray[client] has it"
        )
    if "version" in words.lower():
        return EnvironmentFault(f"--ray-address {address}: the cluster has other versions: {words}")
    return StorageError(
        f"--ray-address {address}: no Ray cluster answers ({words}). Is it up, and does it have the token of "
        "$RAY_AUTH_TOKEN?"
    )


@contextlib.contextmanager
def _signals_as_before() -> Iterator[None]:
    """Ray takes SIGTERM for itself, which a stage has for its own end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
