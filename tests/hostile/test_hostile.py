"""A drawn part of the hostile cases in every run of the tests; `make torture` does them all.

The draw is another each time, but in CI, whose verdict is about the commit. The seed is in the message of a
failure, and YANMO_HOSTILE_SEED=N draws the same again. `make torture TORTURE="--store file --only hostile"`
draws nothing: it tries all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.s3 import S3Server
from torture.place import S3Place

from hostile import folders, formats, options, store_files
from hostile.cases import Case, attempt
from hostile.engine import Ended, Engine
from hostile.ground import Ground, look
from hostile.rule import Expected, judge, message_of
from hostile.s3_ground import S3Ground, is_of_a_bucket
from yanmo.common.log_lines import formatter

CI_SEED = 16
SEED = int(
    os.environ.get("YANMO_HOSTILE_SEED")
    or (CI_SEED if os.environ.get("CI") else random.SystemRandom().randrange(10**6))
)
AGAIN = f"YANMO_HOSTILE_SEED={SEED} draws this again"
WITH_TORCH = ("train", "evaluate", "tokenizer", "model", "run")
READERS = ("balance", "resolve", "store-show", "store-ls", "cache-show", "promote-history")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def drawn(family: str, ground: Ground, count: int) -> list[Case]:
    """So many cases of a family, without those that train a model when they are not refused.

    They are drawn by their names: a new option changes the draw by its own cases alone.
    """
    found = {
        "options": lambda: options.cases(SEED, ground),
        "formats": lambda: formats.cases(SEED, ground),
        "store": lambda: store_files.cases(SEED, ground, names=READERS),
        "folders": lambda: folders.cases(SEED, ground),
    }[family]()
    quick = [case for case in found if case.argv[0] not in WITH_TORCH or 0 not in case.expected.codes]
    return sorted(quick, key=lambda case: hashlib.sha256(f"{SEED}/{case.name}".encode()).digest())[:count]


@pytest.mark.fault(few=1)
@pytest.mark.parametrize(
    ("family", "count"), [("options", 60), ("formats", 25), ("store", 40), ("folders", 12)]
)
def test_what_is_hostile_ends_by_the_one_rule(
    family: str, count: int, ground: Ground, engine: Engine
) -> None:
    bad = {}
    for case in drawn(family, ground, count):
        tried = attempt(case, ground, engine)
        if tried.findings:
            bad[case.name] = tried.findings
    assert not bad, f"{AGAIN}: {bad}"


def test_in_a_bucket_it_ends_by_the_same_rule(
    tmp_path: Path, ground: Ground, engine: Engine, s3_server: S3Server, s3_place: str
) -> None:
    in_bucket = S3Ground(tmp_path, place=S3Place.new(s3_server, s3_place, tmp_path))
    in_bucket.take_template(ground)
    bad = {}
    for family, count in (("options", 4), ("store", 6)):
        cases = [case for case in drawn(family, ground, 200) if is_of_a_bucket(case)]
        for case in cases[:count]:
            tried = attempt(case, in_bucket, engine)
            if tried.findings:
                bad[case.name] = tried.findings
    assert not bad, f"{AGAIN}: {bad}"


@pytest.mark.fault
def test_a_command_from_a_shell_ends_as_a_forked_one(ground: Ground, engine: Engine) -> None:
    for case in drawn("options", ground, 3):
        forked, fresh = (attempt(case, ground, engine, forked=f) for f in (True, False))
        assert fresh.findings == [] and fresh.ended.code == forked.ended.code, f"{AGAIN}: {fresh}"


ENDED = Ended(
    65, "", "12:00:00 curate   x.jsonl: expected text; look at it\n", 0.1, 0.1, 1 << 20, False, "", []
)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"code": 70}, "exit code 70"),
        ({"code": 1}, "exit code 1"),
        ({"code": 75}, "expected 65"),
        ({"code": 0}, "expected 65"),
        ({"stderr": ""}, "it says nothing"),
        ({"stderr": "12:00:00 curate   x.jsonl: expected text; run the same command again\n"}, "try again"),
        ({"stderr": "12:00:00 curate   x.jsonl: bad\n"}, "does not say what to do"),
        ({"stderr": "12:00:00 curate   expected text; look at it\n"}, "names none of x.jsonl"),
        ({"stderr": "12:00:00 curate   x.jsonl: [Errno 13] look\n"}, "words of the machinery"),
        ({"stderr": "12:00:00 curate   x.jsonl: look at \x1b[31m it\n"}, "cannot be printed"),
        ({"stderr": f"12:00:00 curate   x.jsonl: look at {'x' * 1000}\n"}, "a message of"),
        ({"stderr": "12:00:00 curate   x.jsonl: look\n  at it\n"}, "more than a line"),
        ({"seconds": 11.0, "cpu": 11.0}, "it took 11 s"),
        ({"bytes": 1 << 30}, "MiB of memory"),
        ({"killed": "it did not end within 60 s"}, "did not end"),
        ({"stopped": True, "code": 143}, "it waited"),
        ({"stopped": True, "code": 70, "cpu": 9.0}, "ended with 70"),
        ({"left": ["python -m yanmo"]}, "left behind"),
    ],
)  # fmt: skip
def test_the_rule_sees_what_is_against_it(change: dict[str, object], finding: str) -> None:
    expected = Expected((65,), ("x.jsonl",))
    assert judge(ENDED, expected, {}, {}) == []
    found = judge(dataclasses.replace(ENDED, **change), expected, {}, {})  # type: ignore[arg-type]
    assert any(finding in each for each in found), found


@pytest.mark.parametrize("form", ["plain", "keyvalue", "json"])
def test_the_rule_reads_the_log_in_each_of_its_forms(form: str) -> None:
    lines = formatter(form, "curate")
    said = ["making x", "x.jsonl: expected text; look at it", "curate error 65: x.jsonl: expected..."]
    records = [logging.LogRecord("x", logging.ERROR, "", 0, text, (), None) for text in said]
    ended = dataclasses.replace(ENDED, stderr="".join(f"{lines.format(record)}\n" for record in records))
    assert message_of(ended) == said[1] and judge(ended, Expected((65,), ("x.jsonl",)), {}, {}) == []
    cut = dataclasses.replace(ENDED, stderr=f"{lines.format(records[0])}\n")
    assert judge(cut, Expected((65,)), {}, {}) == ["it does not say what to do: making x"]


def test_the_rule_sees_what_became_of_the_store(tmp_path: Path) -> None:
    pointer, manifest = tmp_path / "pointers/dev/train.json", tmp_path / "cas/curate/0/MANIFEST.json"
    for path in (pointer, manifest):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    before = look(tmp_path)
    pointer.write_text("{ }")
    manifest.rename(manifest.with_name("MANIFEST-old.json"))
    found = judge(ENDED, Expected((65,)), before, look(tmp_path))
    assert [each.partition(" ")[2].rpartition(" ")[2] for each in found] == ["appeared", "gone", "changed"]
    assert judge(ENDED, Expected((65,), may_commit=("curate",)), before, look(tmp_path))[0].endswith("gone")


@pytest.mark.process
def test_a_name_alone_does_a_case_again(ground: Ground) -> None:
    found = [case for case in options.cases(SEED, ground) if "&" in case.name]
    assert len(found) == 6 * options.PAIRS
    for case in found[::50]:
        again = options.named(case.name)
        assert (again.argv, again.expected) == (case.argv, case.expected)


@pytest.mark.fault
def test_what_a_case_changed_is_mended(ground: Ground) -> None:
    def at(folder: Path) -> dict[str, str]:
        return look(folder) | {f"{p}": oct(p.stat().st_mode) for p in folder.rglob("*") if p.is_dir()}

    ground.touch()
    ground.renew()
    whole = at(ground.case)
    pointer = next((ground.store / "pointers").rglob("curate.json"))
    changes = {
        "a byte": lambda: pointer.write_bytes(pointer.read_bytes()[:-1] + b" "),
        "a link": lambda: (pointer.unlink(), pointer.symlink_to("nowhere")),
        "a folder": lambda: (pointer.unlink(), pointer.mkdir(), (pointer / "x").touch()),
        "more": lambda: ((ground.store / "cas/x/y").mkdir(parents=True), (ground.case / "z").touch()),
        "less": lambda: shutil.rmtree(pointer.parent),
        "a mode": lambda: pointer.parent.chmod(0o500),
        "what is odd": lambda: (ground.inputs / "fifo").unlink(),
    }
    for label, change in changes.items():
        change()
        assert at(ground.case) != whole, label
        ground.touch()
        ground.renew()
        assert at(ground.case) == whole, label
