"""Kubernetes' API as this room asks it: read, create and delete by path, each answer as plain JSON.

The official client knows how to find a cluster and who we are (kubeconfig with its certificates, tokens and
programs, or a pod's service account); its typed models are left aside, as they refuse what a newer server
adds. Importing it costs half a second, so it is imported when a cluster is asked for; urllib3 as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from yanmo.common.errors import EnvironmentFault, in_words
from yanmo_pipelines.cluster.place import KFP_NAMESPACE, PlaceOptions, own_namespace
from yanmo_pipelines.cluster.refusals import KUBERNETES, as_object, refusal, unreachable

_SECONDS = (5.0, 60.0)
_PAGE = 500
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class NoCluster(EnvironmentFault):
    """Nothing says where a cluster is."""


class KubernetesApi:
    """One cluster, asked as one user."""

    def __init__(self, client: Any, namespace: str) -> None:
        """
        Args:
            client: the official client's ApiClient.
            namespace: where jobs, pods and Secrets are.
        """
        self._client, self.namespace = client, namespace
        self.address = str(client.configuration.host)

    @classmethod
    def of(cls, options: PlaceOptions) -> KubernetesApi:
        """The cluster that kubeconfig or this pod names.

        Raises:
            NoCluster: neither does.
        """
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
        from yaml import YAMLError

        configuration, namespace = client.Configuration(), ""
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
                config.load_incluster_config(client_configuration=configuration)
                namespace = own_namespace()
            else:
                files = os.environ.get("KUBECONFIG") or None  # the client read it when it was imported
                config.load_kube_config(
                    files, context=options.context or None, client_configuration=configuration
                )
                named = config.list_kube_config_contexts(files)
                chosen = next((c for c in named[0] if c["name"] == options.context), named[1])
                namespace = chosen["context"].get("namespace", "")
        except (ConfigException, OSError, TypeError, KeyError, ValueError, YAMLError) as error:
            raise NoCluster(
                f"no Kubernetes cluster is known here: {in_words(error)}; set KUBECONFIG, or give --context"
            ) from error
        configuration.retries = False
        return cls(client.ApiClient(configuration), options.namespace or namespace or KFP_NAMESPACE)

    def get(self, path: str, asked: str, **query: Any) -> dict[str, Any]:
        """The object at `path`, such as `/version`; errors as in refusals.py."""
        return self._object(self._ask("GET", path, asked, query), asked)

    def listed(self, path: str, asked: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        more = ""
        while True:
            found = self.get(path, asked, limit=_PAGE, **query, **({"continue": more} if more else {}))
            yield from found.get("items") or []
            more = (found.get("metadata") or {}).get("continue", "")
            if not more:
                return

    def in_namespace(self, kind: str, name: str = "", group: str = "api/v1") -> str:
        """The path of a thing of this namespace: `in_namespace("pods")`."""
        return f"/{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def create(self, path: str, asked: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._object(self._ask("POST", path, asked, body=body), asked)

    def delete(self, path: str, asked: str) -> None:
        """Delete an object and what it owns."""
        self._ask("DELETE", path, asked, {"propagationPolicy": "Background"})

    def merge(self, path: str, asked: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change these fields of an object."""
        return self._object(self._ask("PATCH", path, asked, None, changes, _MERGE), asked)

    def log(self, pod: str, container: str = "", since: str = "") -> bytes:
        """Return what a container has said so far."""
        query = {"container": container, "sinceTime": since, "timestamps": "true"}
        return self._ask("GET", self.in_namespace("pods", f"{pod}/log"), f"read the log of pod {pod}", query)

    def may(self, verb: str, resource: str, *, group: str = "", namespace: str | None = None) -> bool:
        """Return whether we may do it; a name after a slash is a subresource: `pods/log`."""
        name, _, sub = resource.partition("/")
        where = self.namespace if namespace is None else namespace
        wanted = {"verb": verb, "resource": name, "subresource": sub, "group": group, "namespace": where}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {n: v for n, v in wanted.items() if v}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.create(path, f"ask whether we may {verb} {resource}", body)["status"].get("allowed"))

    def _ask(
        self,
        method: str,
        path: str,
        asked: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        kind: str = _JSON,
    ) -> bytes:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        given = [(name, value) for name, value in (query or {}).items() if value not in ("", None)]
        headers = {"Accept": _JSON, "Content-Type": kind}
        try:
            answer = self._client.call_api(
                path,
                method,
                query_params=given,
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=_SECONDS,
            )
            return bytes(answer.data)
        except ApiException as error:
            if not error.status:
                raise unreachable(KUBERNETES, asked, self.address, error) from error
            kind = (error.headers or {}).get("Content-Type", "")
            said = error.body if isinstance(error.body, bytes) else str(error.body or "").encode()
            raise refusal(KUBERNETES, asked, self.address, int(error.status), said, kind) from error
        except HTTPError as error:
            raise unreachable(KUBERNETES, asked, self.address, error) from error

    def _object(self, data: bytes, asked: str) -> dict[str, Any]:
        return as_object(KUBERNETES, asked, self.address, data)
