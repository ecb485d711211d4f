"""TLS: an authority of our own, handshakes that are cut, and every way to trust the wrong one."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from servers import ceph
from servers.s3 import S3Server
from servers.tls_proxy import TlsProxy

from torture.ground import Case, Ground, Record
from torture.network import fatal_records, pipeline
from torture.stages import start_stage

RATES = (0.1, 0.3)
TRUSTS = ("another authority", "the usual ones", "no such file", "no certificate in it", "another host's")
_HANDSHAKE = ("hello", "flight", "plain")


def run(
    ground: Ground, record: Record, rates: tuple[float, ...] = RATES, trusts: tuple[str, ...] = TRUSTS
) -> None:
    """The pipeline over TLS, whole, cut in handshakes and cut later; then one stage with each wrong trust."""
    server = ground.server
    assert server is not None
    if not server.tls_endpoint:
        record.case(
            "tls", "all", lambda: Case("tls", "all", "the server has one endpoint only", skipped=True)
        )
        return
    trust = {"AWS_CA_BUNDLE": server.ca_path}
    record.case("tls", "an authority of our own", lambda: pipeline(ground, server.tls_endpoint, trust))
    for rate in rates:
        shares = dict.fromkeys(_HANDSHAKE, rate / len(_HANDSHAKE))
        record.case("tls", f"{rate:.0%}: cut in the handshake", lambda s=shares: _cut(ground, server, s))
        record.case("tls", f"{rate:.0%}: cut later", lambda r=rate: _cut(ground, server, {"later": r}))
    for name in trusts:
        record.case("tls", f"trust: {name}", lambda n=name: _mistrust(ground, server, n))
    record.case("tls", "https:// to a plain server", lambda: _other_scheme(ground, server.endpoint))
    record.case("tls", "http:// to a TLS server", lambda: _other_scheme(ground, server.tls_endpoint))


def _cut(ground: Ground, server: S3Server, rates: dict[str, float]) -> tuple[str, list[str]]:
    seed = random.Random(f"{ground.seed}/{sorted(rates.items())}").randrange(10**6)
    with TlsProxy(server.tls_endpoint, rates, seed) as proxy:
        outcome, findings = pipeline(ground, proxy.endpoint, {"AWS_CA_BUNDLE": server.ca_path})
        met = sum(proxy.met.values())
    if met == proxy.met["none"] and met > 20:
        findings.append(f"no connection of {met} was cut")
    return f"{met - proxy.met['none']} of {met} connections cut; {outcome}", findings


def _mistrust(ground: Ground, server: S3Server, name: str) -> tuple[str, list[str]]:
    """One stage that must end with 78 at once, say what to do, and end well once the trust is right."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=ground.folder)))
        endpoint, wanted, variables = server.tls_endpoint, ["AWS_CA_BUNDLE"], {}
        if name == "another authority":
            variables = {"AWS_CA_BUNDLE": str(ceph.make_certificates(folder)[0])}
        elif name == "no such file":
            variables = {"AWS_CA_BUNDLE": str(folder / "absent.pem")}
            wanted.append("absent.pem")
        elif name == "no certificate in it":
            shutil.copyfile(ceph.make_certificates(folder)[2], folder / "key-only.pem")
            variables = {"AWS_CA_BUNDLE": str(folder / "key-only.pem")}
            wanted.append("key-only.pem")
        elif name == "another host's":
            variables = {"AWS_CA_BUNDLE": server.ca_path}
            wanted = ["127.0.0.2"]
            endpoint = stack.enter_context(TlsProxy(endpoint, {}, host="127.0.0.2")).endpoint
        place = stack.enter_context(ground.place(endpoint))
        command = ("--run-id", "trust")
        run = start_stage("curate", place, ground.folder, *command, environment=variables)
        code, text = run.wait(), run.text
        seconds = run.ended - run.started
        findings = [] if code == 78 else [f"ended with {code}: {text[-900:]}"]
        findings += [f"does not say {word}: {text[-900:]}" for word in wanted if word not in text]
        place.endpoint = server.tls_endpoint  # type: ignore[union-attr]
        findings += fatal_records(place)
        again = start_stage(
            "curate", place, ground.folder, *command, environment={"AWS_CA_BUNDLE": server.ca_path}
        )
        if after := again.wait():
            findings.append(f"with the right authority it ended with {after}: {again.text[-900:]}")
    return f"exit code {code} after {seconds:.0f} s, {after} once it is right", findings


def _other_scheme(ground: Ground, endpoint: str) -> tuple[str, list[str]]:
    """TLS spoken to who speaks none, or none to who wants it: no success, no fatal record, no bug."""
    scheme, _, rest = endpoint.partition("://")
    wrong = f"{'https' if scheme == 'http' else 'http'}://{rest}"
    with ground.place(wrong) as place:
        variables = {"YANMO_S3_RETRY_SECONDS": "5", "AWS_CA_BUNDLE": ground.server.ca_path}  # type: ignore[union-attr]
        run = start_stage("curate", place, ground.folder, "--run-id", "scheme", environment=variables)
        code = run.wait()
        findings = [] if code in (75, 78) else [f"ended with {code}: {run.text[-900:]}"]
        findings += fatal_records(place)
    if wrong.startswith("https") and "is its address http://" not in run.text:
        findings.append(f"does not say that the scheme is wrong: {run.text[-900:]}")
    return f"exit code {code}", findings
