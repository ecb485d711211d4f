"""What KFP wants to find when a stage's container ends; needs nothing of KFP.

The body of each artifact is a reference (or an HTML page): KFP copies a few hundred bytes, never data.
The executor output file is written for all stages, because local runs drop an artifact that it does
not list, and because it alone can carry metadata and metrics of a container component.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.common.given_file import json_value
from yanmo.options.values import brief

_MOUNTS = {"minio://": "/minio/", "s3://": "/s3/", "gs://": "/gcs/"}


@dataclass(frozen=True)
class ExecutorOutputs:
    """The outputs that KFP's executor input asks for."""

    file: str
    artifacts: dict[str, dict[str, Any]]
    parameters: dict[str, str]

    @classmethod
    def parse(cls, executor_input: str) -> ExecutorOutputs | None:
        """From the value of --executor-input; None when it is empty."""
        if not executor_input:
            return None
        try:
            outputs = json_value(executor_input)["outputs"]
            artifacts = {
                name: listed["artifacts"][0] for name, listed in outputs.get("artifacts", {}).items()
            }
            parameters = {n: p["outputFile"] for n, p in outputs.get("parameters", {}).items()}
            return cls(outputs["outputFile"], artifacts, parameters)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(
                "--executor-input: expected KFP's executor input, JSON with `outputs` that a pipeline gives "
                f"as {{{{$}}}}; found {brief(executor_input)}"
            ) from error

    @property
    def bucket(self) -> str:
        """Where KFP keeps artifacts: `minio://mlpipeline`; empty where that is a folder or there are none."""
        for artifact in self.artifacts.values():
            scheme, found, rest = artifact["uri"].partition("://")
            if found and scheme in ("s3", "minio"):
                return f"{scheme}://{rest.partition('/')[0]}"
        return ""

    def write(
        self,
        bodies: Mapping[str, str | Path],
        metadata: Mapping[str, Mapping[str, Any]],
        parameters: Mapping[str, str],
    ) -> None:
        """Write every artifact, parameter and the executor output file.

        Args:
            bodies: artifact name -> text, or a local file to copy; `none` without one. That of metrics is
                what `metadata` says of them, as JSON, so that a download of metrics is the metrics.
            metadata: artifact name -> scalars shown by the UI.
            parameters: parameter name -> text.
        """
        listed = {}
        for name, artifact in self.artifacts.items():
            path = local_path(artifact["uri"])
            path.parent.mkdir(parents=True, exist_ok=True)
            scalars = metadata.get(name, {})
            is_metrics = artifact.get("type", {}).get("schemaTitle") == "system.Metrics"
            body = bodies.get(name, json.dumps(scalars, indent=1) + "\n" if is_metrics else "none\n")
            if isinstance(body, Path):
                shutil.copyfile(body, path)
            else:
                path.write_text(body, encoding="utf-8")
            values = {**artifact.get("metadata", {}), **scalars}
            listed[name] = {"artifacts": [{**artifact, "metadata": values}]}
        for name, file in self.parameters.items():
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(parameters[name], encoding="utf-8")
        Path(self.file).parent.mkdir(parents=True, exist_ok=True)
        Path(self.file).write_text(json.dumps({"artifacts": listed}), encoding="utf-8")


def local_path(uri: str) -> Path:
    """Return where KFP's launcher (or its local orchestrator) expects the bytes of an artifact."""
    for scheme, mount in _MOUNTS.items():
        if uri.startswith(scheme):
            return Path(mount + uri.removeprefix(scheme))
    return Path(uri)
