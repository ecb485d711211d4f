"""The fault proxy between the stages and a real S3 server."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from servers.fault_proxy import FaultProxy, Faults

from torture.ground import Ground, Record
from torture.place import Place, survey
from torture.stages import Run, start_stage

RATES = (0.02, 0.05, 0.1, 0.2)
HEAD_RATES = (0.1, 0.3)
HEADS = {"cut_head": "answers cut inside their headers", "drop_header": "answers that lack a header"}
_TRIES = 8
_RETRY_SECONDS = "20"
"""How long a stage tries one request: short enough that some runs end with 75 at high rates."""
_WRONG = ("Traceback", "a bug in Yanmo", "taken over by another run", "ignores conditional writes", "damaged")
"""What nobody may be told over a passing fault, whatever the exit code."""


def run(ground: Ground, record: Record, rates: tuple[float, ...] = RATES) -> None:
    """The whole pipeline through the proxy, at each rate; a stage that ends with 75 is started again."""
    for rate in rates:
        record.case("network", f"{rate:.0%} of requests", lambda r=rate: _through(ground, Faults.evenly(r)))
    record.case("network", "no server", lambda: _without(ground))


def run_heads(ground: Ground, record: Record, rates: tuple[float, ...] = HEAD_RATES) -> None:
    """Nothing but heads of answers that are cut, or lack what every server sends, over plain HTTP."""
    for kind, what in HEADS.items():
        for rate in rates:
            faults = Faults(rates={kind: rate})
            record.case("heads", f"{rate:.0%}: {what}", lambda f=faults: _through(ground, f))


def _through(ground: Ground, faults: Faults) -> tuple[str, list[str]]:
    assert ground.server is not None
    seed = random.Random(f"{ground.seed}/{sorted(faults.rates.items())}").randrange(10**6)
    with FaultProxy(ground.server.endpoint, faults, seed) as proxy:
        outcome, findings = pipeline(ground, proxy.endpoint, {})
        met = sum(proxy.met.values())
    return f"{met - proxy.met['none']} of {met} requests disturbed; {outcome}", findings


def pipeline(ground: Ground, endpoint: str, variables: dict[str, str]) -> tuple[str, list[str]]:
    """Every stage through `endpoint`, again where it ends with 75; outcome and findings.

    The runs have a run id: none of them may leave a record that it ended for good.
    """
    codes: Counter[int] = Counter()
    findings: list[str] = []
    variables = {"YANMO_S3_RETRY_SECONDS": _RETRY_SECONDS, **variables}
    with ground.place(endpoint) as place:
        for stage in ground.stages:
            for _ in range(_TRIES):
                run = start_stage(stage, place, ground.folder, "--run-id", "passing", environment=variables)
                code = run.wait()
                codes[code] += 1
                if code not in (0, 75):
                    findings.append(f"{stage} ended with {code}: {run.text[-1500:]}")
                findings += wrong_words(stage, run)
                if code == 0:
                    break
            else:
                findings.append(f"{stage} did not get through in {_TRIES} runs: {run.text[-900:]}")
                break
        found = survey(place)
        findings += [*found.faults, *fatal_records(place)]
        expected = ground.profile.survey.digests
        findings += [
            f"{n}: other content than undisturbed" for n in expected if found.digests.get(n) != expected[n]
        ]
    outcome = f"runs by exit code: {dict(codes)}"
    return outcome + ("" if findings else "; same digests"), findings


def wrong_words(stage: str, run: Run) -> Iterator[str]:
    """Lines of a log that blame the data, the server or another run for a passing fault."""
    for line in run.text.splitlines():
        if any(word in line for word in _WRONG):
            yield f"{stage} said: {line[:600]}"


def fatal_records(place: Place) -> list[str]:
    """Records that a run ended for good."""
    names = [name for name in place.names() if "/fatal/" in name]
    return [f"{name}: {place.read(name)[:600]!r}" for name in names]


def _without(ground: Ground) -> tuple[str, list[str]]:
    """Nobody listens at the endpoint."""
    from servers.ceph import free_ports

    place = ground.new_place(f"http://127.0.0.1:{free_ports(1)[0]}")
    variables = {"YANMO_S3_RETRY_SECONDS": "5"}
    run = start_stage("curate", place, ground.folder, environment=variables)
    code = run.wait()
    return f"exit code {code}", [] if code == 75 else [f"ended with {code}: {run.text[-900:]}"]
