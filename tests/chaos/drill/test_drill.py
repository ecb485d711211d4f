"""The drill's own parts: its rules, and what it says where it cannot be held."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from chaos.drill.faults import FAULTS, RULES, cases
from chaos.drill.scaled import scaled, scaled_expression
from chaos.ground import open_ground
from chaos.plan import tried

OURS = yaml.safe_load(RULES.read_text(encoding="utf-8"))
NO_TIMES = {"85", "20", "10", "14", "26"}
"""Numbers above 9 in the rules that are no times: degrees, samples, retries; days, hours (each is scaled)."""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("rate(a_total[5m]) > 0.05", "rate(a_total[30000ms]) > 0.05"),
        ("quantile_over_time(0.5, (m > 0)[6h:1m])", "quantile_over_time(0.5, (m > 0)[2160000ms:6000ms])"),
        ("a_age_seconds > 600", "a_age_seconds > 60"),
        ("max without (rank) (b_age_seconds) > 120", "max without (rank) (b_age_seconds) > 12"),
        ("yanmo:stage_waiting_seconds:max > 900", "yanmo:stage_waiting_seconds:max > 90"),
        ("time() - max_over_time(t[2d]) > 14 * 86400", "time() - max_over_time(t[17280000ms]) > 14 * 8640"),
        ('time() - ended{a="b"} > 26 * 3600', 'time() - ended{a="b"} > 26 * 360'),
        ("gpu_temperature_celsius > 85", "gpu_temperature_celsius > 85"),
    ],
)
def test_times_are_scaled_and_nothing_else(expression: str, expected: str) -> None:
    assert scaled_expression(expression, 10) == expected


def test_every_time_in_the_rules_is_scaled() -> None:
    """A number that stays as it was must be known to be no time."""
    plain = re.compile(r"(?<![\w.:])\d+(?:ms)?(?![\w.])")
    for fast, slow in zip(scaled(OURS, 10)["groups"], scaled(OURS, 1)["groups"], strict=True):
        for one, other in zip(fast["rules"], slow["rules"], strict=True):
            pairs = zip(plain.findall(one["expr"]), plain.findall(other["expr"]), strict=True)
            kept = {now for now, before in pairs if now == before and len(now) > 1}
            assert kept <= NO_TIMES, one
            assert ("for" in one) == ("for" in other)
            if "for" in one:
                assert one["for"].endswith("ms")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_takes_the_scaled_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(scaled(OURS, 10)), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_fault_waits_for_an_alert_of_the_rules() -> None:
    alerts = {rule.get("alert") for group in OURS["groups"] for rule in group["rules"]}
    assert {fault.alert for fault in FAULTS} <= alerts


def test_where_a_program_is_missing_it_says_which_and_how_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_ground("file", tmp_path, 1, count=1) as ground:
        (one,) = map(tried, cases(ground))
    assert one.skipped and "not on this machine: prometheus, prometheus-alertmanager" in one.outcome
    assert "apt-get install" in one.outcome
