"""What a task of a run takes from the run's first task."""

from __future__ import annotations

from pathlib import Path

import pytest

from yanmo.common.errors import DataError
from yanmo.stage.pinned import is_pinned, load_shared, with_pinned
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.runs.run_record import pin_for_run

MODEL = Reference(
    stage="train",
    key="a" * 64,
    manifest_uri=f"cas/train/{'a' * 64}/MANIFEST.json",
    manifest_sha256="b" * 64,
    content_digest="c" * 64,
)


@pytest.mark.parametrize("channel", ["dev", "pinned"])
def test_values_of_the_first_task_take_the_place_of_words_that_name_them(
    tmp_path: Path, channel: str
) -> None:
    store = FileStore(tmp_path)
    words = [
        f"--store={tmp_path}",
        "--run-id=night-1",
        "--documents={}",
        "--options=pinned",
        "--training=pinned",
        "--model=pinned:start",
        "--evaluation-set=pinned:none_yet",
        f"--channel={channel}",
    ]
    assert is_pinned(words) and not is_pinned(words[:3])
    options = load_shared(words, "yanmo train")
    with pytest.raises(DataError, match=f"run night-1 has no record in channel '{channel}'.*clone the run"):
        with_pinned(words, store, options)
    pin_for_run(store, channel, "night-1", "train.steps=3 train.layers=2", {"start": MODEL, "none_yet": None})
    assert with_pinned(words, store, options) == [
        *words[:3],
        "--options=train.steps=3 train.layers=2",
        "--training=train.steps=3 train.layers=2",
        f"--model={MODEL.to_json()}",
        "--evaluation-set=none",
        f"--channel={channel}",
    ]
