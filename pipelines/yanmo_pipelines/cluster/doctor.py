"""`yanmo doctor`: what an installation lacks, each finding with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode, advice, exit_code
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.options.shared import StoreOptions
from yanmo_pipelines.cluster.checks import CHECKS, EXIT_CODES, Asked, Finding, State
from yanmo_pipelines.cluster.kubernetes_api import NoCluster
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.refusals import Forbidden
from yanmo_pipelines.pod_options import PodOptions

_MARK: dict[State, str] = dict(zip(EXIT_CODES, ("ok", "note", "-", "?", "AWAY", "BAD"), strict=True))


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(PlaceOptions, PodOptions, StoreOptions, group="doctor"):
    """Check an installation: KFP, Kubernetes, store and room; say what to do about each finding.

    Exit code, by the worst finding: 0 nothing to mend, 77 something may not be asked, 75 somebody does not
    answer now, 78 something is to be mended.
    """

    store: str = opt(
        "",
        "store whose bucket is tried, s3://bucket/prefix; default: what a mounted Secret says",
        often=True,
        variable="YANMO_STORE",
    )
    only: tuple[str, ...] = opt(
        (),
        "check only this, may be given many times",
        choices=tuple(CHECKS),
        metavar="CHECK",
        often=True,
    )
    json: bool = opt(False, "print one JSON object a line for each finding", often=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the checks; returns the exit code of the worst finding."""

    def serve() -> int:
        options = load(DoctorOptions, default_argv(argv), "yanmo doctor")
        setup(options.log_level, "doctor", options.log_format)
        worst: State = "ok"
        for finding in _findings(options):
            answer(json.dumps(finding.as_json(), ensure_ascii=False) if options.json else _shown(finding))
            worst = max(worst, finding.state, key=list(EXIT_CODES).index)
        return EXIT_CODES[worst]

    return ended("doctor", serve)


def _findings(options: DoctorOptions) -> Iterator[Finding]:
    """Yield what each check finds; one that cannot be made says why."""
    asked = Asked(options)
    for name in options.only or CHECKS:
        try:
            yield from CHECKS[name](asked)
        except (OSError, ValueError, RuntimeError) as error:
            yield _failed(name, error)


def _failed(check: str, error: Exception) -> Finding:
    """A check that ended in an error, whose message says what to do."""
    may_not = isinstance(error, Forbidden) and check not in ("auth", "kfp")
    if isinstance(error, NoCluster) or may_not:
        return Finding(check, "unasked", advice(error))
    code = exit_code(error)
    if code == ExitCode.BUG:
        raise error
    return Finding(check, "away" if code == ExitCode.RETRY else "bad", advice(error))


def _shown(finding: Finding) -> str:
    indent, mark = " " * 18, _MARK[finding.state]
    line = f"{mark:<5} {finding.check:<11} {finding.said}"
    remedy = finding.remedy.replace("\n", f"\n{indent}   ")
    return line + (f"\n{indent}-> {remedy}" if remedy else "")


if __name__ == "__main__":
    as_process(main)
