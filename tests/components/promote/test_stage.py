"""The champion of a channel, through promote's command line."""

import json
import re
import time
from types import SimpleNamespace
from typing import get_args

import pytest

from yanmo.common.errors import DataError
from yanmo.formats.records import GENRES
from yanmo.promote.config import HELD, OUTCOMES, STAGE
from yanmo.promote.gate.evaluation import different_conditions
from yanmo.promote.gate.verdict import Outcome
from yanmo.promote.history import champion
from yanmo.stage import run
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.store.champion_records import all_records, last_record
from yanmo.store.output import Pause, PausedOutput, open_reference
from yanmo.store.runs.run_record import add_to_run


def test_the_first_model_is_promoted(stage, caplog):
    model = stage.model(1)
    stage.evaluate(model)
    assert stage.promote() == 0
    assert stage.pointer("champion").key == model.reference.key
    record = json.loads(stage.records()[0].read_text())
    assert record["model"]["key"] == model.reference.key
    assert record["verdict"] == vars(stage.pointer("promote"))
    assert "Promoted: it is the channel's first champion. The channel had no champion yet" in caplog.text


def test_the_second_run_finds_the_verdict_of_the_first(stage, caplog):
    stage.evaluate(stage.model(1))
    stage.promote()
    first = stage.pointer("promote")
    caplog.clear()
    assert stage.promote() == 0
    assert stage.pointer("promote") == first
    assert "committed already" in caplog.text
    assert "is already champion of channel 'dev' since 20" in caplog.text
    assert len(stage.records()) == 1
    # and as the pipeline calls it: the champion, evaluated, is the challenger
    assert stage.promote("--champion", f"evaluate/{stage.pointer('evaluate').key}") == 0
    assert stage.pointer("promote") == first


def test_contamination_that_is_measured_later_is_judged(stage):
    """The text was not there; the evaluation says the same with it, but for the part."""
    evaluation = stage.evaluate(stage.model(1), contamination=None)
    assert stage.promote() == 0 and not stage.verdict()["promote"]
    again = stage.evaluate(stage.model(1), force=True)
    assert again.content_digest == evaluation.content_digest
    assert stage.promote() == 0 and stage.verdict()["promote"]


def test_a_training_text_that_comes_back_is_judged_again(stage):
    """Where a text of the lineage is lost, what was looked in may not be all of it."""
    lost = stage.text("lost")
    model = stage.model(2, text=stage.text(), base=stage.model(1, text=lost))
    stage.evaluate(model)
    manifest = stage.folder / lost.reference.manifest_uri
    data = manifest.read_bytes()
    manifest.unlink()
    assert stage.promote() == 0 and "Not measured" in stage.verdict()["sentence"]["en"]
    manifest.write_bytes(data)
    assert stage.promote() == 0 and stage.verdict()["promote"]


def test_a_better_model_becomes_champion_and_a_worse_one_does_not(stage, caplog):
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    better = stage.model(2)
    stage.evaluate(better, 7.8)
    assert stage.promote() == 0
    assert "0.25 % is assumed. Promoted: 7.79" in stage.verdict()["sentence"]["en"]
    assert stage.pointer("champion").key == better.reference.key
    stage.evaluate(stage.model(3), 7.9)
    assert stage.promote() == 0
    assert "Not promoted: no better than the champion" in stage.verdict()["sentence"]["en"]
    assert stage.pointer("champion").key == better.reference.key
    assert len(stage.records()) == 2
    assert json.loads(stage.records()[1].read_text())["previous"]["stage"] == "train"


def test_a_champion_measured_another_way_stays_champion(stage, caplog):
    model = stage.model(1)
    stage.evaluate(model)
    stage.promote()
    stage.evaluate(model, split="valid")
    assert stage.promote() == 0
    assert "already champion" in caplog.text
    assert stage.verdict()["sentence"]["en"] == "Not promoted: the challenger is the champion itself."
    assert "Not promoted: the challenger is the champion itself." in caplog.text
    assert "The challenger is" not in caplog.text, "the headline has said so"


