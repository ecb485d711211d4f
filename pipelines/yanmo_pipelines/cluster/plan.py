"""What is going to be submitted, checked as far as it can be without asking the cluster."""

from __future__ import annotations

import functools
import logging
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.common.answers import only_answers
from yanmo.common.errors import UsageError
from yanmo.options.fields import flag, names_of
from yanmo.stage.declaration import Stage
from yanmo.stage.options_line import options_line
from yanmo_pipelines.compile import (
    PIPELINES,
    compile_pipeline,
    find_pipeline,
    load_pipeline,
    stages_of,
    version_name,
)
from yanmo_pipelines.parameters import (
    check_stage_options,
    documents_of,
    form_of,
    pipeline_parameters,
    read_settings,
)
from yanmo_pipelines.pod_options import PodOptions

log = logging.getLogger(__name__)

_AS_COMMITTED = PodOptions()


@dataclass(frozen=True)
class Plan:
    """A pipeline and the values of its form."""

    text: str
    """Its YAML."""
    version: str
    """Name of this version of it."""
    values: Mapping[str, Any]
    """Of the form's fields that are not left at their default."""

    @functools.cached_property
    def documents(self) -> list[dict[str, Any]]:
        """Of the YAML: the pipeline, and what is Kubernetes' own of it."""
        return documents_of(self.text)

    @property
    def name(self) -> str:
        return str(self.documents[0]["pipelineInfo"]["name"])

    @property
    def about(self) -> str:
        """The pipeline's description."""
        return str(self.documents[0]["pipelineInfo"].get("description", ""))

    @property
    def channel(self) -> str:
        form = self.documents[0]["root"].get("inputDefinitions", {}).get("parameters", {})
        return str(self.values.get("channel") or form.get("channel", {}).get("defaultValue", ""))


def planned(
    pipeline: str,
    settings: Iterable[str],
    own: Mapping[str, str],
    pods: PodOptions = _AS_COMMITTED,
) -> Plan:
    """The pipeline with the form's values, refused by the same words as `yanmo run` does.

    Args:
        pipeline: a pipeline's name, or the path of a compiled YAML.
        settings: NAME=VALUE, of the form or of a stage's option.
        own: store and channel; empty ones are left at the form's default.
        pods: what they may use, their images, their Secret.

    Raises:
        UsageError: what is wrong with it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, stages = _compiled(pipeline, pods, Path(folder))
        form = form_of(path)
        given = pipeline_parameters(path, read_settings(settings))
        values = given | {name: value for name, value in own.items() if value and name in form}
        if "options" in values:
            values["options"] = _carried(values["options"])
        defaults = {name: field.get("defaultValue", "") for name, field in form.items()}
        checked = {**defaults, **values}
        if "://" in str(checked.get("options", "")):
            log.info("options: %s is read and checked by the run's first task", checked["options"])
            checked["options"] = ""
        check_stage_options(stages, checked)
        _warn_of_paths(str(values.get("data_sources", "")))
        name = version_name(path, pods.resources if pipeline in PIPELINES else "given")
        return Plan(path.read_text(encoding="utf-8"), name, values)


def _compiled(pipeline: str, pods: PodOptions, folder: Path) -> tuple[Path, tuple[Stage, ...]]:
    """The compiled YAML and, where its name is known, the pipeline's stages."""
    others = [
        f"{flag(name)} {getattr(pods, name)}"
        for name in names_of(PodOptions)
        if getattr(pods, name) != getattr(_AS_COMMITTED, name)
    ]
    if not others:
        return find_pipeline(pipeline)
    if pipeline not in PIPELINES:
        raise UsageError(
            f"{others[0]}: needs a pipeline's name, as {pipeline} is compiled already; give it to "
            "`yanmo compile`"
        )
    path = folder / f"{pipeline}.yaml"
    with only_answers():
        built = load_pipeline(pipeline, pods.resources, pods.store_secret)
        compile_pipeline(built, path, pods.image_prefix, pods.ray)
    return path, stages_of(pipeline)


def _carried(line: str) -> str:
    """The line of options as pods can read it: a file of this machine is written out."""
    return line if "://" in line else options_line(line)


def _warn_of_paths(sources: str) -> None:
    for place in sources.replace(",", " ").split():
        name = place.partition(";")[0]
        if "://" not in name and name != "bundled" and Path(name).exists():
            log.warning(
                "data_sources: %s is on this machine; the run's pods look for it in their own image. Give "
                "s3://bucket/... , or bundled",
                name,
            )
