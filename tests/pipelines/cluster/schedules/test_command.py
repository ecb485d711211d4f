"""`yanmo schedule` with recurring runs: idempotent, never two that fire, healed after a kill anywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from recurring_kfp import RecurringKfp, serving
from servers.replayed import one

from yanmo_pipelines.cluster.schedules import command

FILE = """\
timezone: Asia/Shanghai
schedules:
  nightly:
    cron: "{cron}"
    suspend: {suspend}
    night: 21:00-08:00
    set: {{train_steps: {steps}}}
"""
Run = Callable[..., int]


@pytest.fixture
def kfp() -> RecurringKfp:
    return RecurringKfp()


@pytest.fixture
def schedule(
    kfp: RecurringKfp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Any:
    """Runs a subcommand on a file: exit code, stdout, stderr."""

    def run(
        what: str,
        *flags: str,
        cron: str = "0 21 * * *",
        suspend: str = "false",
        steps: int = 20,
        more: str = "",
    ) -> Any:
        path = tmp_path / "night.yaml"
        text = FILE.format(cron=cron, suspend=suspend, steps=steps)
        path.write_text(text + (f"    {more}\n" if more else ""), encoding="utf-8")
        with serving(kfp) as address:
            code = command.main([what, str(path), f"--host={address}", "--look-seconds=0", *flags])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_apply_makes_it_once_and_diff_says_what_differs(kfp: RecurringKfp, schedule: Any) -> None:
    code, out, _ = schedule("diff")
    assert code == 1 and "+ cron: 0 0 13 * * *" in out and not kfp.changes, "diff changes nothing"
    code, out, _ = schedule("apply")
    (run,) = kfp.runs.values()
    assert code == 0
    assert f"nightly: made: recurring run of KFP {run['recurring_run_id']}" in out
    assert "0 0 13 * * *  (second 0, minute 0, hour 13, day *, month *, weekday *; UTC, KFP's zone" in out
    next_line = next(line for line in out.splitlines() if line.startswith("  next"))
    assert next_line.count("21:00 +0800") == 3 and next_line.endswith("(Asia/Shanghai)")
    assert run["status"] == "ENABLED" and run["no_catchup"] is True and run["max_concurrency"] == "1"
    options = run["runtime_config"]["parameters"]["options"]
    night = "train.when_busy=end train.night=21:00-08:00 train.timezone=Asia/Shanghai"
    assert options == f"{night} resolve.schedule=nightly", "its runs know whose they are"
    assert schedule("diff")[:2] == (0, "")
    for version in kfp.versions.values():  # another commit compiled the same
        version["display_name"] = "-".join(["0123abc", *version["display_name"].rsplit("-", 2)[1:]])
    assert schedule("diff")[:2] == (0, "")
    done = list(kfp.changes)
    code, out, _ = schedule("apply")
    assert code == 0 and "nightly: unchanged" in out and kfp.changes == done
    code, out, _ = schedule("diff", cron="30 21 * * *", steps=30)
    assert code == 1
    assert out.splitlines() == [
        "nightly: recurring run of KFP",
        "  - cron: 0 0 13 * * *",
        "  + cron: 0 30 13 * * *",
        "  - parameter train_steps: 20",
        "  + parameter train_steps: 30",
    ]
    code, out, _ = schedule("apply", cron="30 21 * * *", steps=30)
    (new,) = kfp.runs.values()
    assert "nightly: changed" in out and new["recurring_run_id"] != run["recurring_run_id"]
    assert kfp.most_enabled == 1, "two never fire"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("experiment: nights", "+ experiment: nights"),
        ("service_account: trainer", "+ service_account: trainer"),
        ("channel: other", "+ parameter channel: other"),
        ("store: s3://other/place", "+ parameter store: s3://other/place"),
    ],
)
def test_whatever_the_file_says_otherwise_is_shown_and_made(
    kfp: RecurringKfp, schedule: Any, more: str, line: str
) -> None:
    assert schedule("apply")[0] == 0
    code, out, err = schedule("diff", more=more)
    assert code == 1 and line in out, err
    assert schedule("apply", more=more)[0] == 0
    assert schedule("diff", more=more)[:2] == (0, "")
    assert schedule("diff")[0] == 1, "and back"


def test_one_that_was_switched_off_by_hand_differs_and_is_made_again(
    kfp: RecurringKfp, schedule: Any
) -> None:
    """An old one that is enabled again would fire at once for the time it has missed."""
    schedule("apply")
    (old,) = kfp.runs.values()
    old["status"] = "DISABLED"
    code, out, _ = schedule("diff")
    assert code == 1 and out.splitlines()[1:] == ["  - suspend: True", "  + suspend: False"]
    schedule("apply")
    (new,) = kfp.runs.values()
    assert new is not old and new["status"] == "ENABLED"
    schedule("apply", suspend="true")
    (off,) = kfp.runs.values()
    assert off["status"] == "DISABLED" and schedule("diff", suspend="true")[0] == 0


@pytest.mark.fault(few=3)
@pytest.mark.parametrize("kills", range(8))
def test_an_apply_that_was_killed_anywhere_is_healed_by_the_next(
    kfp: RecurringKfp, schedule: Any, kills: int
) -> None:
    schedule("apply")
    kfp.most_changes = len(kfp.changes) + kills
    code, _, err = schedule("apply", cron="30 21 * * *")
    whole = code == 0
    assert whole or (code == 75 and "no answer from KFP's API" in err)
    assert whole == (kills >= 5), "make, disable, enable, disable, delete"
    kfp.most_changes = 10**9
    enabled = [run for run in kfp.runs.values() if run["status"] == "ENABLED"]
    assert len(enabled) <= 1
    if kills in (0, 1, 2):
        assert schedule("diff", cron="30 21 * * *")[0] == 1
    assert schedule("apply", cron="30 21 * * *")[0] == 0
    (run,) = kfp.runs.values()
    assert run["status"] == "ENABLED" and run["trigger"]["cron_schedule"]["cron"] == "0 30 13 * * *"
    assert kfp.most_enabled == 1 and schedule("diff", cron="30 21 * * *")[0] == 0


def test_delete_removes_what_it_made_and_nothing_else(kfp: RecurringKfp, schedule: Any) -> None:
    schedule("apply")
    kfp.runs["other"] = {
        "recurring_run_id": "other",
        "display_name": "weekly",
        "description": "by hand",
        "status": "ENABLED",
    }
    assert schedule("delete")[:2] == (0, "nightly: deleted: 1 recurring run of KFP\n")
    assert list(kfp.runs) == ["other"]
    assert schedule("delete")[:2] == (0, "nightly: nothing to delete\n")
    code, _, err = schedule("delete", "--only=weekly")
    assert code == 64 and "was not made by `yanmo schedule`" in err and list(kfp.runs) == ["other"]


def test_where_one_schedule_of_a_file_is_refused_none_is_made(kfp: RecurringKfp, schedule: Any) -> None:
    """The first was made, and the second then refused."""
    kfp.runs["x"] = {
        "recurring_run_id": "x",
        "display_name": "weekly",
        "description": "by hand",
        "status": "ENABLED",
    }
    second = "pipeline: language_model\n    channel: weekly\n    cron: 0 3 * * 0"
    code, _, err = schedule("apply", more=f"\n  weekly:\n    {second}")
    assert code == 64 and "recurring run weekly (x) was not made by" in err
    assert not kfp.changes and list(kfp.runs) == ["x"]


def test_a_name_that_somebody_else_has_is_refused(kfp: RecurringKfp, schedule: Any) -> None:
    kfp.runs["x"] = {
        "recurring_run_id": "x",
        "display_name": "nightly",
        "description": "yanmo.dev/schedule=nightly-2",
        "status": "ENABLED",
    }
    for what in ("apply", "diff", "delete"):
        code, _, err = schedule(what)
        assert code == 64 and "give the schedule another name" in err
    assert not kfp.changes


def test_what_cannot_be_is_refused_before_anything_is_changed(kfp: RecurringKfp, schedule: Any) -> None:
    code, _, err = schedule("apply", steps=-5)
    assert code == 64 and "schedule nightly: " in err and "-5" in err
    code, _, err = schedule("apply", "--only=nigthly")
    assert code == 64 and "did you mean nightly?" in err
    code, _, err = schedule("apply", "--kfp-timezone=Europe/Berlin")
    assert code == 64 and "do not change together" in err
    code, _, err = schedule("apply", "--kfp-timezone=Asia/Shanghai", cron="0 21 30 2 *")
    assert code == 64 and "never fires" in err
    assert not kfp.changes
    assert schedule("apply", "--kfp-timezone=Asia/Shanghai")[0] == 0
    (run,) = kfp.runs.values()
    assert run["trigger"]["cron_schedule"]["cron"] == "0 0 21 * * *"


def test_a_zone_that_kfps_configmap_contradicts_is_warned_of(
    kfp: RecurringKfp, schedule: Any, cluster: Any
) -> None:
    path = "GET /api/v1/namespaces/kubeflow/configmaps/pipeline-install-config"
    cluster([one(path, 200, {"data": {"cronScheduleTimezone": "Asia/Shanghai"}})])
    code, out, err = schedule("apply", "--kfp-timezone=UTC")
    assert code == 0 and "0 0 21 * * *" in out and "--kfp-timezone UTC: ConfigMap" in err, err
    assert "--kfp-timezone" not in schedule("apply", "--kfp-timezone=Asia/Shanghai")[2]


def test_where_kfp_is_down_nothing_is_said_to_be_done(tmp_path: Path, schedule: Any) -> None:
    code, out, err = schedule("apply", "--host=http://127.0.0.1:9")
    assert code == 75 and not out and "no answer from KFP's API" in err


def test_a_schedule_of_before_is_named_by_diff(kfp: RecurringKfp, schedule: Any) -> None:
    schedule("apply")
    (run,) = kfp.runs.values()
    old = json.loads(json.dumps(run).replace("nightly", "weekly")) | {"recurring_run_id": "old"}
    kfp.runs["old"] = old
    code, _, err = schedule("diff")
    assert code == 0 and "weekly: made by another file, or no longer in this one" in err
    assert schedule("delete", "--only=weekly")[0] == 0 and "old" not in kfp.runs
