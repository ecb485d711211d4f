"""`yanmo runs` on small real stores."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, folder_of, named, raw
from processes import no_file_above

from yanmo.common.errors import ExitCode
from yanmo.store.file_store import FileStore
from yanmo.tools.runs.gather import gather


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
    return {run["run"]: run for run in said.json["runs"]}


def test_the_table_shows_what_differs_the_bits_the_cost_and_the_champion(three) -> None:
    lab, models = three
    said = lab.tool("--channel", "demo", "--sort", "mean")
    assert said.code == 0
    heading, *rows = said.table
    assert heading[:6] == ["run", "made", "(UTC)", "champion", "seed", "vocab"]
    assert {"诗", "词", "wall", "CPU", "tokens", "parameters"} <= {*heading}
    short = [f"train/{m.manifest.key[:12]}" for m in models]
    assert [row[0] for row in rows] == [short[1], short[0], short[2]]
    assert [row[3:6] for row in rows] == [["now", "1", "100"], ["was", "0", "100"], ["-", "0", "200"]]
    assert "  train.seed: 7.375 with 1, 7.500 with 0\n" in said.out
    assert "7.375 [7.275, 7.475]" in said.out and "2 of 3 runs measured" in said.out
    assert rows[1][-8:] == ["50", "s", "2", "min", "00", "s", "40,000", "4,000,000"]
    assert f"yanmo evaluate --model {short[2]} --channel demo --evaluation-set evaluation_set/" in said.out
    assert f"--challenger evaluate/{evaluation_of(lab, models[1])[:12]} --champion evaluate/" in said.out


def evaluation_of(lab: Lab, model: Any) -> str:
    return str(by_run(lab.tool("--json"))[named(model)]["evaluation"].partition("/")[2])


def test_json_and_csv_hold_the_same_with_all_digits(three, tmp_path: Path) -> None:
    lab, models = three
    document = lab.tool("--json").json
    assert document["differing"] == ["train.seed", "tokenize.vocab"]
    assert document["same"]["train.steps"] == 20 and document["same"]["curate.min"] == 1
    assert document["conditions"]["split"] == "test"
    (change,) = document["one_change"]
    assert change == {"option": "train.seed", "runs": [named(models[1]), named(models[0])]}
    rows = lab.tool("--csv", "-").csv
    file = tmp_path / "runs.csv"
    said = lab.tool("--csv", str(file))
    assert said.out.startswith("file://") and file.read_text() == lab.tool("--csv", "-").out
    with no_file_above(100):
        assert lab.tool("--csv", str(file)).code == 78
    assert file.read_text() == lab.tool("--csv", "-").out, "no piece of it on a full disk"
    for run, row in zip(document["runs"], rows, strict=True):
        assert (row["run"], row["made_at"], row["state"]) == (run["run"], run["made_at"], "done")
        assert row["train.seed"] == str(run["options"]["train.seed"])
        mean = run["mean"] or {"bits_per_character": "", "interval": ("", "")}
        assert row["mean"] == str(mean["bits_per_character"])
        assert [row["mean_low"], row["mean_high"]] == [str(each) for each in mean["interval"]]
        assert row["bits.诗"] == str(run["genres"].get("诗", {}).get("bits_per_character", ""))
        assert (row["cpu_seconds"], row["tokens"], row["gpu_hours"]) == ("120.0", "40000", "0.0")
    assert document["runs"][0]["made_of"].keys() == {"train", "tokenize", "balance", "curate"}


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("诗", [1, 0, 2]), ("ci", [0, 1, 2]), ("seed", [0, 2, 1]), ("tokenize.vocab", [0, 1, 2])],
)
def test_runs_are_sorted_by_any_column(three, sort: str, expected: list[int]) -> None:
    lab, models = three
    rows = lab.tool("--csv", "-", "--sort", sort).csv
    order = [row["run"] for row in rows]
    if sort in ("seed", "tokenize.vocab"):  # equal values stay newest first, and all were made in a second
        values = [row["train.seed" if sort == "seed" else sort] for row in rows]
        assert values == sorted(values)
    else:
        assert order == [named(models[i]) for i in expected]


def test_last_shows_the_newest_and_says_how_many_it_leaves_out(three) -> None:
    lab, _ = three
    newest = [run["run"] for run in lab.tool("--json").json["runs"]][:2]
    document = lab.tool("--json", "--last", "2").json
    assert [run["run"] for run in document["runs"]] == newest and document["older_runs"] == 1
    assert "1 older not shown" in lab.tool("--last", "2").out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--channel", "dmeo"], "no such channel; did you mean demo?; it has demo"),
        (["--sort", "vocb"], "did you mean vocab?"),
        (["--sort", "meann"], "did you mean mean?"),
        (["--json", "--csv", "-"], "give one of them"),
        (["--last", "-1"], "--last -1: expected"),
    ],
)
def test_what_is_not_there_is_a_usage_error_that_names_the_nearest(three, caplog, argv, said) -> None:
    assert three[0].tool(*argv).code == ExitCode.USAGE
    assert said in caplog.text


@pytest.mark.parametrize("place", ["no/folder/runs.csv", "."])
def test_a_file_that_cannot_be_written_is_named_and_the_store_stays(
    three, tmp_path: Path, caplog, place
) -> None:
    lab = three[0]
    before = [info.name for info in lab.store.list("")]
    assert lab.tool("--csv", str(tmp_path / place)).code == ExitCode.DATA
    assert str(tmp_path) in caplog.text and "look at the path" in caplog.text
    assert [info.name for info in lab.store.list("")] == before


def test_an_option_of_two_stages_is_named_in_full(lab: Lab, caplog) -> None:
    held = lab.evaluation_set()
    lab.model(held, curate={"seed": 1})
    lab.model(held, curate={"seed": 2}, seed=3)
    heading = lab.tool().table[0]
    assert heading[4:6] == ["train.seed", "curate.seed"]
    assert lab.tool("--sort", "seed").code == ExitCode.USAGE
    assert "could be train.seed, curate.seed" in caplog.text
    assert lab.tool("--sort", "curate.seed").code == 0


def test_an_empty_store_and_a_single_run_are_said_in_words(lab: Lab) -> None:
    assert "no runs" in lab.tool().out and lab.tool("--json").json["runs"] == []
    assert lab.tool("--csv", "-").out == ""
    lab.model(lab.evaluation_set())
    said = lab.tool()
    assert said.code == 0 and "1 run\n" in said.out and "the same in all" not in said.out
    assert said.out.endswith("--documents none --pointer none` measures one\n")


def test_a_long_list_of_seeds_is_cut_and_json_has_all(lab: Lab) -> None:
    held = lab.evaluation_set()
    for seed in range(10):
        lab.evaluate(lab.model(held, seed=seed), held, {"诗": 8.0 + seed})
    said = lab.tool("--sort", "seed")
    assert "  train.seed: 8.000 with 0, 9.000 with 1, " in said.out and "and 2 more\n" in said.out
    assert [row[4] for row in said.table[1:]] == [str(seed) for seed in range(10)]
    assert len(lab.tool("--json").json["one_change"][0]["runs"]) == 10


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
    assert [found[named(m)]["mean"] and found[named(m)]["mean"]["bits_per_character"] for m in models] == [
        8.0,
        8.0,
        None,
        None,
    ]
    said = lab.tool("--channel", "demo").out
    assert "measured on other texts or in another way, not compared: train/" in said
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
    rows = {row["run"]: row["champion"] for row in lab.tool("--csv", "-").csv}
    assert rows == {named(first): "other, was demo", named(second): "demo"}


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
    lab.train(cache)
    differing = lab.tool("--json").json["differing"]
    assert differing == ["tokenize.tokenizer", "curate.sources"]


def test_a_balanced_text_that_is_balanced_again_keeps_both_apart(lab: Lab) -> None:
    for share in (1, 2):
        documents = lab.commit("curate", {"sources": raw()}, {"min": 1})
        inner = lab.commit("balance", {"documents": documents}, {"share": share})
        outer = lab.commit("balance", {"documents": inner}, {"quotas": ""}, {"text": f"{share}"})
        lab.train(lab.commit("tokenize", {"documents": outer}, {"vocab": 1}, {"text": f"{share}"}))
    assert lab.tool("--json").json["differing"] == ["balance2.share"]


class TestDamage:
    """Exit code 0, a warning, and what is left is shown."""

    @pytest.fixture
    def root(self, three) -> Path:
        store = three[0].store
        assert isinstance(store, FileStore)
        return store.root

    def state(self, lab: Lab, model: Any) -> dict[str, Any]:
        said = lab.tool("--json")
        assert said.code == 0
        assert lab.tool().code == lab.tool("--csv", "-").code == 0
        return by_run(said)[named(model)]

    def test_a_model_that_is_gone_is_lost_and_its_bits_stay(self, three, root: Path, caplog) -> None:
        lab, models = three
        shutil.rmtree(root / folder_of(models[0]))
        found = self.state(lab, models[0])
        assert (found["state"], found["made_at"], found["options"]) == ("lost", "", {})
        assert found["mean"]["bits_per_character"] == 7.5 and found["was_champion_of"] == ["demo"]
        rows = lab.tool("--channel", "demo").table
        lost = next(row for row in rows if row[0].endswith(models[0].manifest.key[:12]))
        assert lost.count("lost") == 3  # its state, and both options
        assert "is lost: it was removed" in caplog.text

    def test_a_damaged_manifest_is_said(self, three, root: Path, caplog) -> None:
        lab, models = three
        (root / models[2].reference.manifest_uri).write_bytes(b"{")
        assert self.state(lab, models[2])["state"] == "damaged"
        assert "damaged manifest" in caplog.text

    def test_a_model_without_its_weights_is_lost_and_its_options_stay(self, three, root: Path) -> None:
        lab, models = three
        model = models[1]
        (root / folder_of(model) / model.manifest.attempt / "model.safetensors").unlink()
        found = self.state(lab, model)
        assert found["state"] == "lost" and found["options"]["train.seed"] == 1
        assert found["cpu_seconds"] == 120.0

    @pytest.mark.parametrize("stage", ["tokenize", "balance", "curate", "tokenizer"])
    def test_options_of_a_lost_ancestor_are_lost_and_no_difference(
        self, three, root: Path, stage: str
    ) -> None:
        lab, models = three
        shutil.rmtree(root / f"cas/{stage}")
        found = self.state(lab, models[0])
        names = {name.partition(".")[0] for name in found["options"]}
        order = ["train", "tokenize", "balance", "curate"]
        assert names == {*(order[: order.index(stage)] if stage in order else order)}
        differing = lab.tool("--json").json["differing"]
        assert differing[0] == "train.seed" and not any(n.startswith("curate.") for n in differing)

    @pytest.mark.parametrize("data", [b"", b"[]", b'{"conditions": {}}', b"\xff"])
    def test_a_changed_summary_is_lost(self, three, root: Path, data: bytes, caplog) -> None:
        lab, models = three
        for path in (root / "cas/evaluate").glob("*/*/summary.json"):
            path.chmod(0o644)
            path.write_bytes(data)
        assert self.state(lab, models[0])["mean"] is None
        assert "is lost: " in caplog.text

    @pytest.mark.parametrize("name", ["metrics.prom", "metrics.jsonl"])
    def test_a_lost_record_of_cost_leaves_the_rest(self, three, root: Path, name: str) -> None:
        lab, models = three
        for path in (root / "cas/train").glob(f"*/*/{name}"):
            path.unlink()
        found = self.state(lab, models[0])
        expected = (None, 120.0) if name == "metrics.prom" else (50.0, 90.0)
        assert (found["seconds"], found["cpu_seconds"]) == expected

    @pytest.mark.parametrize("name", ["champion", "evaluation_set", "history/000001", "train"])
    def test_a_damaged_pointer_or_record_is_left_out(self, three, root: Path, name: str, caplog) -> None:
        lab, models = three
        lab.point("train", models[2])
        path = root / f"pointers/demo/{name}.json"
        path.chmod(0o644)
        path.write_bytes(b"{}")
        said = lab.tool("--channel", "demo")
        assert said.code == 0 and f"demo/{name} is left out: " in caplog.text
        assert f"train/{models[1].manifest.key[:12]}" in said.out

    def test_a_model_whose_evaluation_is_of_hostile_json_is_not_measured(self, lab: Lab) -> None:
        held = lab.evaluation_set()
        model = lab.model(held)
        for number, body in enumerate(
            ["[" * 5000, '{"conditions": [], "genres": 1}', '{"conditions": {}, "mean": {}, "genres": {}}']
        ):
            inputs = {"model": model, "evaluation_set": held}
            lab.commit("evaluate", inputs, {"n": number}, {"summary.json": body})
        assert self.state(lab, model)["mean"] is None


class Counting(FileStore):
    """A store on a folder that counts what it is asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: Counter[str] = Counter()
        self.fetched: set[str] = set()

    def read(self, name: str) -> tuple[bytes, str]:
        self.asked["read"] += 1
        return super().read(name)

    def stat(self, name: str) -> Any:
        self.asked["stat"] += 1
        return super().stat(name)

    def sizes(self, names: Any) -> Any:
        self.asked["sizes"] += len(names)
        return super().sizes(names)

    def fetch(self, wanted: Any) -> Any:
        self.asked["fetch"] += len(wanted)
        self.fetched |= {one.name.rpartition("/")[2] for one in wanted}
        return super().fetch(wanted)

    def list(self, prefix: str) -> Any:
        self.asked["list"] += 1
        return super().list(prefix)


