"""The version of a pipeline in KFP that a run names: uploaded when it is not there, and never another one.

A version is named by what is in it (commit, column of the table of resources, digits of the YAML's sha256),
so that the same pipeline is found again, from whatever machine. A version of that name with other contents
would be a lie: what KFP holds is compared, value by value, and refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.version import version
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.refusals import Exists
from yanmo_pipelines.compiled_yaml import documents_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Uploaded:
    """A pipeline's version as KFP knows it."""

    pipeline_id: str
    version_id: str
    name: str

    @property
    def reference(self) -> dict[str, str]:
        """As a run names it."""
        return {"pipeline_id": self.pipeline_id, "pipeline_version_id": self.version_id}


def upload(api: KfpApi, name: str, called: str, text: str, about: str = "") -> Uploaded:
    """The version `called` of pipeline `name`, whose YAML is `text`; uploaded unless KFP has it.

    Args:
        about: the pipeline's description, should it be new.

    Raises:
        DataError: KFP has other contents under that version's name.
    """
    pipeline = _pipeline(api, name, about)
    found = api.version(pipeline["pipeline_id"], called)
    if found is None:
        try:
            found = api.upload_version(pipeline["pipeline_id"], called, version(), text)
            log.info("uploaded pipeline %s, version %s", name, called)
        except Exists:  # another submit was faster
            found = api.version(pipeline["pipeline_id"], called)
            if found is None:
                raise
    _check_same(found, text, f"{api.address}: pipeline {name}, version {called}")
    return Uploaded(pipeline["pipeline_id"], found["pipeline_version_id"], called)


def _pipeline(api: KfpApi, name: str, about: str) -> dict[str, Any]:
    found = api.pipeline(name)
    if found is not None:
        return found
    try:
        return api.create_pipeline(name, about)
    except Exists:
        found = api.pipeline(name)
        if found is None:
            raise
        return found


def _check_same(found: dict[str, Any], text: str, where: str) -> None:
    documents = documents_of(text)
    held = found.get("pipeline_spec") or {}
    spec, platform = held.get("pipeline_spec", held), held.get("platform_spec")
    given = documents[1] if len(documents) > 1 else None
    if spec != documents[0] or (platform or None) != given:
        raise DataError(
            f"{where}: what KFP holds under this name is another pipeline than the one here; delete that "
            "version in KFP's UI"
        )
