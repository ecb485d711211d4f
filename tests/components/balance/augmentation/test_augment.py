"""Augmented documents in the stage's output: named, repeatable, on the train side only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from yanmo.balance.augmentation.augment import Augmented, Augmenter, HeldOut, copy_digest
from yanmo.balance.augmentation.rules import parse_rules
from yanmo.balance.augmentation.synonyms import CLASSICAL_WORDS, Synonyms
from yanmo.balance.quotas.choice import plan_of_classes
from yanmo.chinese.text_runs import run_hashes
from yanmo.common.errors import UsageError

Run = Callable[..., Any]
ALL = "*:synonym=0.5,*:reorder=0.5,*:insert=0.3,*:delete=0.1"
GOLDEN = "9299f5d0f05b307f"


def test_augmented_output_is_the_same_as_ever(balance: Run) -> None:
    digest = balance("--quotas", "*=250%", "--augment", ALL).output().content_digest[:16]
    assert digest == GOLDEN, (
        "augmentation gives other texts for the same documents. If it was meant, raise STAGE.revision in "
        "yanmo/balance/config.py and pin the new digest here."
    )


def test_an_augmented_document_names_its_parent_and_rules_keeps_verse_and_shares_nothing_held_out(
    balance: Run,
) -> None:
    balanced = balance("--quotas", "*=300%", "--augment", ALL)
    originals = {row["id"]: row for row in balanced.rows("train", "curate")}
    rows = balanced.rows()
    assert len({row["id"] for row in rows}) == len(rows) and rows == sorted(rows, key=lambda r: r["id"])
    changed = 0
    for row in rows:
        if row["rule"] is None:
            assert row == originals[row["id"]]
            continue
        parent = originals[row["parent_id"]]
        same = {name for name in row if row[name] == parent[name]}
        assert {"genre", "title", "author", "source", "license", "split", "labels"} <= same
        assert (row["text"] == parent["text"]) == (row["rule"] == "repeat")
        changed += row["rule"] != "repeat"
        if row["genre"] in ("诗", "词"):
            assert len(row["text"]) == len(parent["text"])
            assert set(row["rule"].split("+")) <= {"synonym", "reorder", "repeat"}
    assert changed > len(originals)
    assert {row["id"] for row in rows if row["rule"] is None} == originals.keys()
    assert balanced.rows("valid") == balanced.rows("valid", "curate")
    evaluation_set = balanced.output("curate").part("evaluation_set")
    held_out = [t for p in evaluation_set.paths("*.parquet") for t in pq.read_table(p)["text"].to_pylist()]
    augmented = [row["text"] for row in rows if row["rule"] not in (None, "repeat")]
    known = set(run_hashes(held_out, 13)[0].tolist())
    assert known and not known & set(run_hashes(augmented, 13)[0].tolist())


def test_a_copy_that_would_repeat_held_out_text_stays_plain() -> None:
    words = Synonyms({"舟": ("船",)}, frozenset())
    parent = "孤舟蓑笠翁独钓寒江雪千山鸟飞绝"
    held_out = HeldOut([["序曰孤船蓑笠翁独钓寒江雪千山，鸟飞。"]])
    rules = parse_rules("wen:synonym=1")
    document = ("ab" * 32, "文", parent, 1, True)
    free = Augmenter(rules, words, HeldOut([]), 0)
    assert free.copies([document])[0].rule == "synonym"
    guarded = Augmenter(rules, words, held_out, 0)
    assert guarded.copies([document]) == [Augmented(parent, "repeat", shared=True)]


def test_texts_with_loss_spans_are_left_alone() -> None:
    augmenter = Augmenter(parse_rules("synonym=1"), Synonyms({"舟": ("船",)}, frozenset()), HeldOut([]), 0)
    assert augmenter.copies([("ab" * 32, "文", "孤舟", 1, False)])[0].text == "孤舟"


def test_copies_differ_and_belong_to_seed_id_and_number() -> None:
    text = "秋日登高望远，悲风起于林薮，舟行溪中，酒尽灯残，客归故里，思念旧友。" * 3

    def made(seed: int, id: str, copy: int) -> str:
        augmenter = Augmenter(parse_rules("synonym=0.5"), Synonyms.read(CLASSICAL_WORDS), HeldOut([]), seed)
        return augmenter.copies([(id, "文", text, copy, True)])[0].text

    first = made(0, "a" * 64, 1)
    assert first == made(0, "a" * 64, 1) != text
    others = (made(1, "a" * 64, 1), made(0, "b" * 64, 1), made(0, "a" * 64, 2))
    assert all(other != first for other in others)


def test_the_output_does_not_depend_on_files_or_classes(balance: Run) -> None:
    arguments = ("--quotas", "wen=250%,shi=150%", "--augment", ALL)
    rows = balance(*arguments).rows()
    assert balance(*arguments, "--shard-characters", "3000").rows() == rows
    assert balance(*arguments, "--seed", "1").rows() != rows


def test_quotas_are_exact_with_texts_that_change_their_length(balance: Run) -> None:
    balanced = balance("--quotas", "wen=12000", "--augment", "wen:delete=0.1,wen:insert=0.1")
    assert balanced.characters("文") == 12000
    rules = balanced.report()["augmentation"]["rules"]
    assert balanced.report()["augmentation"]["shared"] == 0, "no copy has a run of held-out text"
    assert rules["insert+delete"] > 5


def test_any_number_of_workers_gives_the_same_bytes(balance: Run) -> None:
    """Two begin where there are more than a few tasks."""
    arguments = ("--quotas", "*=250%", "--augment", ALL, "--shard-characters", "2000", "--force")
    alone, two = (balance(*arguments, f"--workers={n}").output().manifest for n in (1, 2))
    assert len([e for e in alone.files if e.path.startswith("train-")]) > 8
    assert (alone.key, alone.content_digest) == (two.key, two.content_digest)


def test_a_dictionary_of_the_users_is_part_of_the_key(balance: Run, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    arguments = ("--quotas", "*=200%", "--augment", "synonym=1", "--synonyms", str(path))
    keys = []
    for words in ("舟 船\n", "人 士\n"):
        path.write_text(words, encoding="utf-8")
        balanced = balance(*arguments)
        keys.append(balanced.output().manifest.key)
        changed = {r["parent_id"]: r["text"] for r in balanced.rows() if r["rule"] == "synonym"}
        originals = {r["id"]: r["text"] for r in balanced.rows("train", "curate")}
        pairs = [p for parent, text in changed.items() for p in zip(originals[parent], text, strict=True)]
        assert {"".join(sorted(pair)) for pair in pairs if pair[0] != pair[1]} == {
            "".join(sorted(words.split()))
        }
    assert keys[0] != keys[1]
    path.write_text("nothing\n", encoding="utf-8")
    balance(*arguments, expect=65)


def test_rules_that_never_act_are_reported(balance: Run) -> None:
    report = balance("--quotas", "", "--augment", "wen:synonym=0.5").report()
    assert any("no document is repeated" in text for text in report["warnings"])


def test_rules_for_a_genre_that_is_not_there_are_refused_with_those_that_are(
    balance: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    balance("--quotas", "wen=200%", "--augment", "wen:synonym=0.5,shuo:synonym=0.1", expect=64)
    assert re.search("--augment: no documents of genre 说; there are .*文", capsys.readouterr().err)


def test_classes_that_are_crossed_may_be_written_with_aliases() -> None:
    plan = plan_of_classes("shi/唐=5,*=1", ["诗/唐", "诗/宋"], "genre+dynasty")
    assert {name: str(quota) for name, quota in plan.quotas.items()} == {"诗/唐": "5", "诗/宋": "1"}
    with pytest.raises(UsageError, match="诗 is named twice"):
        plan_of_classes("shi=5,诗=6", ["诗"], "genre")


def test_ids_of_copies_are_those_of_parent_and_number_and_of_a_changed_text() -> None:
    plain = hashlib.sha256(b"ab\0repeat\x001").digest()
    assert copy_digest("ab", 1) == copy_digest("ab", 1, Augmented("x", "repeat")) == plain
    changed = [copy_digest("ab", 1, Augmented(text, "synonym")) for text in ("x", "y")]
    assert len({plain, *changed}) == 3
