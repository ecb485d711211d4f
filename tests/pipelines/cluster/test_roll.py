"""`yanmo roll`: a Deployment follows the champion's pointer, forward and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from servers.replayed import kubeconfig, one, serving

from yanmo.common.errors import ExitCode
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.pointers import move_pointer
from yanmo_pipelines.cluster import roll

PATH = "/apis/apps/v1/namespaces/kubeflow/deployments/yanmo-serve"
CHANGED = "PATCH " + PATH
FIRST, SECOND = "a" * 64, "b" * 64


def champion(folder: Path, key: str) -> str:
    """A store whose channel `main` has this champion; its address."""
    reference = Reference(
        stage="train",
        key=key,
        manifest_uri=f"cas/train/{key}/MANIFEST.json",
        manifest_sha256="1" * 64,
        content_digest="2" * 64,
    )
    move_pointer(FileStore(folder / "store"), "main", "champion", reference)
    return str(folder / "store")


def deployment(model: str) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": {"annotations": {"yanmo.dev/model": model}}}}}


@pytest.fixture
def rolled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Exit code, what was said and what was changed, where the Deployment serves `model`."""

    def ask(store: str, *answers: Any) -> Any:
        with serving([one(f"GET {PATH}", *answers), one(CHANGED, 200, {})]) as (address, server):
            monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
            code = roll.main(["yanmo-serve", "--store", store, "--channel=main"])
        said = capfd.readouterr()
        return code, said.out + said.err, server.sent(CHANGED)

    return ask


def test_it_changes_the_annotation_when_the_champion_has_moved(rolled: Any, tmp_path: Path) -> None:
    for before, now in ((FIRST, SECOND), (SECOND, FIRST)):  # a promotion, and its rollback
        code, said, changed = rolled(champion(tmp_path, now), 200, deployment(f"train/{before}"))
        assert code == 0 and changed == [deployment(f"train/{now}")] and "changed: " in said


def test_it_changes_nothing_where_nothing_moved_or_nobody_is_champion(rolled: Any, tmp_path: Path) -> None:
    code, said, changed = rolled(champion(tmp_path, FIRST), 200, deployment(f"train/{FIRST}"))
    assert code == 0 and not changed and "unchanged" in said
    code, said, changed = rolled(str(tmp_path / "empty"), 200, deployment("champion"))
    assert code == 0 and not changed and "has no champion yet" in said


def test_without_the_deployment_it_says_what_to_apply(rolled: Any, tmp_path: Path) -> None:
    answer = {"kind": "Status", "message": json.dumps("none"), "reason": "NotFound", "code": 404}
    code, said, changed = rolled(champion(tmp_path, FIRST), 404, answer)
    assert code == ExitCode.ENVIRONMENT and not changed and "serve-champion" in said