@pytest.mark.parametrize("number", [2, 9])
def test_five_requests_a_run_and_only_small_records(lab: Lab, number: int) -> None:
    held = lab.evaluation_set()
    for seed in range(number):
        lab.evaluate(lab.model(held, seed=seed), held)
    assert isinstance(lab.store, FileStore)
    store = Counting(lab.store.root)
    assert len(gather(store, "demo").runs) == number
    shared = {"read": 1 + 1 + 4}  # the pointer and its set; tokenizer, cache, balanced and curated text
    assert store.asked == {"list": 3, "read": shared["read"] + 2 * number, "fetch": 3 * number}
    assert store.fetched == {"summary.json", "metrics.prom", "metrics.jsonl"}


def test_runs_are_compared_where_no_extra_is_installed(three) -> None:
    """On a laptop that only looks: without pyarrow, torch and the rest."""
    absent = "sys.modules |= dict.fromkeys(['pyarrow', 'numpy', 'torch', 'jieba', 'kfp'])"
    code = f"import sys; {absent}; from yanmo.tools.runs.command import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "--store", three[0].uri, "--sort", "shi", "--csv", "-"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert (said.returncode, said.stdout.count("\n")) == (0, 4), said.stderr


def test_the_same_on_a_bucket(s3_lab: Lab) -> None:
    lab = s3_lab
    held = lab.evaluation_set()
    first = lab.model(held)
    lab.evaluate(first, held)
    lab.promote(first)
    second = lab.model(held, seed=1)
    (row,) = [r for r in lab.tool("--channel", "demo", "--csv", "-").csv if r["run"] == named(first)]
    assert (row["mean"], row["champion"], row["cpu_seconds"]) == ("7.5", "now", "120.0")
    lab.store.delete(f"{folder_of(second)}/{second.manifest.attempt}/model.safetensors")
    assert by_run(lab.tool("--json"))[named(second)]["state"] == "lost"
    assert json.loads(lab.tool("--json", "--last", "1").out)["older_runs"] == 1