def test_evaluations_of_different_conditions_are_not_compared(stage, caplog):
    champion_model = stage.model(1)
    stage.evaluate(champion_model)
    stage.promote()
    stage.evaluate(stage.model(2), 7.0, split="valid")
    assert stage.promote() == 65
    assert "split: valid and test" in caplog.text
    assert f"--model train/{champion_model.reference.key} --documents none --split valid" in caplog.text
    assert f" --store {stage.store.uri} --channel dev --pointer champion_evaluation`" in caplog.text


def test_a_budget_that_only_one_was_measured_with_is_named_by_its_option():
    mine = SimpleNamespace(summary={"conditions": {"split": "test", "documents_per_genre": "32"}})
    theirs = SimpleNamespace(summary={"conditions": {"split": "test", "chats": "answers"}})
    found = different_conditions(mine, theirs)
    assert found == "chats: none and answers; --budget-documents: 32 and all"


def test_a_champion_without_evaluation_says_what_to_run(stage, caplog):
    stage.evaluate(stage.model(1))
    stage.promote()
    evaluation = last_record(stage.store, "dev").evaluation
    stage.evaluate(stage.model(2), 7.0)
    (stage.folder / evaluation.manifest_uri).unlink()
    assert stage.promote() == 65
    assert "has no evaluation to compare with; run `yanmo evaluate --model train/" in caplog.text
    assert f"--store {stage.store.uri} --channel dev" in caplog.text
    add_to_run(stage.store, "dev", "night-7", {"evaluate": stage.pointer("evaluate")})
    for inputs in ("", "run:night-7"):
        caplog.clear()
        assert stage.promote("--dry-run", "--inputs", inputs) == 65, "nor does a dry run pass over it"
        assert "has no evaluation to compare with" in caplog.text
    assert stage.promote("--dry-run", "--champion", "none") == 0


def test_no_champion_is_asked_for_where_there_is_one_by_now(stage, caplog):
    """The second of two first promotions at once, each with --champion none."""
    first = stage.model(1)
    stage.evaluate(first)
    assert stage.promote("--champion", "none") == 0
    stage.evaluate(stage.model(2), 7.0)
    assert stage.promote("--champion", "none") == 64
    assert (
        f"expected a channel without a champion, but 'dev' has train/{first.reference.key[:12]}"
        in caplog.text
    )
    assert "leave --champion out" in caplog.text and stage.pointer("champion") == first.reference
    assert stage.promote() == 0 and stage.pointer("champion") != first.reference


def test_an_evaluation_of_another_model_is_not_the_champions(stage, caplog):
    stage.evaluate(stage.model(1))
    stage.promote()
    other = stage.evaluate(stage.model(2), 9.0, pointer="other")
    stage.evaluate(stage.model(3), 7.0)
    assert stage.promote("--champion", f"evaluate/{other.reference.key}") == 65
    assert "but the champion of channel 'dev' is train/" in caplog.text


def test_a_dry_run_judges_and_moves_nothing(stage, caplog):
    stage.evaluate(stage.model(1))
    assert stage.promote("--dry-run") == 0
    assert "dry run, nothing moved. Promoted:" in caplog.text
    assert stage.pointer("champion") is None and stage.pointer("promote") is None
    assert not stage.records()


def test_a_dry_run_compares_any_two_evaluations(stage, caplog):
    one = stage.evaluate(stage.model(1), 8.0, pointer="one")
    two = stage.evaluate(stage.model(2), 7.5, pointer="two")
    references = (
        "--challenger",
        f"evaluate/{two.reference.key}",
        "--champion",
        f"evaluate/{one.reference.key}",
    )
    assert stage.promote("--dry-run", *references) == 0
    assert "dry run, nothing moved." in caplog.text and "0.25 % is assumed. 7.489" in caplog.text


