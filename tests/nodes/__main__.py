"""`make nodes`, or `PYTHONPATH=tests python -m nodes`: faults on several nodes of this machine (Linux, root).

First the same training is laid out on 1, 2 and 4 nodes in every way: no digit may differ. Then each case of
a seeded plan: nodes in network namespaces of their own, one of them killed, cut off, slowed, with a full
disk or a wrong clock. Cases that were run are noted, and a later sitting goes on after them
(`--again 5 16` runs two of them once more). Each has to
end in the model that nothing disturbed, at once or after the same command was given again. Exit code 0
where nothing was found, 1 where something was, 78 where this machine lacks what is needed. docs/nodes-
faults.md says what was measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torture.ground import commit, machine

from nodes.faults import Outcome, Undisturbed, as_text, fresh, play, undisturbed
from nodes.network import Network, NotHere, enter
from nodes.plan import KINDS, cases
from nodes.table import RECORD, write_tables
from nodes.training import small_disk

LAYOUTS = {2: ((1, 2), (2, 1)), 4: ((1, 4), (2, 2), (4, 1))}
"""Ranks in all -> (nodes, ranks on each)."""
DISK_MEGABYTES = 256


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="make nodes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=20, metavar="N", help="faults (20)")
    parser.add_argument("--seed", type=int, default=20, metavar="S", help="of the plan (20)")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="these faults in turn")
    parser.add_argument(
        "--again", type=int, nargs="+", default=[], metavar="NUMBER", help="run these of the plan once more"
    )
    default = Path("runs/nodes.json")
    parser.add_argument(
        "--record", type=Path, default=default, metavar="FILE", help=f"of cases run ({default})"
    )
    parser.add_argument("--docs", action="store_true", help="write docs/nodes-faults.md and .zh.md")
    given = parser.parse_args()
    try:
        enter()
        found = _sit(given)
    except NotHere as reason:
        print(reason, file=sys.stderr)
        return 78
    print(f"{len(found)} findings" + "".join(f"\n- {finding[:2000]}" for finding in found))
    return 1 if found else 0


def _sit(given: argparse.Namespace) -> list[str]:
    path = RECORD if given.docs else given.record
    record = _record(path, given.seed)
    planned = cases(given.seed, given.cases, tuple(given.only))
    planned = [c for c in planned if c.number in given.again] or planned[len(record["cases"]) :]
    folder = Path(tempfile.mkdtemp(prefix="yanmo-nodes-"))
    found: list[str] = []
    try:
        with small_disk(folder / "disk", DISK_MEGABYTES):
            template = _template(folder)
            network = Network(4)
            if not record["expected"]:
                found += _layouts(network, template, folder, record)
            for case in planned:
                expected = Undisturbed(**record["expected"][str(case.layout[0] * case.layout[1])])
                store = fresh(template, folder / "disk" / "store")
                logs = folder / f"case-{case.number}"
                outcome = play(case, network, store, logs, expected)
                note(record, outcome)
                _say(as_text(outcome))
                _keep(path, record, in_docs=given.docs)
                found += [f"case {case.number}, {case.kind}: {finding}" for finding in outcome.findings]
                if not outcome.findings:
                    shutil.rmtree(logs, ignore_errors=True)
    finally:
        if not found:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _say(f"logs: {folder}")
    return found


def _record(path: Path, seed: int) -> dict[str, Any]:
    """That of the cases before, by the same plan, or a new one."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        record = {"seed": None}
    if record["seed"] != seed:
        record = {"seed": seed, "commits": [], "machine": machine(), "expected": {}, "cases": []}
    record["commits"] = sorted({*record["commits"], commit()})
    return record


def note(record: dict[str, Any], outcome: Outcome) -> None:
    """Put it in the place of an earlier one of the same number, or after the last."""
    others = [one for one in record["cases"] if one["case"]["number"] != outcome.case.number]
    record["cases"] = sorted([*others, outcome.to_json()], key=lambda one: one["case"]["number"])


def _keep(path: Path, record: dict[str, Any], *, in_docs: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if in_docs:
        write_tables(record)


def _template(folder: Path) -> Path:
    """A store with a token cache of real texts: that of the tests of train."""
    import importlib.util

    path = Path(__file__).parents[1] / "components/train/conftest.py"
    spec = importlib.util.spec_from_file_location("of_train", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Path(module.make_store(folder / "template"))


def _layouts(network: Network, template: Path, folder: Path, record: dict[str, Any]) -> list[str]:
    """Note the undisturbed model by its ranks; what differs between layouts of one is found."""
    found, expected = list[str](), dict[int, Undisturbed]()
    for world, layouts in LAYOUTS.items():
        for layout in layouts:
            began = time.monotonic()
            store = fresh(template, folder / "disk" / "store")
            one = undisturbed(network, store, layout, folder / "layouts")
            seconds = round(time.monotonic() - began, 1)
            _say(f"{layout[0]} x {layout[1]}: {one.digest[:12]}, last loss {one.losses[-1]!r}, {seconds} s")
            if one != expected.setdefault(world, one):
                found.append(f"{layout}: other digits than {layouts[0]}")
    two, four = expected[2].losses, expected[4].losses
    record["expected"] = {str(world): asdict(one) for world, one in expected.items()}
    record["difference"] = max(abs(a - b) / b for a, b in zip(four, two, strict=True))
    _say(f"between 2 ranks and 4: at most {record['difference']:.1e} of a loss")
    return found


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
