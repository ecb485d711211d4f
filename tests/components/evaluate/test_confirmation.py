"""The confirmation split is scored in the same run as test, and nothing tells what came of it."""

import json

import pyarrow.parquet as pq
from tiny_store import GENRES, commit, make_row, parquet, read

from yanmo.evaluate.config import STAGE
from yanmo.evaluate.documents.reading import groups_of
from yanmo.evaluate.work import STEPS
from yanmo.formats.records import check_schema
from yanmo.stage.run import main
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

FAST = ("--samples", "1", "--sample-tokens", "4", "--documents", "none", "--bootstrap-draws", "100")


def with_confirmation(ground, number=5):
    """The ground's evaluation set and a third split."""
    found = ground.evaluation_set
    files = {
        e.path: lambda path, e=e: path.write_bytes(found.path(e.path).read_bytes()) for e in found.entries()
    }
    rows = [make_row(g, "confirm", i, author="张三") for g in GENRES for i in range(number)]
    files["confirm-00000-of-00001.parquet"] = parquet(rows)
    return commit(ground.store, "evaluation_set", files, options={"confirm": number})


def evaluate(ground, *more):
    argv = ground.arguments(*FAST, *more)
    assert main(STAGE, STEPS, argv) == 0
    return open_reference(ground.store, read_pointer(ground.store, "dev", "evaluate"))


def test_its_scores_lie_in_a_file_of_their_own_and_nothing_tells_them(ground, capfd):
    before = evaluate(ground)
    with_confirmation(ground)
    capfd.readouterr()
    after = evaluate(ground)
    text = "".join(capfd.readouterr())
    (path,) = after.paths("confirmation-*.parquet")
    check_schema(path, "evaluation")
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == 20 and all(r["split"] == "confirm" and r["bits"] > 0 for r in rows)
    assert not before.entries("confirmation-*.parquet")
    old, new = (pq.read_table(o.paths("documents-*.parquet")[0]) for o in (before, after))
    assert old.equals(new)  # the test split is scored as ever
    summary = read(after, "summary.json")
    assert {k: v for k, v in summary.items() if k != "conditions"} == {
        k: v for k, v in read(before, "summary.json").items() if k != "conditions"
    }
    per_character = sum(r["bits"] for r in rows) / sum(r["characters"] for r in rows)
    prom = after.path("metrics.prom").read_text(encoding="utf-8")
    for told in (text, json.dumps(summary), prom, json.dumps(after.manifest.metadata)):
        assert f"{per_character:.4f}" not in told and f"{sum(r['bits'] for r in rows):.1f}" not in told
    assert after.manifest.counts["confirmation_documents"] == 20


def test_another_split_and_a_budget_leave_it_out_or_cut_it(ground):
    with_confirmation(ground)
    assert not evaluate(ground, "--split", "valid").entries("confirmation-*.parquet")
    few = evaluate(ground, "--budget-documents", "2")
    assert pq.read_table(few.paths("confirmation-*.parquet")[0]).num_rows == 8


def rows(*triples):
    return [dict(zip(("genre", "author", "source"), each, strict=True)) for each in triples]


def test_documents_hang_together_by_author_or_else_by_work():
    filler = [("诗", f"author {i}", "collection") for i in range(20)]
    asked = [
        ("诗", "李白", "collection"),
        ("诗", "李白", "other"),
        ("诗", "佚名", "collection"),  # anonymous texts of a collection have nothing in common
        ("诗", "", "collection"),
        ("诗", "", "book"),
        ("诗", "", "book"),
        ("词", "李白", "collection"),  # alone in its genre
    ]
    found = groups_of(rows(*asked, *filler))
    assert found[:7] == ["author 李白", "author 李白", "", "", "work book", "work book", ""]
    assert not any(found[7:])


def test_what_holds_more_than_a_fifth_of_a_genre_is_no_group():
    assert not any(groups_of(rows(*[("文", "鲁迅", "x")] * 40)))
    assert not any(groups_of(rows(*[("文", "", "a.jsonl")] * 30, *[("文", "", "b.jsonl")] * 10)))
