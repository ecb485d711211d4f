"""Do the tests notice a fault? Small faults are put into the product, one at a time, drawn by a seed.

    pip install coverage
    python tests/mutants.py record            # once: which test executes which line, by the quick suite
    python tests/mutants.py run --number 60 --seed 1
    python tests/mutants.py table

In a checkout of its own (`git worktree add ../mutants && cd ../mutants && make install`), as files are
changed and put back. A mutant is a comparison turned, a constant moved, a call dropped, `and` for `or`, a
sign, a bound (`min` for `max`) or a `not` left out; the rooms take turns. Tests that execute its line run,
then those of its room's folder (a pool of processes that outlives a test is written down as the first one's),
and the first that fails kills it. What was found stands in .mutants/results.jsonl; `run` goes on where it
ended.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (ROOT / "components" / "yanmo", ROOT / "pipelines" / "yanmo_pipelines")
KEPT = ROOT / ".mutants"
_SETTINGS = f"""
[run]
parallel = true
source =
    {PRODUCT[0]}
    {PRODUCT[1]}
data_file = {KEPT}/coverage
context = ${{YANMO_TEST-}}
patch =
    subprocess
    _exit
    fork
sigterm = true
"""
_TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in"}
_TURNED |= {"is": "is not", "is not": "is"}
_NONE_COLLECTED = 5
_FIRST = 150
"""Tests that run first, of those that execute a line; the others where these let it pass."""


@dataclass(frozen=True)
class Mutant:
    """A fault: the text from `start` to `end` of a file is replaced."""

    path: str
    line: int
    start: int
    end: int
    becomes: str
    what: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every fault that can be put into a file."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data, name = text.encode(), str(path.relative_to(ROOT))

    def place(node: ast.AST, at_end: bool = False) -> int:
        line, column = (
            (node.end_lineno, node.end_col_offset) if at_end else (node.lineno, node.col_offset)  # type: ignore[attr-defined]
        )
        return starts[line - 1] + column

    def mutant(node: ast.AST, start: int, end: int, becomes: str) -> Mutant:
        was = " ".join(data[start:end].decode().split())[:60]
        return Mutant(name, node.lineno, start, end, becomes, f"{was} -> {becomes}")  # type: ignore[attr-defined]

    def between(node: ast.AST, left: ast.AST, right: ast.AST, turned: dict[str, str]) -> Iterator[Mutant]:
        start, end = place(left, True), place(right)
        word = data[start:end].decode().strip("() \n\\")
        if word in turned:
            at = start + data[start:end].decode().index(word)
            yield mutant(node, at, at + len(word), turned[word])

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                yield from between(node, left, right, _TURNED)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(node, left, right, {"and": "or", "or": "and"})
        elif isinstance(node, ast.BinOp):
            yield from between(node, node.left, node.right, {"+": "-", "-": "+", "*": "+", "//": "*"})
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield mutant(node, place(node), place(node.operand), "")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield mutant(node, place(node), place(node, True), str(node.value + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not ast.unparse(node.value.func).startswith(("log.", "print")):
                yield mutant(node, place(node), place(node, True), "pass")
        elif isinstance(node, ast.Name) and node.id in ("min", "max"):
            yield mutant(node, place(node), place(node, True), {"min": "max", "max": "min"}[node.id])


def drawn(number: int, seed: int) -> list[Mutant]:
    """As many mutants, the rooms in turn."""
    chance, rooms = random.Random(seed), defaultdict(list)
    for path in sorted(path for product in PRODUCT for path in product.rglob("*.py")):
        rooms[_room(str(path.relative_to(ROOT)))].append(path)
    found: list[Mutant] = []
    while len(found) < number:
        for room in sorted(rooms):
            every = [one for path in rooms[room] for one in mutants_of(path)]
            left = [one for one in every if one not in found]
            found += [chance.choice(left)] if left else []
    return found[:number]


def _room(path: str) -> str:
    first, _, room, *_ = Path(path).parts
    return room if first == "components" else first


def record() -> None:
    """Run the quick suite and note which test executes which line, also in the processes that it starts."""
    KEPT.mkdir(exist_ok=True)
    settings = KEPT / "coveragerc"
    settings.write_text(_SETTINGS)
    environment = {**os.environ, "MUTANTS": "record", "PYTHONPATH": str(ROOT / "tests")}
    suite = ["-m", "pytest", "-q", "-p", "mutants", "-n", "2", "--dist", "loadfile", "--quick"]
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "run", f"--rcfile={settings}", *suite], cwd=ROOT, env=environment, check=False)
    subprocess.run([*coverage, "combine", f"--rcfile={settings}"], cwd=ROOT, check=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """While recording: what runs from now on, here and in processes started from here, is this test's."""
    if os.environ.get("MUTANTS") == "record":
        import coverage

        os.environ["YANMO_TEST"] = item.nodeid
        if running := coverage.Coverage.current():
            running.switch_context(item.nodeid)
    return (yield)


