"""Grafana's dashboards: what is committed is what is written, and every query of every panel is a real one.

The last tests run Yanmo beside a real Prometheus and ask it what the panels ask.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from promql import ALERTS, FAMILIES, FOLDER, families_in
from rendered import ROOT, kubectl
from servers import prometheus

SOURCES = ROOT / "manifests/dashboards"
COMMITTED = ROOT / "manifests/components/dashboards"
sys.path[:0] = [str(SOURCES), str(ROOT / "tests/pipelines")]

from of_a_run import TRAINING_RUN  # noqa: E402
from of_nights import NIGHTS  # noqa: E402
from tiny_road import SETTINGS as TINY_ROAD  # noqa: E402
from tiny_road import write_text  # noqa: E402

DASHBOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in COMMITTED.glob("*.json")}
SPECIFIED = {dashboard.name: dashboard for dashboard in (TRAINING_RUN, NIGHTS)}
OF_PROMETHEUS = {"job", "instance", "namespace", "pod", "__name__", "alertname", "alertstate", "severity"}
LEFT_OUT = {
    "yanmo_stage_exit_code": "the state says whether it failed, the card why",
    "yanmo_stage_end_timestamp_seconds": "for a Pushgateway: a pod that has ended is not asked again",
    "yanmo_gpu_info": "to join DCGM's figures by the GPU's id",
    "yanmo_stage_workers": "an option of the run",
    "yanmo_train_ranks": "an option of the run",
    "yanmo_train_checkpoint_interval_seconds": "an option of the run",
    "yanmo_train_checkpoint_step": "its age says what would be lost",
    "yanmo_store_requests_total": "the store's server says it of all who ask; YanmoStoreErrors reads it",
}
"""Metrics that no panel shows, and why."""
OF_REPORTS = ("yanmo_curate_", "yanmo_balance_", "yanmo_tokenize_", "yanmo_evaluate_")
"""What these say of texts and tokens is in their reports, and of a model on its page."""


def shown(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels, also those of closed rows."""
    found = [inner for panel in dashboard["panels"] for inner in (panel, *panel.get("panels", []))]
    return [panel for panel in found if panel["type"] != "row"]


