"""A store with a few nights in it, told as a pipeline's stages tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from yanmo.nights.night import DONE, Words
from yanmo.nights.observer import TIMEZONE
from yanmo.nights.record import Run, StageEnd, Verdict
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store

VERDICT = Verdict(
    state="promoted",
    sentence=Words("Promoted: 1.00 % fewer bits.", "晋升：少用 1.00 % 比特。"),
    bits=8.102,
    gain=0.01,
    verse="同遊南北登城\n鳥居多應在",
    genre="诗",
)


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(TIMEZONE, raising=False)
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path / "no-secret"))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


def run_of(
    store: ObjectStore,
    run_id: str = "run-1",
    channel: str = "nightly",
    last: str = "promote",
) -> Run:
    return Run(store=store, channel=channel, run_id=run_id, timezone="Asia/Shanghai", last=last)


def end_of(task: str = "train", state: str = DONE, **more: object) -> StageEnd:
    values = {"stage": task, "seconds": 60.0, **more}
    return StageEnd(task=task, state=state, **values)  # type: ignore[arg-type]


def failure(why: str = "out of memory") -> StageEnd:
    words = Words(f"train failed with exit code 75: {why}", f"train 失败，退出码 75：{why}")
    return end_of(state="failed", sentence=words, lines=("train failed", f"why: {why}"))


def text_of(store: ObjectStore, name: str) -> str:
    return store.read(name)[0].decode()
