"""The pipeline that nights run in a cluster, and its variants: a pod whose clock is off, a disk without room.

What differs is in the compiled YAML alone: the same images, the same commands. libfaketime reaches the pod by
a ConfigMap, so that no image is built for it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from yanmo_pipelines.compile import compile_pipeline, load_pipeline
from yanmo_pipelines.resources import COLUMNS, SCRATCH, SMALL

SECRET = "yanmo-nights"
"""Names the store of the nights: endpoint and keys."""
CLOCK, _FOLDER = "yanmo-nights-clock", "/clock"
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SLEEP = Path(__file__).parent / "clock/sitecustomize.py"
_CODE = "/opt/yanmo-code"
"""PYTHONPATH of the images."""
CPU = {"curate": "500m", "balance": "500m", "tokenize": "500m"}
TRAINING_CPU, TRAINING_MEMORY = "700m", "2Gi"
SHORT_WAITS = {"YANMO_WAIT_SECONDS": "120", "YANMO_S3_RETRY_SECONDS": "60"}
"""A pod waits six hours for what it lacks in a night of eleven; in a night of four minutes, two minutes."""
LITTLE_DISK = "1Mi"


def compiled(path: Path, image_prefix: str) -> Path:
    """The language-model pipeline, with rows for a small node and the nights' own Secret."""
    column = {stage: replace(row, cpu=CPU.get(stage, row.cpu)) for stage, row in COLUMNS[SMALL].items()}
    compile_pipeline(load_pipeline("language_model", column, SECRET), path, image_prefix)
    return _changed(path, path, lambda spec, platform: None)


def with_clock(base: Path, stage: str, offset: int) -> Path:
    """Of the pods of one stage."""

    def change(spec: dict[str, Any], platform: dict[str, Any]) -> None:
        environment = {
            "LD_PRELOAD": f"{_FOLDER}/{LIBRARY.name}",
            "FAKETIME": f"{offset:+d}s",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": f"{_FOLDER}:{_CODE}",
        }
        spec[f"exec-{stage}"]["container"]["env"] += [{"name": n, "value": v} for n, v in environment.items()]
        name = {"runtimeValue": {"constant": CLOCK}}
        platform[f"exec-{stage}"].setdefault("configMapAsVolume", []).append(
            {"configMapName": CLOCK, "configMapNameParameter": name, "mountPath": _FOLDER}
        )

    return _changed(base, base.with_name(f"clock-{stage}{offset:+d}.yaml"), change)


def with_little_disk(base: Path, stage: str) -> Path:
    """Scratch of the stage's pods is in memory and has a megabyte: a real ENOSPC."""

    def change(spec: dict[str, Any], platform: dict[str, Any]) -> None:
        mounts = platform[f"exec-{stage}"]["emptyDirMounts"]
        scratch = next(mount for mount in mounts if mount["mountPath"] == SCRATCH)
        scratch |= {"medium": "Memory", "sizeLimit": LITTLE_DISK}

    return _changed(base, base.with_name(f"disk-{stage}.yaml"), change)


def clock_config_map() -> str:
    """The ConfigMap that holds libfaketime and what mends its sleep, JSON."""
    files = (LIBRARY, SLEEP)
    data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in files}
    meta = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CLOCK}}
    return json.dumps({**meta, "binaryData": data})


def store_secret(endpoint: str, region: str, access_key: str, secret_key: str) -> str:
    """The Secret that the nights' pods mount, JSON."""
    data = {
        "endpoint_url": endpoint,
        "region": region,
        "access_key_id": access_key,
        "secret_access_key": secret_key,
    }
    return json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": data}
    )


def _changed(source: Path, target: Path, change: Any) -> Path:
    spec, platform = yaml.safe_load_all(source.read_text(encoding="utf-8"))
    executors = spec["deploymentSpec"]["executors"]
    for executor in executors.values():
        for variable in executor["container"]["env"]:
            variable["value"] = SHORT_WAITS.get(variable["name"], variable["value"])
        known = {variable["name"] for variable in executor["container"]["env"]}
        missing = {name: value for name, value in SHORT_WAITS.items() if name not in known}
        executor["container"]["env"] += [{"name": n, "value": v} for n, v in missing.items()]
    change(executors, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"])
    text = yaml.safe_dump_all([spec, platform], sort_keys=False, allow_unicode=False)
    target.write_text(text, encoding="utf-8")
    return target