@pytest.mark.parametrize(("bits", "winner"), [(6.5, "slower"), (7.5, "faster")])
def test_of_two_promoters_at_once_one_wins_and_the_other_compares_with_it(
    stage, caplog, monkeypatch, bits, winner
):
    first = stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    models = {"faster": stage.model(3), "slower": stage.model(2)}
    ahead = stage.evaluate(models["faster"], 7.0)
    behind = stage.evaluate(models["slower"], bits)
    references = ["--champion", f"evaluate/{first.reference.key}", "--challenger"]
    real, raced = champion.write_record, []

    def after_another(*given):
        if not raced:
            raced.append(True)
            assert stage.promote(*references, f"evaluate/{ahead.reference.key}") == 0
        return real(*given)

    monkeypatch.setattr(champion, "write_record", after_another)
    assert stage.promote(*references, f"evaluate/{behind.reference.key}") == 75
    assert "got another champion meanwhile" in caplog.text
    assert stage.promote(*references, f"evaluate/{behind.reference.key}") == 0
    assert stage.pointer("champion").key == models[winner].reference.key
    assert stage.verdict()["champion"] == models["faster"].content_digest
    assert [r.number for r in all_records(stage.store, "dev")] == list(range(1, 3 + (winner == "slower")))


def test_kfp_gets_the_page_the_parameter_and_metrics(stage, tmp_path):
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    stage.evaluate(stage.model(2), 7.8)
    artifacts = {
        name: {"artifacts": [{"name": name, "uri": str(tmp_path / "kfp" / name)}]} for name in STAGE.outputs
    }
    parameters = {name: {"outputFile": str(tmp_path / "kfp" / name)} for name in STAGE.parameters}
    asked = {
        "artifacts": artifacts,
        "parameters": parameters,
        "outputFile": str(tmp_path / "kfp" / "out.json"),
    }
    assert stage.promote("--executor-input", json.dumps({"outputs": asked})) == 0
    assert (tmp_path / "kfp" / "promoted").read_text() == "true"
    assert "Promoted: " in (tmp_path / "kfp" / "result").read_text(encoding="utf-8")
    assert (tmp_path / "kfp" / "report").read_text(encoding="utf-8").startswith("<!doctype html>")
    written = json.loads((tmp_path / "kfp" / "out.json").read_text())["artifacts"]
    metrics = written["metrics"]["artifacts"][0]["metadata"]
    assert metrics["promoted_1_or_0"] == 1.0
    report = json.loads(stage.written("report.json"))
    share, own = report["verdict"]["gain"]["share"], report["bits_per_character"]["columns"][0]
    assert metrics["gain_percent"] == pytest.approx(100 * share, abs=1e-3) and share > 0
    assert metrics["bits_per_character_mean"] == pytest.approx(own["mean"]["value"], abs=1e-4)
    assert metrics["bits_per_character_fu"] == pytest.approx(own["rows"]["赋"]["value"], abs=1e-4)
    assert all(name.isascii() and isinstance(value, float) for name, value in metrics.items())
    assert max(map(len, metrics)) <= 23, "KFP's page cuts what is longer, the unit first"


def test_the_champions_evaluation_comes_inside_the_challengers(stage, tmp_path):
    """As one task of a pipeline hands them on; what is not in it is not there, whatever pointers name."""
    champion = stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    challenger = stage.evaluate(stage.model(2), 7.8)
    body = tmp_path / "evaluation"
    body.write_text(
        json.dumps({**vars(challenger.reference), "carries": {"champion": vars(champion.reference)}})
    )
    assert stage.promote(f"--challenger={body}") == 0
    assert stage.verdict()["promote"] and stage.verdict()["champion"] == stage.model(1).content_digest
    third = stage.evaluate(stage.model(3), 7.6)
    body.write_text(json.dumps({**vars(third.reference), "carries": {}}))
    assert stage.promote(f"--challenger={body}") == 0, "by the evaluation that promoted the champion"
    assert stage.verdict()["champion"] == stage.model(2).content_digest
    body.write_text(json.dumps({**vars(third.reference), "carries": {"champion": {}}}))
    assert stage.promote(f"--challenger={body}") == 65, "damaged"


