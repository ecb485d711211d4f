"""The code of a version to come: today's with other schemas of records and manifests, in a folder of its own.

    PYTHONPATH=<folder made by `make`> python next_version.py STORE [--kill]

brings STORE to its schemas. With --kill, `migrate --write` is killed with SIGKILL again and again, before its
first write or a few writes later, until it comes to its end; after each kill the store must verify, name the
same champion and have the same history. Prints how often it was killed.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

COMPONENTS = Path(__file__).parents[4] / "components"
UPGRADES = """

def _next_record(values):
    names = {"champion_since": "champion_from", "compared_with": "compared_to"}
    return {names.get(n, n): v for n, v in values.items()} | {"schema": "yanmo.promotion/2"}


def _manifest(values):
    return {"run" if n == "run_id" else n: v for n, v in values.items()} | {"schema": "yanmo.manifest/2"}


UPGRADES["yanmo.promotion/1"] = _next_record
UPGRADES["yanmo.manifest/1"] = _manifest
"""
RENAMED = {
    "yanmo.promotion/1": "yanmo.promotion/2",
    "champion_since": "champion_from",
    "compared_with": "compared_to",
    "yanmo.manifest/1": "yanmo.manifest/2",
}


def make(folder: Path) -> Path:
    """Copy the code and rename what the next version calls otherwise; returns the source root."""
    shutil.copytree(COMPONENTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.match("*/store/upgrades.py"):  # what is upgraded to today's schemas stays
            path.write_text(text + UPGRADES, encoding="utf-8")
            continue
        new = text
        for old, name in RENAMED.items():
            new = new.replace(old, name)
        if path.match("*/store/schema.py"):
            new = new.replace('"run_id": _text', '"run": _text')
        if path.match("*/store/manifest.py"):
            new = new.replace("run_id: str", "run: str")
        path.write_text(new, encoding="utf-8")
    return folder


def tool(*argv: str) -> tuple[int, str]:
    """`yanmo store ...`: its exit code and what it printed."""
    from yanmo.tools.store.command import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(list(argv))
    return code, out.getvalue()


def history(store: str, channel: str) -> dict[str, Any]:
    """Champions of the channel, without what the schemas call them."""
    from yanmo.promote.command import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["history", "--store", store, "--channel", channel, "--json"])
    assert code == 0
    found = json.loads(out.getvalue())
    return {
        "champion": found["champion"]["content_digest"],
        "records": [(r["champion_from"], r["model"]["content_digest"], r["kind"]) for r in found["records"]],
    }


def killed(store: str, moment: int) -> bool:
    """Migrate in a process of its own, which ends before its write number `moment`; whether it was killed."""
    child = os.fork()
    if not child:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from killed_writes import die_at_write

        die_at_write(moment)
        os._exit(tool("migrate", "--store", store, "--write")[0])
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, status
    return False


def main() -> None:
    store, channel = sys.argv[1], "main"
    before = history(store, channel)
    for command in ("ls", "verify", "gc"):  # what is not brought forward is read as it is
        assert tool(command, "--store", store)[0] == 0
    kills = 0
    if "--kill" in sys.argv:
        for moment in itertools.cycle((0, 1, 2, 7)):  # each try gets a little further
            if not killed(store, moment):
                break
            kills += 1
            code, output = tool("verify", "--store", store)
            assert code == 0, f"killed {kills} times, last before write {moment}: {output}"
            assert history(store, channel) == before
    else:
        assert tool("migrate", "--store", store, "--write")[0] == 0
    code, output = tool("migrate", "--store", store)
    assert code == 0 and " 0 to be rewritten" in output, output
    assert tool("verify", "--store", store)[0] == 0
    for _ in range(3):
        code, output = tool("gc", "--store", store, "--older-than", "0", "--delete")
        assert code == 0, output
        assert tool("verify", "--store", store)[0] == 0
        assert history(store, channel) == before
    print(kills)


if __name__ == "__main__":
    main()
