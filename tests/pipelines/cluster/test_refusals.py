"""Whatever a server says in the place of an answer becomes one sentence with what to do, and a code."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.replayed import TINY, answers, one, serving

from yanmo.common.errors import ExitCode, exit_code
from yanmo_pipelines.cluster import submit
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.refusals import KFP, KUBERNETES, refusal

HEALTH = "GET /apis/v2beta1/healthz"
LOGIN = "<!doctype html><html><head><title>Log in to Dex </title></head><body>...</body></html>"
GRPC = {"code": 7, "message": "Failed to list: Unauthorized access", "details": []}
CASES = {
    "no token": (
        one(HEALTH, 401, {"code": 16, "message": "Request header error: no token"}),
        78,
        "--token-file",
    ),
    "no right": (one(HEALTH, 403, GRPC), 78, "no right to that; look at --namespace"),
    "a login page": (one(HEALTH, 200, LOGIN, "text/html"), 78, "Log in to Dex): a page, as of a login"),
    "sent to a login": (
        {**one(HEALTH, 302, ""), "headers": {"Location": "/dex"}},
        78,
        "a page, as of a login",
    ),
    "another server": (one(HEALTH, 404, "404 page not found\n", "text/plain"), 78, "it has no such path"),
    "no JSON": (one(HEALTH, 200, "ok", "text/plain"), 78, "expected KFP's API"),
    "its database is away": (one(HEALTH, 500, {"code": 13, "message": "dial tcp: refused"}), 75, "again"),
    "a proxy without a server": (
        one(HEALTH, 503, "no healthy upstream", "text/plain"),
        75,
        "no healthy upst",
    ),
    "too many": (one(HEALTH, 429, "", "text/plain"), 75, "run the same command again"),
}


@pytest.mark.parametrize("case", CASES)
def test_submit_says_in_one_sentence_what_is_wrong_and_what_to_do(
    case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    answer, code, said = CASES[case]
    with serving([answer]) as (address, _):
        assert submit.main([f"--host={address}", f"--pipeline={TINY}", "--look-seconds=0"]) == code
    last = capfd.readouterr().err.splitlines()[-1]
    assert said in last and address in last


def test_nobody_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with serving([]) as (address, _):
        pass
    assert submit.main([f"--host={address}", f"--pipeline={TINY}", "--look-seconds=0"]) == 75
    assert "no answer from KFP's API (Connection refused)" in capfd.readouterr().err


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        api = KfpApi(PlaceOptions(host=address, look_seconds=0), read_seconds=0.05)
        with pytest.raises(ConnectionError, match="no answer from KFP's API"):
            api.health()


@pytest.mark.parametrize("recorded", answers("refused"), ids=lambda a: a["request"][:60])
def test_what_kfp_refused_is_said_without_its_stack_trace(recorded: dict[str, Any]) -> None:
    error = refusal(KFP, "ask", "http://kfp", recorded["status"], recorded["body"].encode(), recorded["type"])
    assert exit_code(error) in (ExitCode.USAGE, ExitCode.RETRY, ExitCode.ENVIRONMENT)
    assert ".go" not in str(error) and "\n" not in str(error) and len(str(error)) < 600


def test_a_lost_answer_to_a_new_run_is_no_reason_for_a_second_run(capfd: pytest.CaptureFixture[str]) -> None:
    lost = [one("POST /apis/v2beta1/runs", 503, "upstream reset", "text/plain")]
    recorded = [a for a in answers("green") if a["request"] != "POST /apis/v2beta1/runs"]
    with serving([*recorded, *lost]) as (address, server):
        assert submit.main([f"--host={address}", f"--pipeline={TINY}", "--look-seconds=0"]) == 75
    assert "look first whether KFP has the run" in capfd.readouterr().err
    assert sum(asked == "POST /apis/v2beta1/runs" for asked in server.asked) == 1


@given(
    server=st.sampled_from([KFP, KUBERNETES]),
    status=st.integers(300, 599) | st.just(200),
    body=st.binary(max_size=200)
    | st.builds(
        lambda v: json.dumps(v).encode(),
        st.recursive(
            st.none() | st.text() | st.integers(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(["message", "details", "error_details", "error_message", "code"]), inner
                )
            ),
        ),
    ),
    kind=st.sampled_from(["application/json", "text/plain", "text/html; charset=utf-8", ""]),
)
def test_no_answer_is_a_bug_of_ours(server: str, status: int, body: bytes, kind: str) -> None:
    error = refusal(server, "ask", "http://x", status, body, kind)
    assert exit_code(error) in (ExitCode.USAGE, ExitCode.RETRY, ExitCode.ENVIRONMENT)
    assert "\n" not in str(error)
