"""KFP's API (v2beta1) as this room asks it: a dozen requests, each with a limit of time, each answer checked.

Alternative not taken: `kfp.Client`. It asks an address that does not answer for 25 s before it says so, sets
no limit of time to a request, writes to the home folder, and ends in AttributeErrors where a proxy answers
with a page. What it knows of KFP is the paths below. The SDK compiles the pipelines (`uploaded.py`).

urllib3 is imported when a server is asked: it takes a quarter of the time of a `--help`.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from yanmo.common.errors import in_words
from yanmo_pipelines.cluster.place import PlaceOptions, api_address, token_of
from yanmo_pipelines.cluster.refusals import KFP, NoAnswer, NotFound, NotThatServer, refusal, unreachable

if TYPE_CHECKING:
    from urllib3.exceptions import HTTPError

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
        address: str,
        token: Callable[[], str] = str,
        namespace: str = "",
        *,
        pause_seconds: float = 1.0,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        """
        Args:
            token: gives the token of now; "" where none is needed.
            namespace: whose pipelines and experiments are meant; used where KFP has several users.
            pause_seconds: between two tries.
            read_seconds: how long an answer may take.
        """
        import urllib3

        from yanmo.common.authorities import ca_bundle

        self._pause_seconds = pause_seconds
        self.address, self._token, self._namespace = address, token, namespace
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
            retries=False,
            ca_certs=ca_bundle(),
        )
        self._health: dict[str, Any] | None = None
        self._is_ui = False

    @classmethod
    def of(cls, options: PlaceOptions, namespace: str = "") -> KfpApi:
        """The server that the options name."""
        return cls(
            api_address(options),
            lambda: token_of(options),
            namespace,
            pause_seconds=min(1.0, options.look_seconds),
        )

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

    def pipeline(self, name: str) -> dict[str, Any] | None:
        """The pipeline called `name`."""
        try:
            return self._get(
                f"/pipelines/names/{quote(name, safe='')}", f"find pipeline {name}", namespace=self.namespace
            )
        except NotFound:
            return None

    def create_pipeline(self, name: str, description: str) -> dict[str, Any]:
        """A new pipeline without versions; raises `Exists` where there is one of that name."""
        body = {
            "name": name,
            "display_name": name,
            "description": description,
            "namespace": self.namespace,
        }
        return self._post("/pipelines", f"create pipeline {name}", body)

    def version(self, pipeline: str, name: str) -> dict[str, Any] | None:
        """The version called `name` of the pipeline with id `pipeline`, with what is in it."""
        path, asked = f"/pipelines/{pipeline}/versions", f"find version {name}"
        return next(self._listed(path, "pipeline_versions", asked, filter=_equals("name", name)), None)

    def version_by_id(self, pipeline: str, version: str) -> dict[str, Any]:
        """A version, with what is in it."""
        return self._get(f"/pipelines/{pipeline}/versions/{version}", f"read version {version}")

    def upload_version(self, pipeline: str, name: str, description: str, text: str) -> dict[str, Any]:
        """A new version whose YAML is `text`; raises `Exists` where there is one of that name."""
        from urllib3 import encode_multipart_formdata

        query = urlencode(
            {"pipelineid": pipeline, "name": name, "display_name": name, "description": description}
        )
        body, kind = encode_multipart_formdata({"uploadfile": (f"{name}.yaml", text.encode())})
        asked = f"upload version {name}"
        return self._object(
            self._ask("POST", f"{V2}/pipelines/upload_version?{query}", asked, body, kind), asked
        )

    def experiment(self, name: str) -> dict[str, Any] | None:
        """The experiment called `name`."""
        found = self._listed(
            "/experiments",
            "experiments",
            f"find experiment {name}",
            filter=_equals("display_name", name),
            namespace=self.namespace,
        )
        return next(found, None)

    def experiment_by_id(self, id: str) -> dict[str, Any]:
        """An experiment as it is stored."""
        return self._get(f"/experiments/{quote(id, safe='')}", f"read experiment {id}")

    def create_experiment(self, name: str) -> dict[str, Any]:
        """A new experiment; raises `Exists` where there is one of that name."""
        body = {"display_name": name, "namespace": self.namespace}
        return self._post("/experiments", f"create experiment {name}", body)

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
                time.sleep(self._pause_seconds)
        return self._ask(method, path, asked)

    def _ask(
        self, method: str, path: str, asked: str, body: bytes | None = None, kind: str = JSON
    ) -> tuple[bytes, str]:
        """The body and its type.

        Raises:
            NoAnswer, NotFound, Exists, Forbidden, NotThatServer, UsageError, EnvironmentFault: refusals.py.
        """
        from urllib3.exceptions import HTTPError

        token, headers = self._token(), {"Accept": "*/*"}
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
            raise _of_the_wire(error, asked, self.address) from error
        if len(data) > _MOST_BYTES:
            raise NotThatServer(f"{self.address}: could not {asked}: an answer of more than {_MOST_BYTES} B")
        kind = answer.headers.get("Content-Type", "")
        if answer.status != 200:
            raise refusal(KFP, asked, self.address, answer.status, data, kind)
        return data, kind

    def _object(self, answer: tuple[bytes, str], asked: str) -> dict[str, Any]:
        data, _ = answer
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise refusal(KFP, asked, self.address, 200, data, "html")
        return found


def _equals(key: str, value: str) -> str:
    predicate = {"operation": "EQUALS", "key": key, "string_value": value}
    return json.dumps({"predicates": [predicate]}, ensure_ascii=False)


def _of_the_wire(error: HTTPError, asked: str, where: str) -> Exception:
    """The error where no answer came; one of TLS stays, however often one asks."""
    from urllib3.exceptions import SSLError

    inner = getattr(error, "reason", error)
    if isinstance(inner, SSLError):
        return NotThatServer(
            f"{where}: could not {asked}: no secure connection ({_reason(error)}); look whether it is "
            "http:// or https://, and give the file of its authority as SSL_CERT_FILE"
        )
    return unreachable(KFP, asked, where, _reason(error))


def _reason(error: HTTPError) -> str:
    """Return what went wrong on the wire, without the pool's name before it."""
    inner = getattr(error, "reason", None)
    words = in_words(inner if isinstance(inner, Exception) else error)
    return re.sub(r"\[(Errno -?\d+|SSL[^]]*)\] | \(_ssl\.c:\d+\)", "", words.rpartition(": ")[2])
