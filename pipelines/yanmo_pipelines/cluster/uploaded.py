"""The version of a pipeline in KFP that a run names: uploaded when it is not there.

A version is named by what is in it (commit, column of the table of resources, digits of the YAML's sha256),
so that the same pipeline is found again, from whatever machine.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from yanmo.options.help import version
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.refusals import Exists

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
