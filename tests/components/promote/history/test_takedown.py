"""A text goes in, a champion learns it, it is taken down: no later run learns it, and the champion goes.

All stages are the real ones, on texts of the bundled corpus with licences of their own, and models that train
for four steps.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from yanmo.balance.config import STAGE as BALANCE
from yanmo.balance.phases import STEPS as BALANCING
from yanmo.common.errors import EnvironmentFault
from yanmo.curate.config import STAGE as CURATE
from yanmo.curate.phases import STEPS as CURATING
from yanmo.promote.history.champion_records import all_records
from yanmo.stage.run import main
from yanmo.stage.stage_run import Steps
from yanmo.store.output import open_reference
from yanmo.tokenize.config import STAGE as TOKENIZE
from yanmo.tools.channel.command import main as channel
from yanmo.tools.store.command import main as store_tool
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.supervision.grid import prepare

CORPUS = Path(__file__).parents[4] / "corpus/small.jsonl.zst"
SMALL = ("--test-characters", "600", "--valid-characters", "200", "--confirm-characters", "0")


@pytest.fixture
def texts(tmp_path):
    """240 poems, a third each under MIT, CC-BY-NC-4.0 and no licence that anybody says."""
    with CORPUS.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        lines = stream.read(4_000_000).decode("utf-8", "ignore").splitlines()[:-1]
    records = [one for one in map(json.loads, lines) if 40 < len(one["text"]) < 400][:240]
    for number, one in enumerate(records):
        one.pop("license", None)
        one["source"] = "ours"
        if number % 3 < 2:
            one["license"] = ("MIT", "CC-BY-NC-4.0")[number % 3]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return path


def made(stage, declared, steps, *more):
    place = ("--store", str(stage.folder), "--channel", "dev", "--metrics-port", "-1")
    return main(declared, steps, [*place, *more])


def data(stage, texts, *more, words=("--vocab-size", "800")):
    """curate, balance and tokenize, with a new tokenizer or that of `words`; the token cache."""
    from yanmo.tokenize.work import STEPS as TOKENIZING

    sources = ("--sources", str(texts), "--filter-sets", "*=none", "--max-filter-share", "1", *SMALL)
    assert made(stage, CURATE, CURATING, *sources, *more) == 0
    assert made(stage, BALANCE, BALANCING) == 0
    assert made(stage, TOKENIZE, TOKENIZING, *words) == 0
    return open_reference(stage.store, stage.pointer("tokenize"))


TINY = {
    "train": (
        *("--steps", "4", "--warmup-steps", "1", "--batch-rows", "8", "--context", "32", "--ranks", "1"),
        *("--layers", "1", "--width", "32", "--heads", "2", "--head-width", "16", "--feed-forward", "48"),
        *("--device", "cpu", "--valid-characters", "200"),
    ),
    "evaluate": (
        *("--workers", "1", "--samples", "1", "--sample-tokens", "8", "--bootstrap-draws", "100"),
        *("--baseline-characters", "2000"),
    ),
    "promote": ("--draws", "2000"),
}
"""Options of a training of four steps, and of what judges it."""


def ran(stage, name, *more):
    """A stage as a person starts it: its exit code, and what it said."""
    place = ("--store", str(stage.folder), "--channel", "dev", "--metrics-port", "-1")
    command = [sys.executable, "-m", f"yanmo.{name}", *place, *TINY[name], *more]
    environment = {**os.environ, "PYTHONPATH": str(CORPUS.parents[1] / "components")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


def trained(stage, cache, seed, base="none"):
    """A model that was trained on a cache for four steps, and evaluated."""
    flags = ("--token-cache", f"tokenize/{cache.reference.key}", "--seed", str(seed), "--model", base)
    code, said = ran(stage, "train", *flags)
    assert code == 0, said
    model = open_reference(stage.store, stage.pointer("train"))
    code, said = ran(stage, "evaluate", "--model", f"train/{model.reference.key}")
    assert code == 0, said
    return model, f"evaluate/{stage.pointer('evaluate').key}"


def train_ids(cache):
    rows = [row for path in cache.paths("documents-*.parquet") for row in pq.read_table(path).to_pylist()]
    return {row["id"] for row in rows if row["split"] == "train"}


def licenses_of(stage):
    curated = open_reference(stage.store, stage.pointer("curate"))
    return curated.manifest.metadata["licenses"]


def refused_by_train(stage, caplog, *more):
    """train's own first look, before any key and any GPU; 78 where it would begin."""

    def work(run):
        raise EnvironmentFault("it would train")

    caplog.clear()
    code = made(stage, TRAIN, Steps(work, prepare=prepare), *more)
    return code, caplog.text


