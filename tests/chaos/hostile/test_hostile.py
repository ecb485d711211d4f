"""A drawn part of the hostile situations in every run of the tests; `make chaos` tries more.

The draw is another for each commit (tests/selection.py); YANMO_DRAW=COMMIT draws the same again.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import selection
from servers.s3 import S3Server

from chaos.ground import Ground
from chaos.hostile import folders, formats, options, store_files
from chaos.hostile.cases import Family, Situation, attempt, drawn
from chaos.hostile.engine import Ended
from chaos.hostile.rule import Expected, judge, message_of
from chaos.hostile.store import ALL, DATA, Store, look
from chaos.place import S3Place
from yanmo.common.logs import formatter

SEED = int(selection.draw()[:6].ljust(1, "0"), 36)
TRAIN = ("train", "evaluate", "tokenizer", "model", "run")
"""Commands that are tried here only with what they must refuse: else they train for seconds."""
OF_DATA = ("curate", "balance", "tokenize", "cache", "compile")
"""Commands that need no model in the store."""
FAMILIES: dict[str, tuple[Family, int, int]] = {
    "options": (options.situations, 10, 60),
    "formats": (formats.situations, 6, 25),
    "store": (
        functools.partial(store_files.situations, names=("balance", "store-verify", "cache-show")),
        6,
        40,
    ),
    "folders": (folders.situations, 5, 12),
}
"""Family -> its situations, and how many are drawn in the quick tests and in all of them."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Store]:
    stages = DATA if request.config.getoption("--quick") else ALL
    made = Store(tmp_path_factory.mktemp("hostile"), stages)
    yield made
    made.clear()


def findings(family: Family, count: int, store: Store) -> dict[str, list[str]]:
    """What so many drawn situations of a family find, by name."""

    def is_cheap(one: Situation) -> bool:
        if store.stages == DATA and one.argv[0] not in OF_DATA:
            return one.argv[:2] == ("store", "verify") or one.expected.codes == (64,)
        return one.argv[0] not in TRAIN or 0 not in one.expected.codes

    found = drawn(family, Ground("file", store.folder, SEED, count=10**6), store)
    tried = {one.name: attempt(one, store)[1] for one in list(filter(is_cheap, found))[:count]}
    assert len(tried) == count
    return {name: found for name, found in tried.items() if found}


@pytest.mark.fault(few=1)
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_hostile_ends_by_the_one_rule(name: str, store: Store) -> None:
    family, few, many = FAMILIES[name]
    assert findings(family, many if store.stages == ALL else few, store) == {}, f"seed {SEED}"


@pytest.mark.fault
def test_in_a_bucket_it_ends_by_the_same_rule(store: Store, s3_server: S3Server, s3_place: str) -> None:
    in_bucket = dataclasses.replace(store, place=S3Place.new(s3_server, s3_place, store.folder))
    assert findings(FAMILIES["options"][0], 4, in_bucket) == {}, f"seed {SEED}"
    assert findings(FAMILIES["store"][0], 6, in_bucket) == {}, f"seed {SEED}"


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


@pytest.mark.parametrize("form", ["plain", "json"])
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
