"""`yanmo rerun STAGE` against what a real cluster answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers.replayed import answers, kubeconfig, one, serving

from yanmo_pipelines.cluster import rerun
from yanmo_pipelines.cluster.rerun import STAGES, job_of

JOBS = "POST /apis/batch/v1/namespaces/kubeflow/jobs"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Exit code, stdout, stderr and the server, of a rerun in a cluster that answers as recorded."""

    def ask(cluster: list[Any], *words: str) -> Any:
        with serving(cluster) as (address, server):
            monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
            code = rerun.main([*words, "--look-seconds=0"])
        said = capfd.readouterr()
        return code, said.out, said.err, server

    return ask


def test_a_rerun_makes_the_job_of_its_cron_job_and_says_where_its_log_is(asked: Any) -> None:
    words = ("balance", "--name=operators-balance", "--inputs=latest", "--set=by=author")
    code, out, _, server = asked(answers("rerun-kubernetes"), *words)
    assert code == 0
    assert out.splitlines() == [
        "job   operators-balance",
        "log   kubectl -n kubeflow logs -f job/operators-balance",
    ]
    (job,) = server.sent(JOBS)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["YANMO_INPUTS"] == "latest" and env["YANMO_OPTIONS"] == "balance.by=author"
    assert job["metadata"]["ownerReferences"][0]["name"] == "stage-balance"


def test_a_dry_run_prints_the_job_and_the_shells_channel_is_its_own(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on a cluster: with YANMO_CHANNEL set, submit ran in that channel and rerun in the CronJob's."""
    monkeypatch.setenv("YANMO_CHANNEL", "nightly")
    words = ("balance", "--name=r1", "--inputs=run:a-1", "--dry-run")
    code, out, _, server = asked(answers("rerun-kubernetes"), *words)
    assert code == 0 and not server.sent(JOBS)
    job = yaml.safe_load(out)
    assert job["kind"] == "Job" and job["metadata"]["name"] == "r1"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["YANMO_INPUTS"] == "run:a-1" and env["YANMO_CHANNEL"] == "nightly"


WRONG = {
    "no stage": (("trian",), 64, "STAGE trian: expected one of curate"),
    "resolve is no stage of its own": (("resolve",), 64, "expected one of"),
    "an unknown option": (("balance", "--set=bye=author"), 64, "unknown option 'bye'"),
    "no option at all": (("balance", "--set=诗=5"), 64, "unknown option '诗'; see --help all"),
    "an option of another stage": (("balance", "--set=train.steps=1"), 64, "expected an option of balance"),
    "a value that it cannot have": (("train", "--set=steps=-5"), 64, "--steps -5"),
    "inputs": (("balance", "--inputs=newest"), 64, "expected latest or run:ID"),
    "a name too long": (("balance", "--name=" + "x" * 64), 64, "at most 63"),
    "a name in Chinese": (("balance", "--name=夜"), 64, "expected at most 63 of a to z"),
    "a channel that cannot be one": (("balance", "--channel=" + "c" * 300), 64, "expected up to 100 letters"),
    "sources, which its CronJob names": (("curate",), 78, "there is no CronJob stage-curate"),
    "no CronJob": (("evaluate",), 78, "there is no CronJob stage-evaluate in namespace kubeflow: apply"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_rerun_is_said_before_a_job_is_made(asked: Any, case: str) -> None:
    words, code, said = WRONG[case]
    got, _, err, server = asked(answers("rerun-kubernetes"), *words)
    assert got == code and said in err and not server.sent(JOBS)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, 78, "no right to that; ask for the role of yanmo-operator"),
        (409, 64, "it is there already"),
        (500, 75, "run the same command again"),
    ],
)
def test_a_job_that_kubernetes_refuses(asked: Any, status: int, code: int, said: str) -> None:
    message = {"kind": "Status", "message": "jobs.batch is forbidden: exceeded"}
    recorded = [a for a in answers("rerun-kubernetes") if not a["request"].startswith("POST")]
    got, _, err, _ = asked([*recorded, one(JOBS, status, message)], "balance", "--name=operators-balance")
    assert got == code and said in err


@pytest.mark.parametrize("stage", STAGES)
def test_every_cron_job_of_the_manifests_makes_a_job(stage: str) -> None:
    root = Path(__file__).resolve().parents[3] / "manifests"
    texts = [
        (root / n).read_text(encoding="utf-8")
        for n in ("base/stages.yaml", "components/launch/cron-jobs.yaml")
    ]
    found = {d["metadata"]["name"]: d for text in texts for d in yaml.safe_load_all(text) if d}
    job = job_of(found[f"stage-{stage}"], "r", {"YANMO_OPTIONS": f"{stage}.log_level=debug"})
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "YANMO_OPTIONS", "value": f"{stage}.log_level=debug"} in container["env"]
    assert (
        "--options=$(YANMO_OPTIONS)" in container["args"] and "--inputs=$(YANMO_INPUTS)" in container["args"]
    )
    assert json.dumps(job)
