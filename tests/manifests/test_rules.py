"""Recording rules and alerts, by promtool: each alert in a case that fires it, and in one that does not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from custom_resources import faults_of
from promql import ALERTS, FAMILIES, FOLDER, RECORDS, RULES, families_in
from rendered import objects

from yanmo_pipelines.resources import METRICS_PORT, labels_of

DAY = 86400
PUSHED = 'yanmo_stage_last_success_timestamp_seconds{channel="main",stage="'
NEXT = 'kube_cronjob_next_schedule_time{cronjob="yanmo-night"}'
SUSPENDED = 'kube_cronjob_spec_suspend{cronjob="yanmo-night"}'
OF_KUBERNETES = {NEXT.partition("{")[0], SUSPENDED.partition("{")[0]}
"""Metrics of kube-state-metrics."""
GOES_WELL = {
    "yanmo_train_last_step_age_seconds": "5x150",
    'yanmo_train_heartbeat_age_seconds{rank="0"}': "1x150",
    'yanmo_train_heartbeat_age_seconds{rank="1"}': "1x150",
    'yanmo_train_ranks_doing{doing="training"}': "2x150",
    'yanmo_train_ranks_doing{doing="loading"}': "0x150",
    'yanmo_train_waiting_seconds{reason="store"}': "0x150",
    "yanmo_train_loss": "8-0.03x150",
    "yanmo_train_grad_norm": "12-0.05x150",
    "yanmo_train_skipped_steps_total": "0x150",
    'yanmo_train_data_wait_seconds_total{rank="0"}': "0+1x150",
    'yanmo_train_step_seconds_total{rank="0"}': "0+58x150",
    "yanmo_train_mfu": "0.4x150",
    "yanmo_train_out_of_memory_total": "0x150",
    'yanmo_train_allocator_retries_total{rank="0"}': "0x150",
    'yanmo_train_restarts_total{reason="smaller micro batch"}': "0x150",
    'yanmo_train_restarts_total{reason="another try"}': "0x150",
    "yanmo_train_checkpoint_age_seconds": "0+60x50 0+60x50 0+60x50",
    "yanmo_train_checkpoint_interval_seconds": "1500x150",
    "yanmo_train_start_time_seconds": "0x150",
    'yanmo_train_checkpoint_failures_total{what="write"}': "0x150",
    'yanmo_gpu_utilization_ratio{gpu="0"}': "0.97x150",
    'yanmo_gpu_temperature_celsius{gpu="0"}': "71x150",
    'yanmo_gpu_throttled{gpu="0",reason="software_power_cap"}': "1x150",
    'yanmo_stage_state{state="working"}': "1x150",
    'yanmo_stage_state{state="failed"}': "0x150",
    "yanmo_stage_work_age_seconds": "3x150",
    "yanmo_stage_tries_total": "1x150",
    'yanmo_store_requests_total{kind="write"}': "0+100x150",
    'yanmo_store_retries_total{kind="write"}': "0+1x150",
    "yanmo_stage_disk_free_bytes": "50x150",
    "yanmo_stage_disk_bytes": "100x150",
    'yanmo_promote_verdict{outcome="promoted"}': "1x150",
    'yanmo_promote_verdict{outcome="not promoted"}': "0x150",
    "yanmo_promote_champion_since_timestamp_seconds": "0x150",
    f'{PUSHED}promote"}}': f"{-DAY}x60 3600x90",
    f'{PUSHED}train"}}': f"{-3 * DAY}x150",
    NEXT: f"3600x60 {DAY + 3600}x90",
    SUSPENDED: "0x150",
}
"""A training, all that a pod may say beside it, what nights pushed and what kube-state-metrics says, for two
hours and a half: it fires nothing."""

FIRE: dict[str, list[dict[str, str]]] = {
    "YanmoTrainStalled": [
        {"yanmo_train_last_step_age_seconds": "5x60 0+60x90"},
        {'yanmo_train_heartbeat_age_seconds{rank="1"}': "1x60 0+60x90"},
        {'yanmo_train_heartbeat_age_seconds{rank="1"}': "1x94 0+60x50"},
        {  # loading, without end
            'yanmo_train_heartbeat_age_seconds{rank="1"}': "1x60 0+60x90",
            'yanmo_train_ranks_doing{doing="loading"}': "0x60 1x90",
        },
    ],
    "YanmoTrainNonFinite": [{"yanmo_train_skipped_steps_total": "0x90 2x60"}],
    "YanmoTrainLossSpike": [{"yanmo_train_loss": "4x90 9x60"}],
    "YanmoTrainGradientNorm": [{"yanmo_train_grad_norm": "2x90 11x60"}],
    "YanmoTrainDataWait": [{'yanmo_train_data_wait_seconds_total{rank="0"}': "0+20x150"}],
    "YanmoTrainMfuLow": [{"yanmo_train_mfu": "0.4x90 0.2x60"}],
    "YanmoTrainMemory": [
        {"yanmo_train_out_of_memory_total": "0x90 1x60"},
        {'yanmo_train_allocator_retries_total{rank="0"}': "0x90 0+3x60"},
    ],
    "YanmoCheckpointTooOld": [
        {"yanmo_train_checkpoint_age_seconds": "0+60x150"},
        {  # no rule of time: an hour is long
            "yanmo_train_checkpoint_age_seconds": "0+60x30 0+60x120",
            "yanmo_train_checkpoint_interval_seconds": "_x150",
        },
        {'yanmo_train_checkpoint_failures_total{what="write"}': "0x90 1x60"},
    ],
    "YanmoGpuIdle": [{'yanmo_gpu_utilization_ratio{gpu="0"}': "0.97x60 0x90"}],
    "YanmoGpuHot": [{'yanmo_gpu_temperature_celsius{gpu="0"}': "71x60 90x90"}],
    "YanmoGpuThrottled": [{'yanmo_gpu_throttled{gpu="0",reason="hardware_thermal"}': "0x60 1x90"}],
    "YanmoStageFailed": [{'yanmo_stage_state{state="failed"}': "0x90 1 _x60"}],
    "YanmoStageStalled": [
        {"yanmo_stage_work_age_seconds": "3x60 0+60x90", "yanmo_train_last_step_age_seconds": "_x150"}
    ],
    "YanmoRetries": [
        {"yanmo_stage_tries_total": "1x90 2 3 4 5x60"},
        {'yanmo_train_restarts_total{reason="another try"}': "0x90 1 2 3 4 5x60"},
    ],
    "YanmoWaiting": [{'yanmo_train_waiting_seconds{reason="store"}': "0x90 0+60x60"}],
    "YanmoStoreErrors": [{'yanmo_store_retries_total{kind="write"}': "0+1x90 90+30x60"}],
    "YanmoDiskNearlyFull": [{"yanmo_stage_disk_free_bytes": "50x90 9x60"}],
    "YanmoNoPromotion": [
        {
            'yanmo_promote_verdict{outcome="not promoted"}': "1x150",
            "yanmo_promote_champion_since_timestamp_seconds": f"{-15 * 86400}x150",
        }
    ],
    "YanmoMissedNight": [
        {f'{PUSHED}promote"}}': f"{-DAY - 3600}x150"},
        {  # of one channel of two
            'yanmo_stage_last_success_timestamp_seconds{channel="chat",stage="promote"}': f"{-2 * DAY}x150",
            f'{PUSHED}train"}}': "_x150",
        },
    ],
    "YanmoNightNotBegun": [
        {NEXT: "1800x150"},
        {  # care of the store
            'kube_cronjob_next_schedule_time{cronjob="store-gc"}': "1800x150",
            'kube_cronjob_spec_suspend{cronjob="store-gc"}': "0x150",
        },
    ],
}
"""Alert -> what is then otherwise than in GOES_WELL, each by itself; 100 minutes in, it fires."""

QUIET: dict[str, dict[str, str]] = {
    "YanmoTrainStalled": {  # it waits for the store, and says so
        "yanmo_train_last_step_age_seconds": "5x60 0+60x90",
        'yanmo_train_waiting_seconds{reason="store"}': "0x80 0+10x70",
    },
    "YanmoTrainStalled, loading": {  # nothing moves in the meantime; a long validation ends no step either
        "yanmo_train_last_step_age_seconds": "5x60 0+60x90",
        'yanmo_train_heartbeat_age_seconds{rank="1"}': "1x92 0+60x50",
        'yanmo_train_ranks_doing{doing="training"}': "2x60 1x90",
        'yanmo_train_ranks_doing{doing="loading"}': "0x60 1x90",
    },
    "YanmoTrainLossSpike": {"yanmo_train_loss": "4x90 5x60"},
    "YanmoTrainGradientNorm": {"yanmo_train_grad_norm": "4x90 11x60"},
    "YanmoTrainGradientNorm, a small one": {"yanmo_train_grad_norm": "0.5x90 9x60"},
    "YanmoTrainLossSpike, another training": {  # at the address of one that has learned something
        "yanmo_train_loss": "4x84 _ 9x60",
        "yanmo_train_start_time_seconds": f"0x84 {85 * 60}x60",
    },
    "YanmoCheckpointTooOld": {  # asked for every 90 minutes
        "yanmo_train_checkpoint_age_seconds": "0+60x150",
        "yanmo_train_checkpoint_interval_seconds": "5400x150",
    },
    "YanmoTrainMfuLow": {"yanmo_train_mfu": "0.4x90 0.3x60"},
    "YanmoGpuIdle": {  # a stage that has ended, or reads its inputs
        'yanmo_gpu_utilization_ratio{gpu="0"}': "0x150",
        'yanmo_stage_state{state="working"}': "0x150",
    },
    "YanmoNoPromotion": {  # old, and a night that beat it
        "yanmo_promote_champion_since_timestamp_seconds": f"{-15 * 86400}x150",
    },
    "YanmoMissedNight": {  # of another run that pushed earlier, and of a pod that is no night's
        f'{PUSHED}promote",namespace=""}}': f"{-DAY}x150",
        "yanmo_stage_last_success_timestamp_seconds": f"{-3 * DAY}x150",
    },
    "YanmoNightNotBegun": {NEXT: "1800x150", SUSPENDED: "1x150"},
    "YanmoNightNotBegun, another's": {
        'kube_cronjob_next_schedule_time{cronjob="backup"}': "0x150",
        'kube_cronjob_spec_suspend{cronjob="backup"}': "0x150",
    },
}
"""Alert (and which case, where it has several) -> what is near to it and must not fire it.

