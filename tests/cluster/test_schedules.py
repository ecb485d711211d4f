"""`yanmo schedule` against a real KFP: made once, changed without two, deleted without its runs."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from real_cluster import RealCluster

NAME = "yanmo-test-schedule"
FILE = """\
schedules:
  {name}:
    cron: "{cron}"
    channel: schedule-test
    set: {{train_steps: 20}}
"""


def schedule(what: str, path: Path, cron: str = "0 3 1 1 *") -> tuple[int, str]:
    """Exit code and answer of a subcommand; the environment names the cluster."""
    path.write_text(FILE.format(name=NAME, cron=cron), encoding="utf-8")
    command = [sys.executable, "-m", "yanmo_pipelines.cluster.schedules.command", what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def held(cluster: RealCluster) -> list[dict[str, Any]]:
    """The recurring runs of the schedule, as KFP has them."""
    one = {"operation": "EQUALS", "key": "display_name", "string_value": NAME}
    query = urllib.parse.urlencode({"filter": json.dumps({"predicates": [one]})})
    return list(cluster.api(f"recurringruns?{query}").get("recurringRuns") or [])


def test_a_schedule_is_made_once_changed_and_deleted(cluster: RealCluster, tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    try:
        assert schedule("diff", path)[0] == 1 and not held(cluster)
        assert schedule("apply", path)[0] == 0
        (made,) = held(cluster)
        assert made["status"] == "ENABLED" and made["no_catchup"] is True
        assert schedule("diff", path) == (0, "")
        assert "unchanged" in schedule("apply", path)[1]
        assert [run["recurring_run_id"] for run in held(cluster)] == [made["recurring_run_id"]]
        assert schedule("diff", path, "0 4 1 1 *")[0] == 1
        assert schedule("apply", path, "0 4 1 1 *")[0] == 0
        (changed,) = held(cluster)
        assert changed["recurring_run_id"] != made["recurring_run_id"]
        assert changed["trigger"]["cron_schedule"]["cron"] == "0 0 4 1 1 *" and changed["status"] == "ENABLED"
        cluster.api(f"recurringruns/{changed['recurring_run_id']}:disable", {}, "POST")
        assert schedule("diff", path, "0 4 1 1 *")[0] == 1, "switched off by hand"
    finally:
        assert schedule("delete", path)[0] == 0
    assert not held(cluster)
