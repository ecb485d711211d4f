"""The example of Alertmanager's configuration, by amtool: each alert goes to somebody."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "manifests/components/prometheus"
CONFIG = FOLDER / "alertmanager.yaml"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
RECEIVERS = {"critical": "chat-and-mail", "warning": "chat", "info": "chat"}
pytestmark = pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")


def amtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["amtool", *words], capture_output=True, text=True)


def test_the_example_is_a_configuration() -> None:
    done = amtool("check-config", str(CONFIG))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_each_alert_goes_to_somebody(rule: dict[str, object]) -> None:
    severity = rule["labels"]["severity"]  # type: ignore[index]
    labels = (f"alertname={rule['alert']}", f"severity={severity}")
    done = amtool("config", "routes", "test", f"--config.file={CONFIG}", *labels)
    assert done.stdout.split() == [RECEIVERS[str(severity)]], done.stderr


def test_alerts_of_others_are_left_to_others() -> None:
    done = amtool("config", "routes", "test", f"--config.file={CONFIG}", "alertname=Watchdog")
    assert done.stdout.split() == ["nobody"]