def test_a_long_history_is_found_without_listing(stage, monkeypatch):
    monkeypatch.setattr(stage.store, "list", None, raising=False)
    for number in range(1, 7):
        stage.evaluate(stage.model(number), 9 - number / 10)
        assert stage.promote() == 0
        assert last_record(stage.store, "dev").number == number


def test_a_flipped_bit_in_a_champions_record_is_found_or_says_nothing(stage):
    stage.evaluate(stage.model(1))
    stage.promote()
    (path,) = stage.records()
    good, record = path.read_bytes(), last_record(stage.store, "dev")
    found = 0
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :])
        try:
            assert last_record(stage.store, "dev") == record, at
        except DataError as error:
            assert "history/000001.json" in str(error)
            found += 1
    assert found > 0.9 * len(good), "only the seal itself may be damaged unseen"


@pytest.mark.parametrize("whose", ["challenger", "champion"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "metrics.jsonl"])
def test_a_flipped_bit_in_any_file_of_a_model_is_found_and_nobody_is_promoted(stage, caplog, whose, name):
    models = {"champion": stage.model(1), "challenger": stage.model(2)}
    stage.evaluate(models["champion"])
    stage.promote()
    stage.evaluate(models["challenger"], 7.0)
    manifest = models[whose].manifest
    path = stage.folder / f"cas/train/{manifest.key}/{manifest.attempt}/{name}"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    assert stage.promote() == 65
    assert f"the {whose}'s model is damaged, and the champion stays as it is" in caplog.text
    assert name in caplog.text and "run the train stage again with --force, or restore" in caplog.text
    assert ("yanmo promote rollback --why damaged --store" in caplog.text) == (whose == "champion")
    assert stage.pointer("champion").key == models["champion"].manifest.key


@pytest.mark.parametrize("cut", [0, 1, 300])
def test_a_truncated_manifest_of_the_champion_is_named(stage, caplog, cut):
    champion_model = stage.model(1)
    stage.evaluate(champion_model)
    stage.promote()
    stage.evaluate(stage.model(2), 7.0)
    path = stage.folder / champion_model.reference.manifest_uri
    path.write_bytes(path.read_bytes()[:cut])
    assert stage.promote() == 65
    assert champion_model.reference.manifest_uri in caplog.text
    assert stage.pointer("champion").key == champion_model.manifest.key


@pytest.mark.parametrize("name", ["documents-00000-of-00001.parquet", "summary.json", "samples.json"])
def test_a_flipped_bit_in_any_file_of_an_evaluation_is_found(stage, caplog, name):
    stage.evaluate(stage.model(1))
    stage.promote()
    second = stage.evaluate(stage.model(2), 7.0)
    path = stage.folder / f"cas/evaluate/{second.manifest.key}/{second.manifest.attempt}/{name}"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 4]) + data[41:])
    assert stage.promote() == 65
    assert name in caplog.text and "changed since it was committed" in caplog.text
    assert len(stage.records()) == 1


def asked_of(folder, *names):
    """KFP's executor input that asks for these artifacts of promote, and where they will lie."""
    artifacts = {name: {"artifacts": [{"uri": str(folder / name)}]} for name in names}
    parameters = {name: {"outputFile": str(folder / name)} for name in STAGE.parameters}
    asked = {"artifacts": artifacts, "parameters": parameters, "outputFile": str(folder / "out.json")}
    return "--executor-input=" + json.dumps({"outputs": asked})