def queries(name: str) -> list[tuple[str, str, str]]:
    """Title of the panel, expression and legend of each query."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in shown(DASHBOARDS[name])
        for target in panel["targets"]
    ]


def chosen(expression: str, within: str = "20s") -> str:
    """As Grafana asks it, with everything chosen."""
    found = re.sub(r"\$(namespace|channel|run|rank)\b", ".*", expression)
    found = found.replace("$__rate_interval", within).replace(":15s]", f":{SCRAPE}]")
    assert "$" not in found.replace('"$1"', ""), expression
    return found


SCRAPE = "500ms"
"""From one scrape to the next: what a stage said at its end is there for as long, and no longer."""
ALL = [(name, *query) for name in sorted(DASHBOARDS) for query in queries(name)]


def test_what_is_committed_is_what_is_written() -> None:
    from write import DASHBOARDS as WRITTEN
    from write import text_of

    for dashboard in WRITTEN:
        path = COMMITTED / f"{dashboard.name}.json"
        assert path.read_text(encoding="utf-8") == text_of(dashboard), (
            f"python manifests/dashboards/write.py writes {path.name} again"
        )
    assert {d.name for d in WRITTEN} == DASHBOARDS.keys() == SPECIFIED.keys()


def test_grafanas_own_types_read_them_and_give_them_back() -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    for name, dashboard in DASHBOARDS.items():
        again = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
        assert list(lost(dashboard, again)) == [], name
        wrong = {**dashboard, "panels": [{**dashboard["panels"][1], "qridPos": {}}]}
        again = json.loads(json.dumps(Dashboard.from_json(wrong), cls=JSONEncoder))
        assert list(lost(wrong, again)) == ["/panels/0/qridPos"], "what no type knows is left out"


def lost(given: Any, again: Any, where: str = "") -> Iterator[str]:
    """Places of what was given and is not there again; defaults may have come to it."""
    if isinstance(given, dict) and isinstance(again, dict):
        for name, value in given.items():
            yield from lost(value, again.get(name), f"{where}/{name}")
    elif isinstance(given, list) and isinstance(again, list) and len(given) == len(again):
        for number, value in enumerate(given):
            yield from lost(value, again[number], f"{where}/{number}")
    elif given != again:
        yield where


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_panels_have_a_place_and_a_number_of_their_own(name: str) -> None:
    dashboard = DASHBOARDS[name]
    every = [inner for panel in dashboard["panels"] for inner in (panel, *panel.get("panels", []))]
    assert len({panel["id"] for panel in every}) == len(every)
    for group in (dashboard["panels"], *(panel.get("panels", []) for panel in dashboard["panels"])):
        taken = set[tuple[int, int]]()
        for panel in group:
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
            taken |= cells
    titles = [panel["title"] for panel in shown(dashboard)]
    assert len(set(titles)) == len(titles), "a panel is found by its title"
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in shown(dashboard):
        assert panel["datasource"] == source and all(t["datasource"] == source for t in panel["targets"])
        named = set(re.findall(r"Yanmo[A-Z]\w+", panel.get("description", "")))
        assert named <= ALERTS.keys(), f"{panel['title']}: no such alert"


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_queries_are_of_metrics_and_labels_that_are_declared(name: str) -> None:
    for title, expression, legend in queries(name):
        families = families_in(expression)
        assert (families or "ALERTS" in expression) and families <= FAMILIES.keys(), title
        known = {label.name for family in families for label in FAMILIES[family].labels}
        used = set(re.findall(r"[{,](\w+)(?:=|!=)", expression))
        if "ALERTS" not in expression:
            used |= set(re.findall(r"\{\{(\w+)\}\}", legend))
        if any(FAMILIES[family].final for family in families):
            known |= {"stage", "channel"}  # of what was pushed
        assert used <= known | OF_PROMETHEUS, f"{title}: {used - known - OF_PROMETHEUS}"


def test_every_metric_is_in_a_panel_or_left_out_for_a_reason() -> None:
    read = {family for _, _, expression, _ in ALL for family in families_in(expression)}
    read |= {f for f in FAMILIES if f.endswith(("_start_time_seconds", "_waiting_seconds"))}
    unread = {family for family in FAMILIES.keys() - read if not family.startswith(OF_REPORTS)}
    assert unread == LEFT_OUT.keys()


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_choices_at_the_top_are_of_few_values(name: str) -> None:
    """Namespaces, channels, ranks; runs are those of the time that is shown."""
    dashboard = DASHBOARDS[name]
    first, *others = dashboard["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    names = [each["name"] for each in others]
    assert names == [variable.name for variable in SPECIFIED[name].variables]
    used = {found for _, e, _ in queries(name) for found in re.findall(r"\$(?!__)(\w+)", e)} - {"1"}
    assert used == set(names)
    for each in others:
        assert each["allValue"] == ".*" and each["includeAll"] and each["multi"]
        assert each["refresh"] == 2, "when the time that is shown changes"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [{"record": f"q{n}", "expr": chosen(e)} for n, (_, _, e, _) in enumerate(ALL)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    command = ["promtool", "check", "rules", "--lint=none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


POD, NEXT = 'instance="10.0.0.7:9464",pod="night-1"', 'instance="10.0.0.8:9464",pod="night-2"'
"""A night in one pod: its stages have one address after each other. Then another channel's, then the next
night of the first."""
SAID = {
    f'yanmo_run_info{{{POD},stage="train",channel="poems",run_id="1"}}': "1x3 stale",
    f"yanmo_train_duration_seconds{{{POD}}}": "600x3 stale",
    f'yanmo_run_info{{{POD},stage="promote",channel="poems",run_id="1"}}': "_x8 1x1 stale",
    f'yanmo_promote_verdict{{{POD},outcome="promoted"}}': "_x8 1x1 stale",
    f'yanmo_run_info{{{POD},stage="promote",channel="prose",run_id="2"}}': "_x30 1 stale",
    f'yanmo_promote_mean_bits_per_character{{{POD},model="a"}}': "_x8 7.5x1 stale",
    f'yanmo_promote_mean_bits_per_character{{{POD},model="b"}}': "_x30 6.5 stale",
    f"yanmo_promote_duration_seconds{{{POD}}}": "_x8 20x1 stale _x19 30 stale",
    f'yanmo_run_info{{{NEXT},stage="promote",channel="poems",run_id="3"}}': "_x50 1 stale",
    f'yanmo_promote_mean_bits_per_character{{{NEXT},model="a"}}': "_x50 7 stale",
    f"yanmo_promote_duration_seconds{{{NEXT}}}": "_x50 25 stale",
}
OF_A_DAY = {
    "Bits per character, mean of the genres": [
        ('{model="a",stage="promote",channel="poems"}', 7.0),
        ('{model="b",stage="promote",channel="prose"}', 6.5),
    ],
    "The newest verdict": [('{outcome="promoted",stage="promote",channel="poems"}', 1)],
    "Time of the stages, of a day": [
        ('{stage="promote",channel="poems"}', 45),
        ('{stage="promote",channel="prose"}', 30),
        ('{stage="train",channel="poems"}', 600),
    ],
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_one_address_of_several_stages_and_channels_is_told_apart(tmp_path: Path) -> None:
    asked = {title: expression for title, expression, _ in queries("nights")}
    tests = [
        {"expr": re.sub(r"\$\w+", ".*", asked[title]), "eval_time": "2h", "exp_samples": samples}
        for title, found in OF_A_DAY.items()
        if (samples := [{"labels": labels, "value": value} for labels, value in found])
    ]
    series = [{"series": name, "values": values} for name, values in SAID.items()]
    case = {"interval": "15s", "input_series": series, "promql_expr_test": tests}
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sidecar_gets_both_in_one_config_map(tmp_path: Path) -> None:
    folder = tmp_path / "overlay"
    shutil.copytree(COMMITTED, tmp_path / "dashboards")
    folder.mkdir()
    text = "namespace: somewhere\ncomponents: [../dashboards]\n"
    (folder / "kustomization.yaml").write_text(text)
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = yaml.safe_load_all(done.stdout)
    assert (found["kind"], found["metadata"]["name"]) == ("ConfigMap", "yanmo-dashboards")
    assert found["metadata"]["namespace"] == "somewhere"
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1", (
        "the sidecar of Grafana's chart looks for it"
    )
    assert {name: json.loads(text) for name, text in found["data"].items()} == {
        f"{name}.json": dashboard for name, dashboard in DASHBOARDS.items()
    }
    assert len(done.stdout) < 1_000_000, "etcd takes 1 MiB"
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    validate.validate(found, "1.34", strict=True)


TOO_SHORT = {
    "yanmo:train_mfu:median6h": "looks once a minute, and a short training may lie between two looks",
    "yanmo_stage_work_age_seconds": "shown only while a stage counts, which a small one does for a moment",
}
"""What a run of a minute need not have, and why."""
SETTINGS = {
    **TINY_ROAD,
    "data_sources": "text.jsonl",
    "train_steps": "30",
    "options": f"{TINY_ROAD['options']} train.log_every=2 train.monitor=full train.monitor_every=4 "
    "train.valid_every=10 train.checkpoint_steps=8 train.peak_tflops=0.05".replace(
        "train.ranks=1", "train.ranks=2"
    ),
}
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'components'}:{ROOT / 'pipelines'}",
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
}
AWAY = (
    *("curate", "--store=s3://away", "--endpoint=http://127.0.0.1:9", "--run-id=away"),
    *("--wait-seconds=8", "--sources=text.jsonl"),
)
"""A stage whose store does not answer: it waits, and fails."""


def wait_for(server: prometheus.Prometheus, query: str) -> None:
    """Until Prometheus has something to say to it: it looks twice a second."""
    while not server.ask("query", query=query)["result"]:
        time.sleep(0.2)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[prometheus.Prometheus, float, float]]:
    """A whole small run, and a stage that fails, as a Prometheus saw them; from when to when."""
    reason = prometheus.absent()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("seen")
    write_text(folder / "text.jsonl", 120)
    settings = [word for pair in SETTINGS.items() for word in ("--set", "=".join(pair))]
    run = prometheus.yanmo("run", "--store=runs/demo", "--channel=demo", *settings)
    start = time.time()
    with prometheus.Prometheus(folder / "prometheus", FOLDER / "rules.yaml", SCRAPE) as server:
        code = server.run(run, folder, ENVIRONMENT, folder / "run.log")
        assert code == 0, (folder / "run.log").read_text(encoding="utf-8")[-3000:]
        code = server.run(prometheus.yanmo(*AWAY), folder, ENVIRONMENT, folder / "away.log")
        assert code == 75, (folder / "away.log").read_text(encoding="utf-8")
        wait_for(server, 'ALERTS{alertname="YanmoStageFailed",alertstate="firing"}')
        yield server, start, time.time() + 1


@pytest.mark.process
@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_a_real_run_shows_something_in_every_panel(
    name: str, seen: tuple[prometheus.Prometheus, float, float]
) -> None:
    server, start, end = seen
    specified = {panel.title: panel for panel in SPECIFIED[name].panels()}
    empty = []
    for title, expression, legend in queries(name):
        found = server.over(chosen(expression), start, end, 1.0)
        assert not any(s["values"] == [] for s in found)
        if not found and not specified[title].needs and not any(one in expression for one in TOO_SHORT):
            empty.append(f"{title}: {legend}")
    assert not empty