@pytest.mark.road
def test_from_a_text_to_a_champion_that_has_not_learned_it_and_back(stage, texts, caplog, capsys):
    cache = data(stage, texts)
    curated = stage.pointer("curate")
    document = sorted(train_ids(cache))[7]
    first, of_first = trained(stage, cache, 1)
    code, said = ran(stage, "promote", "--challenger", of_first)
    assert code == 0 and stage.pointer("champion") == first.reference, said
    ids = stage.folder.parent / "ids.txt"
    ids.write_text(document + "\n", encoding="utf-8")
    words = ("--tokenizer", f"tokenizer/{stage.pointer('tokenizer').key}")
    without = data(stage, texts, "--exclude", str(ids), words=words)
    child, of_child = trained(stage, without, 2, base=f"train/{first.reference.key}")
    capsys.readouterr()
    lineage = ["lineage", document, "--store", str(stage.folder)]
    assert store_tool([*lineage, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert said["learned"]["directly"] == [f"train/{first.reference.key}"]
    assert said["learned"]["by_start"] == [f"train/{child.reference.key}"]
    assert said["learned"]["tokenizers"] and not said["learned"]["evaluation_sets"]
    (todo,) = said["to_run"]
    assert todo["channel"] == "dev" and todo["is_champion"] and todo["taken_down"] is None

    command = shlex.split(todo["commands"][0])
    assert command[:2] == ["yanmo", "channel"]
    assert channel(command[2:]) == 0
    code, why = refused_by_train(stage, caplog, "--token-cache", f"tokenize/{cache.reference.key}")
    assert code == 65 and "holds 1 text that channel 'dev' took down" in why
    code, said = ran(stage, "promote", "--challenger", of_child)
    assert code == 65 and "may not be served" in said

    clean = data(stage, texts)  # the same flags as before: the channel remembers
    assert document not in train_ids(clean)
    code, why = refused_by_train(stage, caplog, "--model", f"train/{first.reference.key}")
    assert code == 65 and "Give another --model" in why
    second, of_second = trained(stage, clean, 3)
    judging = ("--challenger", of_second, "--champion", of_first)
    code, said = ran(stage, "promote", *judging)
    assert code == 0, said
    assert stage.pointer("champion") == second.reference, "compared or not, the other may not be served"
    assert "learned text that this channel forbids and is replaced" in stage.verdict()["sentence"]["en"]
    record = all_records(stage.store, "dev")[-1]
    (mark,) = record.rolled_back
    assert mark.model == first.content_digest and mark.why.startswith("learned what the channel forbids")
    assert ran(stage, "promote", "--challenger", of_second)[0] == 0, "the next night finds the same"
    assert len(all_records(stage.store, "dev")) == 2
    assert stage.tool("rollback", "--to", "1", "--why", "x", "--who", "li", "--yes") == 65
    assert "may not be served" in caplog.text
    capsys.readouterr()
    assert stage.tool("history") == 0
    assert f"rolled back: train/{first.reference.key[:12]}" in capsys.readouterr().out
    assert store_tool([*lineage, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert f"train/{second.reference.key}" not in said["learned"]["directly"] + said["learned"]["by_start"]
    assert all(not one["is_champion"] for one in said["to_run"])

    lift = ("takedown", "--lift", document, "--store", str(stage.folder), "--channel", "dev")
    assert channel([*lift, "--who", "wu", "--why", "it was another text"]) == 0
    assert stage.pointer("champion") == second.reference, "lifting it changes no champion"
    again = data(stage, texts)
    assert stage.pointer("curate") == curated and again.reference == cache.reference, "nothing is made twice"
    token_cache = ("--token-cache", f"tokenize/{cache.reference.key}")
    assert refused_by_train(stage, caplog, *token_cache, "--model", f"train/{first.reference.key}")[0] == 78
    assert stage.tool("rollback", "--to", "1", "--why", "it was another text", "--who", "wu", "--yes") == 0
    assert stage.pointer("champion") == first.reference
    assert store_tool(["verify", "--store", str(stage.folder)]) == 0


def test_a_channel_learns_only_from_the_licences_that_it_allows(stage, texts, caplog):
    everything = data(stage, texts)
    assert set(licenses_of(stage)) == {"MIT", "CC-BY-NC-4.0", "unknown"}
    before = stage.pointer("curate")
    set_list = ("licenses", "--store", str(stage.folder), "--channel", "dev", "--who", "li")
    assert channel([*set_list, "--set", "mit,unknown"]) == 64, "a reason is asked for"
    assert channel([*set_list, "--set", "mit,unknown", "--why", "no NC"]) == 0
    code, why = refused_by_train(stage, caplog, "--token-cache", f"tokenize/{everything.reference.key}")
    assert code == 65 and "texts under CC-BY-NC-4.0, which channel 'dev' does not allow" in why
    clean = data(stage, texts)
    assert set(licenses_of(stage)) == {"MIT", "unknown"}
    assert refused_by_train(stage, caplog, "--token-cache", f"tokenize/{clean.reference.key}")[0] == 78
    assert made(stage, CURATE, CURATING, "--sources", str(texts), "--allow-licenses", "MIT") == 64
    assert "channel 'dev' allows mit, unknown" in caplog.text
    assert channel([*set_list, "--set", "GPL-3.0", "--why", "a mistake"]) == 0
    assert made(stage, CURATE, CURATING, "--sources", str(texts)) == 65
    assert "the channel allows no licence of this text: it is under" in caplog.text
    assert channel([*set_list, "--set", "all", "--why", "mended"]) == 0
    data(stage, texts)
    assert stage.pointer("curate") == before, "without a list the key is what it was"


def test_the_first_run_that_names_licences_sets_the_channels_list(stage, texts):
    data(stage, texts, "--allow-licenses", "MIT")
    assert set(licenses_of(stage)) == {"MIT"}
    data(stage, texts)
    assert set(licenses_of(stage)) == {"MIT"}, "the next night forgot the flag"


def test_of_two_copies_the_one_under_an_allowed_licence_is_kept(stage, texts):
    records = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    both = [{**r, "license": "CC-BY-NC-4.0"} for r in records] + [
        {**r, "text": r["text"].replace("。", "\n"), "license": "MIT"} for r in records
    ]
    texts.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in both), encoding="utf-8")
    data(stage, texts, "--allow-licenses", "MIT")
    assert set(licenses_of(stage)) == {"MIT"} and licenses_of(stage)["MIT"] > 150


def test_a_text_is_taken_down_with_the_copy_that_was_learned_in_its_place(stage, texts, caplog):
    records = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    both = [one for r in records for one in (r, {**r, "text": r["text"].replace("。", "\n")})]
    texts.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in both), encoding="utf-8")
    learned = train_ids(data(stage, texts))
    curated = open_reference(stage.store, stage.pointer("curate"))
    copies = pq.read_table(curated.path("duplicates.parquet"), columns=["id", "kept_id"]).to_pylist()
    dropped = next(one["id"] for one in copies if one["kept_id"] in learned and one["id"] not in learned)
    assert channel(["takedown", dropped, "--store", str(stage.folder), "--channel", "dev", "--why", "x"]) == 0
    code, why = refused_by_train(stage, caplog)
    assert code == 65 and "holds 1 text that channel 'dev' took down" in why


@pytest.mark.parametrize("name", ["takedown", "licenses"])
def test_a_damaged_list_stops_everything_that_would_need_it(stage, texts, name, caplog):
    path = stage.folder / f"pointers/dev/records/{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text("{", encoding="utf-8")
    assert made(stage, CURATE, CURATING, "--sources", str(texts)) == 65
    assert f"pointers/dev/records/{name}.json" in caplog.text
