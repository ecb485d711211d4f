"""Where KFP and Kubernetes answer, and who asks: the options that submit, rerun, status and doctor share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.common.given_file import read_given
from yanmo.options.fields import opt
from yanmo.options.shared import LogOptions

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The namespace of the pod that this process runs in."""
KFP_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
"""Where Kubeflow mounts a token for KFP (audience pipelines.kubeflow.org) into a pod that asks for it."""
IN_CLUSTER = "http://ml-pipeline.kubeflow:8888"
KFP_NAMESPACE = "kubeflow"
_MOST_TOKEN_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(LogOptions, group="cluster"):
    """Where KFP and Kubernetes answer."""

    host: str = opt(
        "",
        "address of KFP's API or of its UI, http(s)://host[:port]; default in a pod: " + IN_CLUSTER,
        often=True,
        variable="KFP_ENDPOINT",
        metavar="URL",
    )
    ui: str = opt(
        "",
        "address of KFP's UI, for the links that are printed; default: --host, where that is the UI",
        variable="KFP_UI_ENDPOINT",
        metavar="URL",
    )
    namespace: str = opt(
        "",
        "Kubernetes namespace of the runs; default: the pod's own, else that of kubeconfig's context, else "
        + KFP_NAMESPACE,
        often=True,
        variable="YANMO_NAMESPACE",
    )
    token_file: str = opt(
        "",
        "file with the token for KFP's API where it asks for one (several users); read again at each "
        f"request; default: {KFP_TOKEN}, where it is mounted",
        variable="KF_PIPELINES_SA_TOKEN_PATH",
        metavar="FILE",
    )
    look_seconds: float = opt(
        3.0, "seconds between two looks at what goes on, and between two tries to reach a server", most=600
    )
    context: str = opt("", "context of kubeconfig; default: its current one", metavar="NAME")


def api_address(options: PlaceOptions) -> str:
    """Return where KFP's API is.

    Raises:
        UsageError: nothing says it, or it is no address.
    """
    inside = "KUBERNETES_SERVICE_HOST" in os.environ
    host = options.host or (IN_CLUSTER if inside else "")
    if not host:
        raise UsageError(
            "--host is missing: expected the address of KFP's API (or KFP_ENDPOINT), such as "
            "http://localhost:8888 beside `kubectl -n kubeflow port-forward svc/ml-pipeline 8888`"
        )
    return _address("--host", host)


def _address(name: str, given: str) -> str:
    address = given if "://" in given else f"http://{given}"
    if not address.startswith(("http://", "https://")) or not address.partition("://")[2].strip("/"):
        raise UsageError(f"{name} {given}: expected http(s)://host[:port]")
    return address.split("#")[0].rstrip("/")


def run_link(options: PlaceOptions, run_id: str, is_ui: bool) -> str:
    """The page of a run in KFP's UI.

    Args:
        is_ui: whether --host is the UI, and not the API's server alone, which answers 404 there.
    """
    if not options.ui and not is_ui:
        return f"none: {api_address(options)} is KFP's API alone; KFP_UI_ENDPOINT=URL names its UI"
    address = _address("--ui", options.ui) if options.ui else api_address(options)
    return f"{address}/#/runs/details/{run_id}"


def token_of(options: PlaceOptions) -> str:
    """The token for KFP's API as it is now; "" where there is none.

    Raises:
        UsageError: the file that was named is none.
        EnvironmentFault: it is empty.
    """
    path = Path(options.token_file) if options.token_file else KFP_TOKEN
    try:
        text = read_given(
            path, "a token", shown=f"--token-file {path}", most_bytes=_MOST_TOKEN_BYTES, wrong=UsageError
        )
    except FileNotFoundError:
        if not options.token_file:
            return ""
        raise UsageError(f"--token-file {path}: there is no such file; look at the path") from None
    token = text.decode("utf-8", "replace").strip()
    if not token or not token.isascii() or any(c.isspace() for c in token):
        raise EnvironmentFault(f"--token-file {path}: expected a token, one word; found something else")
    return token


def own_namespace() -> str:
    """The namespace of the pod that this is, else ""."""
    try:
        return OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
