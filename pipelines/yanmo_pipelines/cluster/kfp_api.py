"""KFP's API (v2beta1) as this room asks it: a dozen requests, each with a limit of time, each answer checked.

Alternative not taken: `kfp.Client`. It asks an address that does not answer for 25 s before it says so, sets
no limit of time to a request, writes to the home folder, and ends in AttributeErrors where a proxy answers
with a page. What it knows of KFP is the paths below. The SDK compiles the pipelines (`plan.py`).

urllib3 is imported when a server is asked: it takes a quarter of the time of a `--help`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from yanmo.common.errors import UsageError
from yanmo.options.help import version
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions, api_address, own_namespace, token_of
from yanmo_pipelines.cluster.refusals import (
    KFP,
    Exists,
    NoAnswer,
    NotFound,
    NotThatServer,
    as_object,
    refusal,
    unreachable,
)

log = logging.getLogger(__name__)

V2 = "/apis/v2beta1"
_LOG = "/apis/v1alpha1/runs/{run}/nodes/{node}/log"
"""A pod's log, from the pod while it is there, else from the archive; KFP 2.17 has no v2beta1 path for it."""
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 60.0
_TRIES = 3
_MOST_BYTES = 64 << 20
_PAGE = 100
JSON = "application/json"


class KfpApi:
    """One KFP server, asked as one user."""

    def __init__(
        self,
        options: PlaceOptions,
        kubernetes: KubernetesApi | None = None,
        *,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        """
        Args:
            kubernetes: whose namespace is meant where KFP has several users; None for this pod's, if any.
            read_seconds: how long an answer may take.
        """
        import urllib3

        from yanmo.common.authorities import ca_bundle

        self.address, self._options = api_address(options), options
        self._namespace = kubernetes.namespace if kubernetes else options.namespace or own_namespace()
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
            retries=False,
            ca_certs=ca_bundle(),
        )
        self._health: dict[str, Any] | None = None
        self._is_ui = False

    def health(self) -> dict[str, Any]:
        """Version and whether it has several users; asked once."""
        if self._health is None:
            self._health = self._get("/healthz", "ask for its version")
        return self._health

    def is_a_page(self) -> bool:
        """Return whether a browser gets KFP's UI at this address, and not the API alone."""
        try:
            return "html" in self._ask("GET", "/", "look for KFP's UI")[1]
        except (OSError, ValueError, RuntimeError):
            return False

    @property
    def namespace(self) -> str:
        """Whose pipelines and experiments are asked for; "" where KFP has one user."""
        return self._namespace if self.health().get("multi_user") else ""

    def upload(self, name: str, called: str, text: str, about: str = "") -> dict[str, str]:
        """Upload the version `called` of a pipeline, unless KFP has it; return it as a run names it.

        Versions are named by what is in them (`compile.version_name`), so that the same pipeline is found
        again, from whatever machine.

        Args:
            text: its YAML.
            about: the pipeline's description, should it be new.
        """
        named = quote(name, safe="")
        made = {"name": name, "display_name": name, "description": about, "namespace": self.namespace}
        pipeline = _found_or_made(
            lambda: self._get_if(f"/pipelines/names/{named}", f"find pipeline {name}"),
            lambda: self._post("/pipelines", f"create pipeline {name}", made),
        )["pipeline_id"]
        found = _found_or_made(
            lambda: self._named(f"/pipelines/{pipeline}/versions", "pipeline_versions", "name", called),
            lambda: self._upload(pipeline, name, called, text),
        )
        return {"pipeline_id": pipeline, "pipeline_version_id": found["pipeline_version_id"]}

    def _upload(self, pipeline: str, of: str, name: str, text: str) -> dict[str, Any]:
        from urllib3 import encode_multipart_formdata

        query = urlencode(
            {"pipelineid": pipeline, "name": name, "display_name": name, "description": version()}
        )
        body, kind = encode_multipart_formdata({"uploadfile": (f"{name}.yaml", text.encode())})
        asked = f"upload version {name}"
        answer = self._ask("POST", f"{V2}/pipelines/upload_version?{query}", asked, body, kind)
        log.info("uploaded pipeline %s, version %s", of, name)
        return self._object(answer, asked)

    def version(self, pipeline: str, id: str) -> dict[str, Any]:
        """A version by its id, with what is in it."""
        return self._get(f"/pipelines/{pipeline}/versions/{id}", f"read version {id}")

    def experiment_id(self, name: str) -> str:
        """The id of the experiment, made if it is not there.

        Raises:
            UsageError: it is archived, and takes no run.
        """
        made = {"display_name": name, "namespace": self.namespace}
        found = _found_or_made(
            lambda: self._named("/experiments", "experiments", "display_name", name),
            lambda: self._post("/experiments", f"create experiment {name}", made),
        )
        if found.get("storage_state") == "ARCHIVED":
            raise UsageError(f"--experiment {name}: it is archived; restore it in KFP's UI, or name another")
        return str(found["experiment_id"])

    def experiment(self, id: str) -> dict[str, Any]:
        """An experiment by its id."""
        return self._get(f"/experiments/{quote(id, safe='')}", f"read experiment {id}")

    def create_run(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """A new run."""
        return self._post("/runs", "create the run", run)

    def run(self, run_id: str) -> dict[str, Any]:
        """A run as it is now, with its tasks."""
        return self._get(f"/runs/{quote(run_id, safe='')}", f"read run {run_id}")

    def runs(self, most: int) -> list[dict[str, Any]]:
        """The newest runs, newest first."""
        found = self._get(
            "/runs",
            "list runs",
            page_size=most,
            sort_by="created_at desc",
            namespace=self.namespace,
        )
        return list(found.get("runs") or [])

    def recurring_runs(self, name: str = "") -> list[dict[str, Any]]:
        """The recurring runs called `name`, which several may be, or all."""
        asked = f"find recurring run {name}" if name else "list recurring runs"
        found = self._listed(
            "/recurringruns",
            "recurringRuns",
            asked,
            filter=_equals("display_name", name) if name else "",
            namespace=self.namespace,
        )
        return list(found)

    def create_recurring_run(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """A new recurring run."""
        return self._post("/recurringruns", f"create recurring run {run.get('display_name', '')}", run)

    def switch_recurring_run(self, id: str, *, on: bool) -> None:
        """Let it fire, or not."""
        verb = "enable" if on else "disable"
        self._ask(
            "POST", f"{V2}/recurringruns/{quote(id, safe='')}:{verb}", f"{verb} recurring run {id}", b"{}"
        )

    def delete_recurring_run(self, id: str) -> None:
        """Delete a recurring run; its runs, which are deleted with it by default, go on."""
        path = f"{V2}/recurringruns/{quote(id, safe='')}?propagation_policy=ORPHAN"
        self._ask("DELETE", path, f"delete recurring run {id}")

    def log(self, run_id: str, node: str) -> str:
        """The log of a pod of a run, by Argo's id of its node."""
        path = _LOG.format(run=quote(run_id, safe=""), node=quote(node, safe=""))
        try:
            return self._with_tries("GET", path, f"read the log of {node}")[0].decode("utf-8", "replace")
        except NotThatServer:
            if not self._is_ui:
                log.warning(
                    "%s hands on no logs, as KFP's UI does: the verdict, and why a task failed, cannot be "
                    "said; give the address of KFP's API, such as that of svc/ml-pipeline, port 8888",
                    self.address,
                )
            self._is_ui = True
            raise

    def _get(self, path: str, asked: str, **query: Any) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value not in ("", None)}
        full = f"{V2}{path}" + (f"?{urlencode(given)}" if given else "")
        return self._object(self._with_tries("GET", full, asked), asked)

    def _get_if(self, path: str, asked: str) -> dict[str, Any] | None:
        """What is there; None for nothing."""
        try:
            return self._get(path, asked, namespace=self.namespace)
        except NotFound:
            return None

    def _named(self, path: str, of: str, key: str, name: str) -> dict[str, Any] | None:
        """The first of a list that is called `name`; None for none."""
        where = self.namespace if path == "/experiments" else ""
        found = self._listed(path, of, f"find {name}", filter=_equals(key, name), namespace=where)
        return next(found, None)

    def _listed(self, path: str, of: str, asked: str, **query: Any) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            found = self._get(path, asked, page_size=_PAGE, page_token=token, **query)
            yield from found.get(of) or []
            token = found.get("next_page_token", "")
            if not token:
                return

    def _post(self, path: str, asked: str, body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps({n: v for n, v in body.items() if v not in ("", None)}, ensure_ascii=False)
        return self._object(self._ask("POST", V2 + path, asked, data.encode(), JSON), asked)

    def _with_tries(self, method: str, path: str, asked: str) -> tuple[bytes, str]:
        """`_ask`, for what may be asked twice."""
        for tried in range(1, _TRIES):
            try:
                return self._ask(method, path, asked)
            except NoAnswer as error:
                log.debug("try %d: %s", tried, error)
                time.sleep(min(1.0, self._options.look_seconds))
        return self._ask(method, path, asked)

    def _ask(
        self, method: str, path: str, asked: str, body: bytes | None = None, kind: str = JSON
    ) -> tuple[bytes, str]:
        """The body and its type.

        Raises:
            NoAnswer, NotFound, Exists, Forbidden, NotThatServer, UsageError, EnvironmentFault: refusals.py.
        """
        from urllib3.exceptions import HTTPError

        token, headers = token_of(self._options), {"Accept": "*/*"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"Content-Type": kind} if body is not None else {}
        try:
            answer = self._pool.request(
                method,
                self.address + path,
                body=body,
                headers=headers,
                redirect=False,
                preload_content=False,
            )
            try:
                data = answer.read(_MOST_BYTES + 1, decode_content=True)
            finally:
                answer.release_conn()
        except HTTPError as error:
            raise unreachable(KFP, asked, self.address, error) from error
        if len(data) > _MOST_BYTES:
            raise NotThatServer(f"{self.address}: could not {asked}: an answer of more than {_MOST_BYTES} B")
        kind = answer.headers.get("Content-Type", "")
        if answer.status != 200:
            raise refusal(KFP, asked, self.address, answer.status, data, kind)
        return data, kind

    def _object(self, answer: tuple[bytes, str], asked: str) -> dict[str, Any]:
        return as_object(KFP, asked, self.address, answer[0])


def _found_or_made(
    find: Callable[[], dict[str, Any] | None], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return what `find` gives, else what `make` does; somebody else may make it first."""
    if (found := find()) is not None:
        return found
    try:
        return make()
    except Exists:
        if (found := find()) is None:
            raise
        return found


def _equals(key: str, value: str) -> str:
    predicate = {"operation": "EQUALS", "key": key, "string_value": value}
    return json.dumps({"predicates": [predicate]}, ensure_ascii=False)
