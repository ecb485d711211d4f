"""Bad networks between the stages and a real S3 server: proxies that break what passes, and TLS."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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
TRUSTS = ("another authority", "the usual ones", "no such file", "no certificate in it", "another host's")


def cases(ground: Ground) -> Iterator[Case]:
    """The whole pipeline through the proxy; a stage that ends with 75 is started again."""
    if ground.kind != "s3":
        return
    for rate in (0.2, 0.05)[: ground.times(2, 1)]:
        yield _through(ground, f"{rate:.0%} of requests", Faults.evenly(rate))
    yield _through(ground, "30%: answers cut in their headers", Faults(rates={"cut_head": 0.3}))
    yield Case("network", "no server", lambda: _without(ground))


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


def _without(ground: Ground) -> tuple[str, list[str]]:
    """Nobody listens at the endpoint."""
    place = ground.new_place(f"http://127.0.0.1:{ceph.free_ports(1)[0]}")
    run = start_stage("curate", place, ground.folder, environment={"YANMO_S3_RETRY_SECONDS": "5"})
    code = run.wait()
    return f"exit code {code}", [] if code == 75 else [f"ended with {code}: {run.text[-900:]}"]


def tls_cases(ground: Ground) -> Iterator[Case]:
    """The pipeline over TLS, whole and cut; then one stage with each wrong trust and the wrong scheme."""
    if ground.kind != "s3" or not ground.on_s3().tls_endpoint:  # a given server may have one endpoint only
        return
    server = ground.on_s3()
    trust = {"AWS_CA_BUNDLE": server.ca_path}
    yield Case("tls", "an authority of our own", lambda: pipeline(ground, server.tls_endpoint, trust))
    handshake = dict.fromkeys(_HANDSHAKE, 0.1)
    yield Case("tls", "30%: cut in the handshake", lambda: _cut(ground, handshake))
    yield Case("tls", "30%: cut later", lambda: _cut(ground, {"later": 0.3}))
    for name in TRUSTS:
        yield Case("tls", f"trust: {name}", lambda name=name: _mistrust(ground, name))
    for endpoint in (server.endpoint, server.tls_endpoint):
        yield Case("tls", f"not {endpoint.partition(':')[0]}", lambda at=endpoint: _other_scheme(ground, at))


def _cut(ground: Ground, rates: dict[str, float]) -> tuple[str, list[str]]:
    server = ground.on_s3()
    seed = random.Random(f"{ground.seed}/{sorted(rates)}").randrange(10**6)
    with TlsProxy(server.tls_endpoint, rates, seed) as proxy:
        outcome, findings = pipeline(ground, proxy.endpoint, {"AWS_CA_BUNDLE": server.ca_path})
        met = proxy.met.total()
    if met == proxy.met["none"] and met > 20:
        findings.append(f"no connection of {met} was cut")
    return f"{met - proxy.met['none']} of {met} connections cut; {outcome}", findings


def _mistrust(ground: Ground, name: str) -> tuple[str, list[str]]:
    """One stage that must end with 78 at once, say what to do, and end well once the trust is right."""
    server = ground.on_s3()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=ground.folder)))
        endpoint, wanted, bundle = server.tls_endpoint, ["AWS_CA_BUNDLE"], ""
        if name == "another authority":
            bundle = str(ceph.make_certificates(folder)[0])
        elif name == "no such file":
            bundle = str(folder / "absent.pem")
        elif name == "no certificate in it":
            bundle = str(shutil.copyfile(ceph.make_certificates(folder)[2], folder / "key-only.pem"))
        elif name == "another host's":
            bundle, wanted = server.ca_path, ["127.0.0.2"]
            endpoint = stack.enter_context(TlsProxy(endpoint, {}, host="127.0.0.2")).endpoint
        if name.startswith("no "):
            wanted.append(Path(bundle).name)
        place = stack.enter_context(ground.place(endpoint))
        trust = {"AWS_CA_BUNDLE": bundle} if bundle else {}
        run = start_stage("curate", place, ground.folder, "--run-id", "trust", environment=trust)
        code = run.wait()
        findings = [] if code == 78 else [f"ended with {code}: {run.text[-900:]}"]
        findings += [f"does not say {word}: {run.text[-900:]}" for word in wanted if word not in run.text]
        place.endpoint = server.tls_endpoint  # type: ignore[union-attr]
        trust = {"AWS_CA_BUNDLE": server.ca_path}
        again = start_stage("curate", place, ground.folder, "--run-id", "trust", environment=trust)
        if after := again.wait():
            findings.append(f"with the right authority it ended with {after}: {again.text[-900:]}")
    return f"exit code {code}, {after} once it is right", findings


def _other_scheme(ground: Ground, endpoint: str) -> tuple[str, list[str]]:
    """TLS spoken to who speaks none, or none to who wants it: no success, no bug."""
    scheme, _, rest = endpoint.partition("://")
    wrong = f"{'https' if scheme == 'http' else 'http'}://{rest}"
    with ground.place(wrong) as place:
        variables = {"YANMO_S3_RETRY_SECONDS": "5", "AWS_CA_BUNDLE": ground.on_s3().ca_path}
        run = start_stage("curate", place, ground.folder, "--run-id", "scheme", environment=variables)
        code = run.wait()
        findings = [] if code in (75, 78) else [f"ended with {code}: {run.text[-900:]}"]
    if wrong.startswith("https") and "is its address http://" not in run.text:
        findings.append(f"does not say that the scheme is wrong: {run.text[-900:]}")
    return f"exit code {code}", findings
