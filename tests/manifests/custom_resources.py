"""Validates custom resources strictly: an API server drops what a CRD does not know without a word."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parent / "schemas"
BUILT_IN = ("apps", "autoscaling", "batch", "policy", "")
"""API groups of Kubernetes itself, with those that end in .k8s.io and belong to it."""
BUILT_IN_SUFFIXES = ("rbac.authorization.k8s.io", "networking.k8s.io", "scheduling.k8s.io", "storage.k8s.io")


def is_custom(each: dict[str, Any]) -> bool:
    """Whether an object is of a kind that a CRD defines."""
    group = each["apiVersion"].rpartition("/")[0]
    return group not in (*BUILT_IN, *BUILT_IN_SUFFIXES)


def faults_of(each: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a custom resource, by its strict schema.

    Raises:
        FileNotFoundError: there is none for its kind.
    """
    group, _, version = each["apiVersion"].rpartition("/")
    path = SCHEMAS / f"{each['kind'].lower()}-{group}-{version}.openapi.json"
    yield from faults_by(json.loads(path.read_text(encoding="utf-8")), each)


def faults_by(schema: dict[str, Any], each: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a custom resource, by a schema of its kind."""
    schema = strict(schema)
    schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    schema["properties"]["metadata"] = {"type": "object"}
    for error in Draft202012Validator(schema).iter_errors(each):
        yield f"{'/'.join(map(str, error.absolute_path))}: {error.message}"


TRAINERS = ("2.0", "2.1", "2.2", "2.3")
"""Versions of Kubeflow Trainer that are promised."""


@functools.cache
def of_trainer(version: str) -> dict[str, Any]:
    """Kind -> schema, of one version of Kubeflow Trainer."""
    found: dict[str, Any] = json.loads(gzip.decompress((SCHEMAS / f"trainer-{version}.json.gz").read_bytes()))
    return found


def strict(schema: Any) -> Any:
    """The schema as JSON Schema that refuses what it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if found.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
        found.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if found.get("nullable") and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    if isinstance(found.get("properties"), dict) and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found
