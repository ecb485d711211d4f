"""What the tests of this run left out and why, said at its end with the command that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_APT = {
    "needs an S3 server": "radosgw ceph-mon ceph-osd ceph-common openssl",
    "needs a C compiler": "gcc libc6-dev binutils",
    "needs a C++ compiler": "g++",
    "needs Chromium": "chromium",
    "needs unshare": "util-linux hostname",
    "needs script": "bsdutils",
    "needs promtool": "prometheus",
    "needs prometheus": "prometheus",
    "needs amtool": "prometheus-alertmanager",
    "needs pushgateway": "prometheus-pushgateway",
}
"""Beginning of a reason -> Debian packages that end it."""
_PIP = {
    "uv is not installed": "uv",
    "kubectl is not installed": "-e '.[manifests]'",
    "kubernetes-validate is not installed": "-e '.[manifests]'",
    "could not import 'duckdb'": "duckdb",
    "could not import 'transformers'": "transformers",
    "could not import 'huggingface_hub'": "transformers",
    "datasets is not one of": "datasets",
    "tensorboard is not installed": "-e '.[sinks]'",
    "mlflow is not installed": "-e '.[sinks]'",
    "wandb is not installed": "-e '.[sinks]'",
    "ray is not installed": "-e '.[ray]'",
    "mkdocs-material is not installed": "-e '.[docs]'",
    "nbclient is not installed": "-e '.[examples]'",
}
"""Beginning of a reason -> Python packages that end it."""
_MACHINE = ("needs a CUDA device", "needs a cluster", "needs root", "needs Linux", "needs a control group")
"""Beginnings of reasons that no package ends."""
_PROGRAMS = ("needs llama.cpp's server", "needs torch's CUDA build")
"""Beginnings of reasons that sources of somebody's end, which the reason names."""


def is_known(reason: str) -> bool:
    """Whether it is said here what ends a reason, or that nothing to install does."""
    return reason.startswith((*_APT, *_PIP, *_MACHINE, *_PROGRAMS))


def summary(reasons: Iterable[str]) -> Iterator[str]:
    """Lines that say how many tests were skipped for which reason, and what to install."""
    counts: dict[str, int] = {}
    for reason in reasons:
        reason = reason.removeprefix("Skipped: ")
        counts[reason] = counts.get(reason, 0) + 1
    for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"skipped {count}: {reason}"
    commands = [
        f"{command} {' '.join(packages)}"
        for command, table in (("apt-get install -y", _APT), (".venv/bin/python -m pip install", _PIP))
        if (packages := dict.fromkeys(table[s] for s in table if any(r.startswith(s) for r in counts)))
    ]
    if commands:
        yield f"to run more of them: {' && '.join(commands)}"
