"""`yanmo runs` on small real stores."""

from __future__ import annotations

from typing import Any

import pytest
from lab import Lab, named, raw

from yanmo.common.errors import ExitCode
from yanmo.store.file_store import FileStore


@pytest.fixture
def three(lab: Lab) -> tuple[Lab, list[Any]]:
    """Three runs of a channel: another seed, then another tokenizer; the last was not measured."""
    held = lab.evaluation_set()
    first = lab.model(held)
    lab.evaluate(first, held)
    lab.promote(first)
    second = lab.model(held, seed=1)
    lab.evaluate(second, held, {"诗": 7.5, "词": 7.25})
    lab.promote(second, first)
    third = lab.model(held, tokenize={"vocab": 200})
    return lab, [first, second, third]


def by_run(said: Any) -> dict[str, dict[str, Any]]:
    assert said.code == 0
    return {run["run"]: run for run in said.json["runs"]}


def test_the_table_shows_what_differs_the_bits_the_cost_and_the_champion(three) -> None:
    lab, models = three
    said = lab.tool("--channel", "demo", "--sort", "mean")
    assert said.code == 0
    heading, *rows = said.table
    assert heading[:6] == ["run", "made", "(UTC)", "champion", "seed", "vocab"]
    assert {"诗", "词", "wall", "tokens"} <= {*heading}
    short = [f"train/{m.manifest.key[:12]}" for m in models]
    assert [row[0] for row in rows] == [short[1], short[0], short[2]]
    shown = [" ".join(row[3:-5]) for row in rows]
    assert [row.split(" 7.")[0] for row in shown[:2]] == ["demo 1 100", "was demo 0 100"]
    assert "7.375 [7.275, 7.475]" in said.out and "2 of 3 runs measured" in said.out
    assert rows[1][-3:] == ["50", "s", "40,000"]
    best = by_run(lab.tool("--json"))[named(models[1])]["evaluation"]
    assert f"--challenger {best[:21]} --champion evaluate/" in said.out
    assert f"--dry-run --store {lab.store.uri} --channel demo`" in said.out
    assert f"--dry-run --store {lab.store.uri}`" in lab.tool().out


def test_json_has_all_options_bits_and_costs(three) -> None:
    lab, models = three
    document = lab.tool("--json").json
    assert document["differing"] == ["train.seed", "tokenize.vocab"]
    assert document["conditions"]["split"] == "test"
    run = by_run(lab.tool("--json"))[named(models[1])]
    assert run["options"]["train.seed"] == 1 and run["options"]["curate.min"] == 1
    assert run["mean"] == {"bits_per_character": 7.375, "interval": [7.275, 7.475]}
    assert run["genres"]["诗"]["bits_per_character"] == 7.5 and run["champion"] == ["demo"]
    assert (run["seconds"], run["tokens"]) == (50.0, 40_000)
    assert run["made_of"].keys() == {"train", "tokenize", "balance", "curate"}


def test_last_shows_the_newest_and_says_how_many_it_leaves_out(three) -> None:
    lab, _ = three
    newest = [run["run"] for run in lab.tool("--json").json["runs"]][:2]
    document = lab.tool("--json", "--last", "2").json
    assert [run["run"] for run in document["runs"]] == newest and document["older_runs"] == 1
    assert "1 older not shown" in lab.tool("--last", "2").out


def test_a_channel_that_is_not_there_is_a_usage_error_that_names_the_nearest(three, caplog) -> None:
    assert three[0].tool("--channel", "dmeo").code == ExitCode.USAGE
    assert "no such channel; did you mean demo?; it has demo" in caplog.text


def test_an_option_of_two_stages_is_named_in_full(lab: Lab) -> None:
    held = lab.evaluation_set()
    lab.model(held, curate={"seed": 1})
    lab.model(held, curate={"seed": 2}, seed=3)
    assert lab.tool().table[0][4:6] == ["train.seed", "curate.seed"]


def test_an_empty_store_and_a_single_run_are_said_in_words(lab: Lab) -> None:
    assert "no runs" in lab.tool().out and lab.tool("--json").json["runs"] == []
    lab.model(lab.evaluation_set())
    said = lab.tool()
    assert said.code == 0 and "1 run\n" in said.out