def test_a_paused_training_is_reported_first_and_the_champion_stays(judged, tmp_path):
    before = judged.pointer("champion"), judged.pointer("promote"), len(judged.records())
    pause = Pause(where="step 120 of 450", why="--night 21:00-08:00 Asia/Shanghai is over")
    paused = PausedOutput.of("train", "ab" * 32, pause).to_json()
    pipeline = asked_of(tmp_path, "verdict", "report", "verdict_line", "champion")
    assert judged.promote("--challenger", paused, pipeline) == 0
    page = (tmp_path / "report").read_text(encoding="utf-8")
    first = page[page.index("<h1>") : page.index("</h1>")]
    for words in ("Paused at step 120 of 450", "--night 21:00-08:00 Asia/Shanghai is over", "goes on there"):
        assert words in first
    assert (tmp_path / "verdict_line").read_text(encoding="utf-8").startswith("Paused at step 120 of 450")
    assert (tmp_path / "verdict").read_text(encoding="utf-8") == paused
    assert (tmp_path / "promoted").read_text(encoding="utf-8") == "false"
    assert (tmp_path / "result").read_text(encoding="utf-8").startswith("Paused at step 120 of 450")
    assert json.loads((tmp_path / "champion").read_text(encoding="utf-8")) == vars(before[0])
    assert (judged.pointer("champion"), judged.pointer("promote"), len(judged.records())) == before
    (judged.folder / "pointers/dev/champion.json").unlink()
    assert judged.promote("--challenger", paused, pipeline) == 0
    assert judged.pointer("champion") == before[0], "a pointer that is lost follows the history"


def test_the_champion_that_a_run_leaves_is_its_output(stage, tmp_path):
    stage.evaluate(stage.model(1))
    assert stage.promote(asked_of(tmp_path, "champion", "verdict_line"), "--dry-run") == 0
    assert (tmp_path / "champion").read_text(encoding="utf-8") == "none\n"
    assert stage.promote(asked_of(tmp_path, "champion", "verdict_line")) == 0
    assert json.loads((tmp_path / "champion").read_text(encoding="utf-8")) == vars(stage.pointer("champion"))
    said = (tmp_path / "verdict_line").read_text(encoding="utf-8")
    assert said.startswith("Promoted: it is the channel's first champion. ")
    assert said.count("Promoted") == 1 and "The channel had no champion yet; 7.990 bits" in said


def test_the_verdict_is_on_metrics(stage, monkeypatch):
    kept = []

    def keep(*given):
        kept.append(telemetry_of(*given))
        return kept[-1]

    monkeypatch.setattr(run, "telemetry_of", keep)
    outcomes = []
    for seed, bits in ((1, 8.0), (2, 7.8), (3, 7.9), (4, 7.85)):
        stage.evaluate(stage.model(seed), bits)
        assert stage.promote() == 0
        value = kept[-1].value
        outcomes.append([outcome for outcome in OUTCOMES if value("verdict", outcome=outcome)])
        shown = [value("mean_bits_per_character", model=model) for model in ("challenger", "champion")]
        assert shown[0] == pytest.approx(bits, abs=0.05) and (shown[1] is None) == (seed == 1)
        assert value("bits_per_character", model="challenger", genre=GENRES[0]) is not None
        since = value("champion_since_timestamp_seconds")
        assert time.time() - 3600 < since <= time.time()
        nights = value("nights_since_promotion")
        assert nights == (len(stage.verdict()["nights"]) if seed > 2 else 0)
    assert outcomes == [["promoted"], ["promoted"], ["not promoted"], ["not promoted"]]
    assert set(get_args(Outcome)) == set(OUTCOMES)
    stage.evaluate(stage.model(5), 7.5)
    assert stage.promote("--hold") == 0
    assert [kept[-1].value("verdict", outcome=outcome) for outcome in (*OUTCOMES, HELD)] == [0, 0, 0, 1]
    output = open_reference(stage.store, stage.pointer("promote"))
    recorded = output.path("metrics.prom").read_text(encoding="utf-8")
    assert 'yanmo_promote_verdict{outcome="held"} 1.0' in recorded
    assert re.search('yanmo_promote_mean_bits_per_character{model="challenger"} 7.4', recorded)
    assert stage.promote() == 0
    assert kept[-1].recorded is None and kept[-1].value("verdict", outcome="promoted") == 1
    assert re.search(r"yanmo_promote_nights_since_promotion [1-9]", recorded)