def tests_of(mutant: Mutant, seed: int) -> list[str]:
    """The tests that execute its line, in a drawn order; of a line that runs at import, its file's."""
    from coverage import CoverageData

    data = CoverageData(str(KEPT / "coverage"))
    data.read()
    lines = data.contexts_by_lineno(str(ROOT / mutant.path))
    own = {test for name in lines.get(mutant.line, ()) for test in [name.rpartition("|")[2]] if "::" in test}
    if not own:
        own = {n.rpartition("|")[2] for names in lines.values() for n in names if "::" in n}
    return random.Random(seed).sample(sorted(own), len(own))


def killed_by(mutant: Mutant, tests: list[str]) -> str:
    """The test that fails with it; "" where all pass, those of its room too."""
    room = _room(mutant.path)
    own = "pipelines" if room == "pipelines" else f"components/{room}"
    own = f"components/test_{room}" if room.endswith(".py") else own
    others = [*([f"tests/{own}"] if (ROOT / "tests" / own).exists() else []), "tests/test_what_stays.py"]
    path = ROOT / mutant.path
    before = path.read_bytes()
    path.write_bytes(before[: mutant.start] + mutant.becomes.encode() + before[mutant.end :])
    try:
        for part in filter(None, (tests[:_FIRST], tests[_FIRST:], others)):
            done = _tested(part, "-n", "2")
            if done.returncode == _NONE_COLLECTED:  # so xdist ends too where a module cannot be collected
                done = _tested(part)
            if done.returncode not in (0, _NONE_COLLECTED):
                lines = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
                return (*lines, f"pytest ended with {done.returncode}")[0][:160]
    except subprocess.TimeoutExpired:
        return "it hangs"
    finally:
        path.write_bytes(before)
    return ""


def _tested(part: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--quick"]
    return subprocess.run(
        [*command, *options, *part], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


def run(number: int, seed: int) -> None:
    """Try each mutant that was not tried yet."""
    clean = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True)
    if [line for line in clean.stdout.splitlines() if not line.startswith("??")]:
        sys.exit("commit what is changed first: files are put back as they were at the beginning")
    tried = {(one["path"], one["start"], one["becomes"]) for one in results()}
    for mutant in drawn(number, seed):
        if (mutant.path, mutant.start, mutant.becomes) in tried:
            continue
        tests = tests_of(mutant, seed)
        by = killed_by(mutant, tests)
        with (KEPT / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({**asdict(mutant), "tests": len(tests), "by": by}, ensure_ascii=False) + "\n"
            )
        print(f"{'killed' if by else 'LIVES'} {mutant.path}:{mutant.line} {mutant.what}", flush=True)


def results() -> list[dict[str, Any]]:
    """What was found so far."""
    path = KEPT / "results.jsonl"
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


def table() -> str:
    """Killed and living mutants by room, and those that live."""
    found, lives = Counter[tuple[str, bool]](), []
    for one in results():
        is_killed = bool(one["by"])
        found[_room(one["path"]), is_killed] += 1
        if not is_killed:
            lives.append(f"- {one['path']}:{one['line']} {one['what']} ({one['tests']} tests)")
    rooms = sorted({room for room, _ in found})
    rows = [f"| {room} | {found[room, True]} | {found[room, False]} |" for room in rooms]
    sums = [sum(n for (_, is_killed), n in found.items() if is_killed == which) for which in (True, False)]
    return "\n".join(
        ["| room | killed | live |", "|---|---|---|", *rows, f"| all | {sums[0]} | {sums[1]} |", *lives]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("record", "run", "table"))
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.do == "record":
        record()
    elif asked.do == "run":
        run(asked.number, asked.seed)
    print(table())


if __name__ == "__main__":
    main()