def test_what_was_not_measured_alike_is_not_compared(lab: Lab) -> None:
    old = lab.evaluation_set()
    models = [lab.model(old, seed=seed) for seed in range(4)]
    for model in models:
        lab.evaluate(model, old, {"诗": 1.0})
    held = lab.evaluation_set(1, old)
    for model in models[:2]:
        lab.evaluate(model, held, {"诗": 8.0})
    lab.evaluate(models[2], held, {"诗": 2.0}, split="valid")
    lab.evaluate(models[0], held, {"诗": 3.0}, documents_per_genre=5)
    found = by_run(lab.tool("--json", "--channel", "demo"))
    means = [found[named(m)]["mean"] for m in models]
    assert [mean and mean["bits_per_character"] for mean in means] == [8.0, 8.0, None, None]
    # of the whole store, the set on which most were measured
    of_all = by_run(lab.tool("--json"))
    assert [of_all[named(m)]["mean"]["bits_per_character"] for m in models] == [1.0] * 4


def test_a_channel_has_its_own_runs_and_those_on_the_sets_that_its_set_was_made_from(lab: Lab) -> None:
    old = lab.evaluation_set()
    mine = lab.model(old)
    held = lab.evaluation_set(1, old)
    foreign = lab.evaluation_set(7, channel="other")
    other = lab.model(foreign, seed=9)
    lab.point("train", guest := lab.model(foreign, seed=8))
    measured = lab.model(foreign, seed=7)
    lab.evaluate(measured, held)
    demo = by_run(lab.tool("--json", "--channel", "demo"))
    assert demo.keys() == {named(mine), named(guest), named(measured)}
    others = by_run(lab.tool("--json", "--channel", "other"))
    assert others.keys() == {named(other), named(guest), named(measured)}


def test_champions_of_a_whole_store_name_their_channel(lab: Lab) -> None:
    held = lab.evaluation_set()
    first, second = lab.model(held), lab.model(held, seed=1)
    lab.promote(first)
    lab.promote(second, first)
    lab.promote(first, channel="other")
    found = {name: run["champion"] for name, run in by_run(lab.tool("--json")).items()}
    assert found == {named(first): ["was demo", "other"], named(second): ["demo"]}


def test_other_raw_text_and_a_given_tokenizer_are_seen(lab: Lab) -> None:
    held = lab.evaluation_set()
    lab.model(held)
    lab.model(held, source="song")
    assert lab.tool("--json").json["differing"] == ["curate.sources"]
    assert "song.jsonl" in lab.tool().out
    documents = lab.commit("curate", {"sources": raw(), "evaluation_set": held}, {"min": 1})
    balanced = lab.commit("balance", {"documents": documents}, {"quotas": ""})
    foreign = lab.commit("tokenizer", {"documents": None}, {"vocab": 99})
    cache = lab.commit(
        "tokenize", {"documents": balanced, "tokenizer": foreign}, {"vocab": 100}, {"text": "1"}
    )
    model = lab.train(cache)
    assert by_run(lab.tool("--json"))[named(model)]["options"]["tokenize.tokenizer"] == str(foreign)


def test_a_balanced_text_that_is_balanced_again_keeps_both_apart(lab: Lab) -> None:
    for share in (1, 2):
        documents = lab.commit("curate", {"sources": raw()}, {"min": 1})
        inner = lab.commit("balance", {"documents": documents}, {"share": share})
        outer = lab.commit("balance", {"documents": inner}, {"quotas": ""}, {"text": f"{share}"})
        lab.train(lab.commit("tokenize", {"documents": outer}, {"vocab": 1}, {"text": f"{share}"}))
    assert lab.tool("--json").json["differing"] == ["balance2.share"]


@pytest.mark.parametrize(
    "name",
    [
        "pointers/demo/champion.json",
        "pointers/demo/history/000001.json",
        "cas/train/*/MANIFEST.json",
        "cas/tokenize/*/MANIFEST.json",
        "cas/evaluate/*/*/summary.json",
    ],
)
def test_what_is_damaged_is_said_and_the_rest_is_shown(three, name: str, caplog) -> None:
    lab, _ = three
    assert isinstance(lab.store, FileStore)
    path = sorted(lab.store.root.glob(name))[0]
    path.chmod(0o644)
    path.write_bytes(b"{")
    said = lab.tool("--channel", "demo")
    assert said.code == 0 and len(said.table) >= 3
    assert "left out" in caplog.text
