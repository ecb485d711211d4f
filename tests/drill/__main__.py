"""`make drill`, or `PYTHONPATH=tests python -m drill`: break things, and see which alert comes, and when.

Trains on the CPU beside a real Prometheus and a real Alertmanager, with the rules of manifests/, whose times
are divided by one factor. Each fault has watchers of its own, so that nothing is left from the one before.
Exit code 0 where each alert came and no other did, 1 where not, 78 where this machine lacks what is needed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from drill.faults import FAULTS, Fault, NotHere
from drill.scaled import scaled
from drill.table import table_of, write_table
from drill.watchers import Watchers, missing

ROOT = Path(__file__).parents[2]
RULES = ROOT / "manifests/components/prometheus/rules.yaml"
QUIET_SECONDS, AFTER_SECONDS = 10.0, 10.0
"""How long nothing may fire before the fault, and how long is watched on after its alert came."""
LATE_SECONDS = 300.0
"""What has not come by then does not come."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a fault did."""

    fault: Fault
    delay: float | None = None
    """Seconds from the fault to the alert at Alertmanager; None where it did not come."""
    severity: str = ""
    summary: str = ""
    others: tuple[str, ...] = ()
    """Other alerts that fired."""
    left_out: str = ""
    """Why it was not tried."""

    @property
    def is_good(self) -> bool:
        return self.delay is not None and not self.others


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(prog="make drill", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="only these faults")
    parser.add_argument("--factor", type=float, default=10.0, help="times are divided by it (default: 10)")
    parser.add_argument("--docs", action="store_true", help="write the table into benchmarks/NOTES.md")
    parser.add_argument("--keep", action="store_true", help="leave the folders of logs behind")
    given = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 78
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    rules = scaled(yaml.safe_load(RULES.read_text(encoding="utf-8")), given.factor)
    outcomes = []
    folder = Path(tempfile.mkdtemp(prefix="yanmo-drill-"))
    try:
        for fault in FAULTS:
            if fault.name in given.only:
                outcomes.append(_tried(fault, folder / fault.name, rules, given.factor))
                _say(outcomes[-1])
    except KeyboardInterrupt:
        print("interrupted; everything is stopped and removed", file=sys.stderr)
        return 130
    finally:
        if given.keep:
            print(f"logs: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    table = table_of(outcomes, given.factor)
    print(table)
    if given.docs:
        write_table(ROOT / "benchmarks/NOTES.md", table)
    return 0 if all(each.is_good or each.left_out for each in outcomes) else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tried(fault: Fault, folder: Path, rules: dict[str, Any], factor: float) -> Outcome:
    folder.mkdir()
    print(f"{fault.name}: {fault.what}", file=sys.stderr, flush=True)
    try:
        with (
            fault.scene(folder) as scene,
            Watchers(folder / "watchers", rules, [scene.target]) as watchers,
        ):
            _wait_until_scraped(watchers)
            time.sleep(QUIET_SECONDS)
            before = watchers.fired()
            if before:
                return Outcome(fault=fault, others=tuple(sorted(before)))
            began = scene.break_it()
            alert = _arrival(watchers, fault.alert, began)
            delay = time.time() - began
            time.sleep(AFTER_SECONDS if alert else 0.0)
            others = tuple(sorted(watchers.fired() - {fault.alert}))
            if alert is None:
                return Outcome(fault=fault, others=others)
            return Outcome(
                fault=fault,
                delay=delay,
                severity=alert["labels"]["severity"],
                summary=alert["annotations"]["summary"],
                others=others,
            )
    except NotHere as reason:
        return Outcome(fault=fault, left_out=str(reason))


def _wait_until_scraped(watchers: Watchers) -> None:
    end = time.monotonic() + 60
    while not watchers.ask("up == 1"):
        if time.monotonic() > end:
            raise RuntimeError("Prometheus does not reach what it watches")
        time.sleep(0.1)


def _arrival(watchers: Watchers, name: str, began: float) -> dict[str, Any] | None:
    while time.time() < began + LATE_SECONDS:
        if alert := watchers.arrived().get(name):
            return alert
        time.sleep(0.1)
    return None


def _say(outcome: Outcome) -> None:
    if outcome.left_out:
        said = f"left out: {outcome.left_out}"
    elif outcome.delay is None:
        said = f"{outcome.fault.alert} did not come"
    else:
        said = f"{outcome.fault.alert} after {outcome.delay:.1f} s: {outcome.summary}"
    others = f"; and others fired: {', '.join(outcome.others)}" if outcome.others else ""
    print(f"{outcome.fault.name}: {said}{others}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
