"""A real Prometheus and a real Alertmanager, on free ports of the loopback, with rules of ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

import yaml
from servers.prometheus import free_port

ALERTMANAGERS = ("prometheus-alertmanager", "alertmanager")
"""Debian's name, and its own."""
_READY_SECONDS = 60.0


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
    with build_opener(ProxyHandler({})).open(url, timeout=10) as answer:
        return str(answer.read().decode())


class Watchers:
    """Both, from `with` to its end."""

    def __init__(self, folder: Path, rules: Mapping[str, Any], targets: Sequence[str]) -> None:
        """
        Args:
            targets: host:port of what is scraped, every second.
        """
        self._folder, self._processes = folder, list[subprocess.Popen[bytes]]()
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
        try:
            self._start(
                *(alertmanager, "--config.file=alertmanager.yml", "--storage.path=alerts"),
                *(f"--web.listen-address=127.0.0.1:{self._alertmanager}", "--cluster.listen-address="),
            )
            self._start(
                *("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
                f"--web.listen-address=127.0.0.1:{self._prometheus}",
            )
            for port in (self._alertmanager, self._prometheus):
                self._wait_for(f"http://127.0.0.1:{port}/-/ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, *command: str) -> None:
        with (self._folder / f"{command[0]}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True)
            )

    def _wait_for(self, url: str) -> None:
        end = time.monotonic() + _READY_SECONDS
        while True:
            try:
                get(url)
                return
            except (OSError, URLError):
                if time.monotonic() > end:
                    raise RuntimeError(f"{url} does not answer; look at {self._folder}/*.log") from None
                time.sleep(0.1)

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

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
