"""Rules and metrics as queries name them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from yanmo.stage.declaration import Metric
from yanmo.stage.shared_metrics import declared
from yanmo_pipelines.stages import LANGUAGE_MODEL

FOLDER = Path(__file__).parents[2] / "manifests/components/prometheus"
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
_EACH = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in _EACH if "alert" in rule}
RECORDS = {rule["record"]: rule["expr"] for rule in _EACH if "record" in rule}
FAMILIES: dict[str, Metric] = {
    family: metric for stage in LANGUAGE_MODEL for family, metric in declared(stage.name, stage.metrics)
}


def families_in(expression: str) -> set[str]:
    """Yanmo's metrics that an expression reads, by itself and by recording rules."""
    found = set(re.findall(r"(?<![\w:])yanmo_[a-z_]+(?=[\s{\[)]|$)", expression))
    for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
        matching = {family for family in FAMILIES if re.fullmatch(pattern, family)}
        assert matching, pattern
        found |= matching
    for record in re.findall(r"yanmo:[\w:]+", expression):
        found |= families_in(RECORDS[record])
    return found
