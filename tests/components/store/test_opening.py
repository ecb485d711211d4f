"""Where the store of a pod is whose command names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from yanmo.common.errors import UsageError
from yanmo.store.opening import default_store

BUCKET = "minio://mlpipeline"


def test_the_secret_wins_over_the_variable_and_that_over_kfps_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path))
    monkeypatch.delenv("YANMO_STORE", raising=False)
    assert default_store(BUCKET) == "minio://mlpipeline/yanmo"
    with pytest.raises(UsageError, match="--store is empty: expected"):
        default_store()
    monkeypatch.setenv("YANMO_STORE", "s3://team/models")
    assert default_store(BUCKET) == "s3://team/models"
    (tmp_path / "store").write_text("s3://team/of-the-secret\n", encoding="utf-8")
    assert default_store(BUCKET) == default_store() == "s3://team/of-the-secret"
