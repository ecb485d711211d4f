"""A real Prometheus and a real Alertmanager, on free ports of the loopback, with rules of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import yaml
from servers.program import OPEN, started
from servers.prometheus import command as prometheus
from servers.prometheus import free_port

ALERTMANAGERS = ("prometheus-alertmanager", "alertmanager")
"""Debian's name, and its own."""


def missing() -> str:
    """What is not on this machine, and how it gets there; "" where all is."""
    lacks = [] if shutil.which("prometheus") else ["prometheus"]
    lacks += [] if any(map(shutil.which, ALERTMANAGERS)) else [ALERTMANAGERS[0]]
    if not lacks:
        return ""
    return (
        f"not on this machine: {', '.join(lacks)}; Debian and Ubuntu: apt-get install "
        "--no-install-recommends prometheus prometheus-alertmanager; others: the programs prometheus and "
        "alertmanager on the PATH"
    )


def get(url: str) -> str:
    """What a local server answers.

    Raises:
        OSError: nothing.
    """
    with OPEN(url, timeout=10) as answer:
        return str(answer.read().decode())


class Watchers:
    """Both, from `with` to its end."""

    def __init__(self, folder: Path, rules: Mapping[str, Any], targets: Sequence[str]) -> None:
        """
        Args:
            targets: host:port of what is scraped, every second.
        """
        self._folder = folder
        self._prometheus, self._alertmanager = free_port(), free_port()
        folder.mkdir(parents=True)
        (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)), encoding="utf-8")
        alertmanager = {"static_configs": [{"targets": [f"127.0.0.1:{self._alertmanager}"]}]}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "alerting": {"alertmanagers": [alertmanager]},
            "scrape_configs": [{"job_name": "drill", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        route = {"receiver": "nobody", "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
        known = {"route": route, "receivers": [{"name": "nobody"}]}
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(known), encoding="utf-8")

    def __enter__(self) -> Watchers:
        alertmanager = next(name for name in ALERTMANAGERS if shutil.which(name))
        flags = ("--config.file=alertmanager.yml", "--storage.path=alerts", "--cluster.listen-address=")
        address = f"--web.listen-address=127.0.0.1:{self._alertmanager}"
        with ExitStack() as running:
            for command, port in (
                ([alertmanager, *flags, address], self._alertmanager),
                (prometheus(self._prometheus), self._prometheus),
            ):
                running.enter_context(started(command, self._folder, f"http://127.0.0.1:{port}/-/ready"))
            self._running = running.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def ask(self, query: str) -> list[dict[str, Any]]:
        """What Prometheus says."""
        answer = get(f"http://127.0.0.1:{self._prometheus}/api/v1/query?query={quote(query)}")
        found: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return found

    def arrived(self) -> dict[str, dict[str, Any]]:
        """Name of an alert -> what Alertmanager has of it."""
        answer = json.loads(get(f"http://127.0.0.1:{self._alertmanager}/api/v2/alerts"))
        return {alert["labels"]["alertname"]: alert for alert in answer}

    def fired(self) -> set[str]:
        """The alerts that fired at any time so far."""
        found = self.ask('count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))')
        return {each["metric"]["alertname"] for each in found}