The others stay quiet in GOES_WELL.
"""

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


def series(name: str) -> str:
    """The series of one pod."""
    base, _, labels = name.partition("{")
    return f'{base}{{job="y",instance="a",pod="train-1"{"," + labels if labels else "}"}'


def promtool(case: dict[str, str], expected: list[tuple[str, str, int]], folder: Path) -> None:
    """Check by `promtool test rules` how many alerts fire: at which time, which of them ("" for any), and how
    many series of it."""
    expressions = []
    for at, alert, count in expected:
        labels = 'alertstate="firing"' + (f',alertname="{alert}"' if alert else "")
        samples = [{"labels": "{}", "value": count}] if count else []
        expressions.append({"expr": f"count(ALERTS{{{labels}}})", "eval_time": at, "exp_samples": samples})
    given = [{"series": series(name), "values": values} for name, values in case.items()]
    tests = [{"interval": "1m", "input_series": given, "promql_expr_test": expressions}]
    whole = {"rule_files": [str(FOLDER / "rules.yaml")], "evaluation_interval": "1m", "tests": tests}
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(whole))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_good_and_those_of_the_operator_are_the_same() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(FOLDER / "rules.yaml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    operators = yaml.safe_load((FOLDER / "prometheus-rule.yaml").read_text(encoding="utf-8"))
    assert operators["spec"] == RULES


def test_every_alert_has_a_case_and_says_what_is_wrong_and_what_to_do() -> None:
    assert FIRE.keys() == ALERTS.keys() and {name.split(",")[0] for name in QUIET} <= ALERTS.keys()
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        said = rule["annotations"]
        assert said.keys() == {"summary", "description"}, name
        assert said["summary"].endswith(".") and said["description"].endswith("."), name


def test_what_goes_well_fires_nothing(tmp_path: Path) -> None:
    promtool(GOES_WELL, [(f"{minutes}m", "", 0) for minutes in range(10, 150, 20)], tmp_path)


CASES = [(alert, number) for alert, cases in FIRE.items() for number in range(len(cases))]


@pytest.mark.process(few=6)
@pytest.mark.parametrize(("alert", "number"), CASES, ids=lambda value: str(value))
def test_an_alert_fires(alert: str, number: int, tmp_path: Path) -> None:
    change = FIRE[alert][number]
    at = "135m" if alert == "YanmoTrainMfuLow" else "110m" if alert == "YanmoWaiting" else "100m"
    # Where one thing is otherwise, it was this that fired it: no other alert does.
    alone = [(at, "", 1)] if len(change) == 1 else []
    promtool({**GOES_WELL, **change}, [(at, alert, 1), *alone], tmp_path)


@pytest.mark.process(few=3)
@pytest.mark.parametrize("alert", QUIET)
def test_an_alert_stays_quiet_beside_it(alert: str, tmp_path: Path) -> None:
    promtool({**GOES_WELL, **QUIET[alert]}, [("100m", "", 0)], tmp_path)


@pytest.mark.parametrize("name", ["pod-monitor.yaml", "prometheus-rule.yaml"])
def test_the_operators_objects_are_good_field_by_field(name: str) -> None:
    each = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    assert not list(faults_of(each))
    assert list(faults_of({**each, "spec": {**each["spec"], "grups": []}}))


def test_prometheus_takes_the_scrape_configuration(tmp_path: Path) -> None:
    """All but how it finds pods where promtool is Debian's, which was built without Kubernetes."""
    (scrape,) = yaml.safe_load((FOLDER / "scrape.yaml").read_text(encoding="utf-8"))
    assert scrape["job_name"] == "yanmo"
    done = checked({"scrape_configs": [scrape]}, tmp_path)
    if "field kubernetes_sd_configs not found" in done.stderr:
        assert scrape.pop("kubernetes_sd_configs")[0].keys() == {"role", "namespaces", "selectors"}
        scrape["static_configs"] = [{"targets": ["a:1"]}]
        done = checked({"scrape_configs": [scrape]}, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    scrape["relabel_configs"][0]["regexp"] = "x"
    assert checked({"scrape_configs": [scrape]}, tmp_path).returncode


def checked(config: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """`promtool check config`."""
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return subprocess.run(["promtool", "check", "config", str(path)], capture_output=True, text=True)


def test_both_find_the_same_pods() -> None:
    """Port, container and labels are written twice."""
    monitor = yaml.safe_load((FOLDER / "pod-monitor.yaml").read_text(encoding="utf-8"))["spec"]
    (scrape,) = yaml.safe_load((FOLDER / "scrape.yaml").read_text(encoding="utf-8"))
    (endpoint,) = monitor["podMetricsEndpoints"]
    targets = {rule.get("target_label") for rule in scrape["relabel_configs"]}
    operators_own = {"namespace", "pod", *(re.sub(r"\W", "_", one) for one in monitor["podTargetLabels"])}
    assert targets - {None, "__address__"} == operators_own, "labels by which queries find a pod"
    keys = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    operators = [
        {keys.get(k, k): v for k, v in rule.items()}
        for rule in endpoint["relabelings"]
        if rule["action" if "action" in rule else "replacement"] != "labeldrop"
    ]
    assert [rule for rule in operators if rule not in scrape["relabel_configs"]] == []
    port = f"$1:{METRICS_PORT}"
    assert sum(rule.get("replacement") == port for rule in operators) == 1
    labels = labels_of("train")
    chosen = monitor["selector"]["matchLabels"]
    assert chosen.items() <= labels.items()
    assert {one["key"] for one in monitor["selector"]["matchExpressions"]} <= labels.keys()
    (selector,) = scrape["kubernetes_sd_configs"][0]["selectors"]
    assert selector["label"] == "app.kubernetes.io/name=yanmo,yanmo.dev/stage"
    names = {
        one["name"]
        for each in objects("base")
        if each["kind"] == "CronJob" and each["metadata"]["name"].startswith("stage-")
        for one in each["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    }
    assert names == {"stage"}


OF_A_PUSH = {"stage", "channel"}
"""Labels that figures have at a Pushgateway beside their own."""


def test_what_an_alert_sees_increase_was_there_before() -> None:
    """A counter that begins with its first event has no increase then."""
    for expression in (*RECORDS.values(), *(rule["expr"] for rule in ALERTS.values())):
        for family in re.findall(r"(?:increase|rate)\((yanmo_\w+)", expression):
            unknown = {label.name for label in FAMILIES[family].labels if not label.values}
            assert unknown <= {"rank"}, f"{family}: who serves it from the start?"


def test_rules_read_what_is_served_and_each_metric_has_the_alert_that_it_names() -> None:
    read = {name: families_in(rule["expr"]) for name, rule in ALERTS.items()}
    for name, expression in [*((n, r["expr"]) for n, r in ALERTS.items()), *RECORDS.items()]:
        others = {family for family in OF_KUBERNETES if family in expression}
        assert families_in(expression) | others, name
        assert families_in(expression) <= FAMILIES.keys(), name
    missed = [
        f"{family}: {metric.alert}"
        for family, metric in FAMILIES.items()
        if metric.alert and family not in read.get(metric.alert, set())
    ]
    assert not missed
    labels = {
        (metric, label)
        for rule in (*RECORDS.values(), *(r["expr"] for r in ALERTS.values()))
        for metric, inside in re.findall(r"(yanmo_\w+)\{([^}]*)\}", rule)
        for label in re.findall(r"(\w+)(?:=|!=|=~)", inside)
    }
    for family, name in labels:
        known = {label.name for label in FAMILIES[family].labels}
        assert name in known | (OF_A_PUSH if FAMILIES[family].final else set()), (family, name)
