"""The final figures of a stage at a Prometheus Pushgateway, for stages that end before a scrape sees them.

Only facts of a run that has ended are pushed (`Metric.final`), under job, stage and channel: the next run of
the stage replaces them, so there are never more of them than stages and channels. What is live (rates, ages,
what a pod does now) stays with /metrics: a Pushgateway repeats the last value for ever, and knows no pod.

    ended well, its output handed over   PUT: these figures, and none of an earlier run
    paused, failed, nothing to do        POST: exit code and time of the end; the last success stays readable

A Pushgateway that is away, refuses or hangs costs a warning and a few seconds, never the stage: the request
is made in a thread that nobody waits for any longer.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import push_to_gateway, pushadd_to_gateway
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from yanmo.common import waiting
from yanmo.common.errors import in_words
from yanmo.options.shared import StageOptions, address_problems
from yanmo.stage.exporter import Telemetry
from yanmo.store.mounted import mounted

log = logging.getLogger(__name__)
JOB = "yanmo"
_USER, _PASSWORD = "YANMO_PUSHGATEWAY_USERNAME", "YANMO_PUSHGATEWAY_PASSWORD"
_SECONDS, _ENDING_SECONDS = 5.0, 2.0
"""Longest wait for it at the end of a stage, and of one that was told to end."""
_MOST_OF_ANSWER = 300
"""Bytes of a refusal that are said."""


@contextlib.contextmanager
def pushed(telemetry: Telemetry, options: StageOptions) -> Iterator[None]:
    """A context after which the stage's figures are at the Pushgateway, where there is one."""
    gateway = _gateway_of(telemetry.stage, options)
    if gateway is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        telemetry.ended_by(error)
        raise
    finally:
        problems = ["no answer in time"]
        push = threading.Thread(
            target=lambda: problems.append(_problem(telemetry, gateway)), daemon=True, name="pushgateway"
        )
        push.start()
        push.join(_ENDING_SECONDS if waiting.is_ending() else _SECONDS)
        if problem := problems[-1]:
            log.warning("Pushgateway: the final figures of this run are not there: %s", problem)


def _gateway_of(stage: str, options: StageOptions) -> dict[str, Any] | None:
    """Return how prometheus_client is called, as the options say.

    None for no Pushgateway, and for all ranks and nodes but the first.
    """
    by_rank = any(os.environ.get(name, "0") not in ("", "0") for name in ("RANK", "LOCAL_RANK"))
    if by_rank or options.is_helper():
        return None
    try:
        address = options.pushgateway or mounted("pushgateway_url")
        user = os.environ.get(_USER) or mounted("pushgateway_username")
        password = os.environ.get(_PASSWORD) or mounted("pushgateway_password")
        problem = next(address_problems("pushgateway_url of the mounted secret", address), "")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the mounted secret cannot be read: {in_words(error)}"
    if problem:
        log.warning("Pushgateway: %s", problem)
    if problem or not address:
        return None
    return {
        "gateway": address,
        "job": JOB,
        "grouping_key": {"stage": stage, "channel": options.channel},
        "timeout": _SECONDS,
        "handler": functools.partial(_asked, user=user, password=password),
    }


def _problem(telemetry: Telemetry, gateway: dict[str, Any]) -> str:
    """Hand the figures over; why that failed, "" where it did not."""
    is_good = telemetry.value("last_success_timestamp_seconds", room="stage") is not None
    push = push_to_gateway if is_good else pushadd_to_gateway
    try:
        push(registry=_Figures(final_figures(telemetry) if is_good else ending_of(telemetry)), **gateway)
    except HTTPError as error:
        with contextlib.suppress(OSError, HTTPException):
            said = error.read(_MOST_OF_ANSWER).decode("utf-8", "replace")
            said = "".join(c for c in said if c.isprintable() or c.isspace())
            return f"it answered {error.code} {' '.join(said.split())}".rstrip()
        return f"it answered {error.code}"
    except URLError as error:
        return in_words(error.reason) if isinstance(error.reason, Exception) else str(error.reason)
    except Exception as error:  # no figure is worth a stage; it may answer anything
        return in_words(error)
    return ""


def ending_of(telemetry: Telemetry) -> list[Family]:
    """Exit code and time of the end: all that is pushed of a run that handed nothing over."""
    ending = {"yanmo_stage_exit_code", "yanmo_stage_end_timestamp_seconds"}
    return [family for family in telemetry.families() if family.name in ending]


def final_figures(telemetry: Telemetry) -> list[Family]:
    """Return what is true of the run now that it has ended.

    What an output says of itself (documents, bits) comes from its record where this run found it.
    """
    found = {family.name: family for family in telemetry.families(lambda metric: metric.final)}
    if telemetry.recorded:
        own = (metric for metric in telemetry.own_metrics if metric.final)
        of_output = {metric.family(telemetry.stage).removesuffix("_total") for metric in own}
        recorded = text_string_to_metric_families(telemetry.recorded())
        found |= {family.name: family for family in recorded if family.name in of_output}
    return list(found.values())


class _NoRedirect(HTTPRedirectHandler):
    """Another place that it names gets neither the figures nor the password."""

    def redirect_request(self, *asked: Any) -> None:
        """None: the answer is the redirect itself, an error."""


def _asked(
    url: str,
    method: str,
    timeout: float | None,
    headers: list[tuple[str, str]],
    data: bytes,
    *,
    user: str,
    password: str,
) -> Callable[[], None]:
    """A request as prometheus_client wants it; its own handlers take the password where a redirect leads."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    with_login = {"Authorization": f"Basic {login}"} if user else {}
    request = Request(url, data=data, headers={**dict(headers), **with_login}, method=method)

    def ask() -> None:
        with build_opener(_NoRedirect()).open(request, timeout=timeout):
            pass

    return ask


class _Figures(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families
