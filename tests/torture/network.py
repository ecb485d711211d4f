"""The fault proxy between the stages and a real S3 server."""

from __future__ import annotations

import random
from collections import Counter

from servers.fault_proxy import FaultProxy, Faults

from torture.ground import Ground, Record
from torture.place import survey
from torture.stages import start_stage

RATES = (0.02, 0.05, 0.1, 0.2)
_TRIES = 8
_RETRY_SECONDS = "20"
"""How long a stage tries one request: short enough that some runs end with 75 at high rates."""


def run(ground: Ground, record: Record, rates: tuple[float, ...] = RATES) -> None:
    """The whole pipeline through the proxy, at each rate; a stage that ends with 75 is started again."""
    for rate in rates:
        record.case("network", f"{rate:.0%} of requests", lambda rate=rate: _through(ground, rate))
    record.case("network", "no server", lambda: _without(ground))


def _through(ground: Ground, rate: float) -> tuple[str, list[str]]:
    assert ground.server is not None
    seed = random.Random(f"{ground.seed}/{rate}").randrange(10**6)
    codes: Counter[int] = Counter()
    findings: list[str] = []
    with FaultProxy(ground.server.endpoint, Faults.evenly(rate), seed) as proxy:
        with ground.place(proxy.endpoint) as place:
            for stage in ground.stages:
                for _ in range(_TRIES):
                    variables = {"YANMO_S3_RETRY_SECONDS": _RETRY_SECONDS}
                    run = start_stage(stage, place, ground.folder, environment=variables)
                    code = run.wait()
                    codes[code] += 1
                    if code not in (0, 75):
                        findings.append(f"{stage} ended with {code}: {run.text[-1500:]}")
                    if code == 0:
                        break
                else:
                    findings.append(f"{stage} did not get through in {_TRIES} runs: {run.text[-900:]}")
                    break
            found = survey(place)
            findings += found.faults
            expected = ground.profile.survey.digests
            findings += [
                f"{n}: other content than undisturbed"
                for n in expected
                if found.digests.get(n) != expected[n]
            ]
        met = sum(proxy.met.values())
        outcome = f"{met - proxy.met['none']} of {met} requests disturbed; runs by exit code: {dict(codes)}"
    return outcome + ("" if findings else "; same digests"), findings


def _without(ground: Ground) -> tuple[str, list[str]]:
    """Nobody listens at the endpoint."""
    from servers.ceph import free_ports

    place = ground.new_place(f"http://127.0.0.1:{free_ports(1)[0]}")
    variables = {"YANMO_S3_RETRY_SECONDS": "5"}
    run = start_stage("curate", place, ground.folder, environment=variables)
    code = run.wait()
    return f"exit code {code}", [] if code == 75 else [f"ended with {code}: {run.text[-900:]}"]
