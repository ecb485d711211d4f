"""What KFP finds when a stage ends, in a pod and on a laptop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from yanmo.common.errors import UsageError
from yanmo.stage.kfp_outputs import ExecutorOutputs, local_path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("minio://mlpipeline/v2/artifacts/x", "/minio/mlpipeline/v2/artifacts/x"),
        ("s3://bucket/prefix/x", "/s3/bucket/prefix/x"),
        ("gs://bucket/x", "/gcs/bucket/x"),
        ("/runs/kfp/task/x", "/runs/kfp/task/x"),
    ],
)
def test_an_artifact_is_written_where_the_launcher_looks(uri: str, path: str) -> None:
    assert local_path(uri) == Path(path)


@pytest.mark.parametrize(
    "text", ["x", "{}", "[]", "null", '{"outputs": {}}', '{"outputs": {"artifacts": {"a": {}}}}']
)
def test_what_is_no_executor_input_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--executor-input: expected KFP's executor input"):
        ExecutorOutputs.parse(text)


def test_every_artifact_is_listed_even_if_the_stage_made_none(tmp_path: Path) -> None:
    artifact = {"name": "model", "uri": str(tmp_path / "deep/model"), "metadata": {"kept": 1}}
    file = tmp_path / "other/executor_output.json"
    outputs = {"artifacts": {"model": {"artifacts": [artifact]}}, "outputFile": str(file)}
    parsed = ExecutorOutputs.parse(json.dumps({"outputs": outputs}))
    assert parsed is not None
    parsed.write({}, {"model": {"bits": 7.5}}, {})
    assert (tmp_path / "deep/model").read_text() == "none\n"
    listed = json.loads(file.read_text())["artifacts"]["model"]["artifacts"][0]
    assert listed == {**artifact, "metadata": {"kept": 1, "bits": 7.5}}


@pytest.mark.parametrize(
    ("uri", "bucket"),
    [
        ("minio://mlpipeline/v2/artifacts/a/b", "minio://mlpipeline"),
        ("s3://team/kfp/a", "s3://team"),
        ("/tmp/local/a", ""),
        ("gs://other/a", ""),
    ],
)
def test_the_bucket_is_the_one_where_kfp_keeps_artifacts(tmp_path: Path, uri: str, bucket: str) -> None:
    artifacts = {"model": {"artifacts": [{"uri": uri}]}}
    outputs = {"artifacts": artifacts, "outputFile": str(tmp_path / "out.json")}
    parsed = ExecutorOutputs.parse(json.dumps({"outputs": outputs}))
    assert parsed is not None and parsed.bucket == bucket
