"""Bad networks between the stages and a real S3 server: proxies that break what passes, and TLS."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from servers import ceph
from servers.fault_proxy import FaultProxy, Faults
from servers.tls_proxy import TlsProxy

from chaos.ground import Ground
from chaos.plan import Case
from chaos.start import Run, start_stage

_TRIES = 8
_RETRY_SECONDS = "20"
"""How long a stage tries one request: short enough that some runs end with 75 at high rates."""
_WRONG = ("Traceback", "a bug in Yanmo", "taken over by another run", "ignores conditional writes", "damaged")
"""What nobody may be told over a passing fault, whatever the exit code."""
_HANDSHAKE = ("hello", "flight", "plain")


def cases(ground: Ground) -> Iterator[Case]:
    """The whole pipeline through the proxy; a stage that ends with 75 is started again."""
    if ground.kind != "s3":
        return
    for rate in (0.2, 0.05)[: ground.times(2, 1)]:
        yield _through(ground, f"{rate:.0%} of requests", Faults.evenly(rate))
    yield _through(ground, "30%: answers cut in their headers", Faults(rates={"cut_head": 0.3}))
    nobody = f"http://127.0.0.1:{ceph.free_ports(1)[0]}"
    yield Case("network", "no server", lambda: _refused(ground, nobody, {}, (75,), ""))


def _through(ground: Ground, name: str, faults: Faults) -> Case:
    def attempt() -> tuple[str, list[str]]:
        seed = random.Random(f"{ground.seed}/{name}").randrange(10**6)
        with FaultProxy(ground.on_s3().endpoint, faults, seed) as proxy:
            outcome, findings = pipeline(ground, proxy.endpoint, {})
            met = proxy.met.total()
        return f"{met - proxy.met['none']} of {met} requests disturbed; {outcome}", findings

    return Case("network", name, attempt)


def pipeline(ground: Ground, endpoint: str, variables: dict[str, str]) -> tuple[str, list[str]]:
    """Every stage through `endpoint`, again where it ends with 75; outcome and findings."""
    codes: Counter[int] = Counter()
    findings: list[str] = []
    variables = {"YANMO_S3_RETRY_SECONDS": _RETRY_SECONDS, **variables}
    with ground.place(endpoint) as place:
        for stage in ground.stages:
            for _ in range(_TRIES):
                run = start_stage(stage, place, ground.folder, "--run-id", "passing", environment=variables)
                codes[code := run.wait()] += 1
                if code not in (0, 75):
                    findings.append(f"{stage} ended with {code}: {run.text[-1500:]}")
                findings += _wrong_words(stage, run)
                if code == 0:
                    break
            else:
                findings.append(f"{stage} did not get through in {_TRIES} runs: {run.text[-900:]}")
                break
        findings += ground.differences(place, may_leave=True)
    return f"runs by exit code: {dict(codes)}; same content", findings


def _wrong_words(stage: str, run: Run) -> Iterator[str]:
    """Lines of a log that blame the data, the server or another run for a passing fault."""
    for line in run.text.splitlines():
        if any(word in line for word in _WRONG):
            yield f"{stage} said: {line[:600]}"


def tls_cases(ground: Ground) -> Iterator[Case]:
    """The pipeline over TLS, whole and cut; then one stage at another host's certificate, and at the wrong
    scheme. Wrong authorities: tests/components/store/s3/."""
    if ground.kind != "s3" or not ground.on_s3().tls_endpoint:  # a given server may have one endpoint only
        return
    server = ground.on_s3()
    trust = {"AWS_CA_BUNDLE": server.ca_path}
    yield Case("tls", "an authority of our own", lambda: pipeline(ground, server.tls_endpoint, trust))
    for name, rates in (("in the handshake", dict.fromkeys(_HANDSHAKE, 0.1)), ("later", {"later": 0.3})):
        yield Case("tls", f"30%: cut {name}", lambda rates=rates: _cut(ground, rates, trust))
    yield Case("tls", "another host's", lambda: _another_host(ground, trust))
    for endpoint in (server.endpoint, server.tls_endpoint):
        scheme, _, rest = endpoint.partition("://")
        wrong = f"{'https' if scheme == 'http' else 'http'}://{rest}"
        said = "is its address http://" if scheme == "http" else ""
        yield Case(
            "tls", f"not {scheme}", lambda at=wrong, said=said: _refused(ground, at, trust, (75, 78), said)
        )


def _cut(ground: Ground, rates: dict[str, float], trust: dict[str, str]) -> tuple[str, list[str]]:
    seed = random.Random(f"{ground.seed}/{sorted(rates)}").randrange(10**6)
    with TlsProxy(ground.on_s3().tls_endpoint, rates, seed) as proxy:
        outcome, findings = pipeline(ground, proxy.endpoint, trust)
        met = proxy.met.total()
    if met == proxy.met["none"] and met > 20:
        findings.append(f"no connection of {met} was cut")
    return f"{met - proxy.met['none']} of {met} connections cut; {outcome}", findings


def _another_host(ground: Ground, trust: dict[str, str]) -> tuple[str, list[str]]:
    with TlsProxy(ground.on_s3().tls_endpoint, {}, host="127.0.0.2") as proxy:
        return _refused(ground, proxy.endpoint, trust, (78,), "127.0.0.2")


def _refused(
    ground: Ground, endpoint: str, trust: dict[str, str], codes: tuple[int, ...], says: str
) -> tuple[str, list[str]]:
    """One stage at an endpoint that it cannot use: no success, no bug, and it says why."""
    with ground.place(endpoint) as place:
        variables = {"YANMO_S3_RETRY_SECONDS": "5", **trust}
        run = start_stage("curate", place, ground.folder, "--run-id", "refused", environment=variables)
        code = run.wait()
    findings = [] if code in codes else [f"ended with {code}: {run.text[-900:]}"]
    if says not in run.text:
        findings.append(f"does not say {says}: {run.text[-900:]}")
    return f"exit code {code}", findings
