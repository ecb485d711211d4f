"""Every folder that a command writes or reads, in every state in which it is of no use.

Root may do everything, so folders that a user may not use are tried without root's powers, and read-only ones
by a mount. All of it is this machine's (78), a full disk too, or the command line's (64).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chaos.disk import may_mount
from chaos.hostile.cases import Situation
from chaos.hostile.commands import COMMANDS
from chaos.hostile.rule import DATA, ENVIRONMENT, USAGE, Expected
from chaos.hostile.store import Store
from chaos.hostile.store_files import OTHER_KEY

STOP_AFTER = 20.0
_PAGE, _NOBODY = 4096, 65534


@dataclass(frozen=True)
class State:
    """What is wrong with a folder."""

    bring_about: Callable[[Path], None]
    codes: tuple[int, ...]
    powerless: bool = False
    mounts: bool = False


def _not_ours(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, _NOBODY, _NOBODY, follow_symlinks=False)


def _only_read(path: Path) -> None:
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o555)


def _read_only(path: Path) -> None:
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)


def _small(options: Callable[[int, int], str]) -> Callable[[Path], None]:
    """A tmpfs with what was in the folder, and next to nothing free."""

    def mount(path: Path) -> None:
        before = path.with_name(f".{path.name}-before")
        path.rename(before)
        path.mkdir()
        names = list(before.rglob("*"))
        used = sum(
            -(-p.lstat().st_size // _PAGE) * _PAGE for p in names if p.is_file() and not p.is_symlink()
        )
        option = options(used + 2 * _PAGE, len(names) + 3)
        subprocess.run(["mount", "-t", "tmpfs", "-o", option, "none", str(path)], check=True)
        subprocess.run(["cp", "-a", f"{before}/.", str(path)], check=True)  # pipes and links to nothing too
        shutil.rmtree(before)

    return mount


def _instead(place: Callable[[Path], object]) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        shutil.rmtree(path)
        place(path)

    return put


_NOT_USABLE = (0, USAGE, ENVIRONMENT)
_NOT_THERE = (0, USAGE, DATA, ENVIRONMENT)
STATES = {
    "closed": State(lambda path: path.chmod(0), _NOT_USABLE, powerless=True),
    "only to be read": State(_only_read, _NOT_USABLE, powerless=True),
    "another's": State(_not_ours, _NOT_USABLE, powerless=True),
    "read-only": State(_read_only, _NOT_USABLE, mounts=True),
    "full": State(_small(lambda size, count: f"size={size}"), (0, ENVIRONMENT), mounts=True),
    "without inodes": State(_small(lambda size, count: f"nr_inodes={count}"), (0, ENVIRONMENT), mounts=True),
    "gone": State(shutil.rmtree, _NOT_THERE),
    "a file": State(_instead(lambda path: path.write_text("x")), _NOT_THERE),
    "a pipe": State(_instead(os.mkfifo), _NOT_THERE),
    "a broken link": State(_instead(lambda path: path.symlink_to("nowhere")), _NOT_THERE),
    "a loop": State(_instead(lambda path: path.symlink_to(path.name)), _NOT_THERE),
}
PLACES = ("store", "store/cas", "store/pointers", "store/pointers/chaos", "store/runs")
PLACES += ("scratch", "cwd", "in", "out")


def situations(seed: int, store: Store) -> Iterator[Situation]:
    """Every command in every place in every state."""
    cannot = may_mount()
    for command in COMMANDS.values():
        if command.name in ("run", "tokenizer-compare", "promote-rollback"):  # nothing to roll back to
            continue
        argv = command.line(*([OTHER_KEY[command.name]] if command.is_stage else []))
        for place in PLACES:
            for label, state in STATES.items():
                if not (state.mounts and cannot) and _matters(argv, place, label):
                    yield _case(command.name, argv, place, label, state)


def _matters(argv: tuple[str, ...], place: str, label: str) -> bool:
    """Whether the command is told of the place, and can be in it."""
    if place == "cwd":
        return label in ("only to be read", "another's", "read-only", "full", "gone")
    return any(f"@{place.split('/')[0]}" in word or f"@case/{place}" in word for word in argv)


def _case(name: str, argv: tuple[str, ...], place: str, label: str, state: State) -> Situation:
    def prepare(store: Store) -> None:
        for folder in ("scratch", "out"):
            (store.case / folder).mkdir(exist_ok=True)
        if not is_gone:
            state.bring_about(store.case / place)

    is_gone = (place, label) == ("cwd", "gone")
    codes = state.codes + ((DATA,) if place in ("in", "out") else ())
    codes += COMMANDS[name].codes if place == "cwd" else ()
    commits = COMMANDS[name].commits
    if place in ("store/pointers", "store/pointers/chaos", "store/runs", "out"):
        # The output is whole and stays; the next run finds it and only moves the pointer. What a full disk
        # below runs/ leaves of an attempt is not seen apart from it: gc removes that.
        commits = (*commits, *((name,) if COMMANDS[name].is_stage else ("train", "tokenizer")))
    # A cluster that does not answer is what ends those commands, wherever they run.
    names = () if COMMANDS[name].asks_a_cluster else (place.split("/")[0], f"--{place}")
    expected = Expected(codes, names, commits, COMMANDS[name].says_on_stdout)
    return Situation(
        f"{name}/{place.replace('/', ':')} {label}",
        argv,
        expected,
        prepare,
        powerless=state.powerless,
        gone=is_gone,
        stop_after=STOP_AFTER,
    )
