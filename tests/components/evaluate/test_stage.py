"""The whole stage on a tiny store, through its command line."""

import json
import logging
import re
import time

import pyarrow.parquet as pq
import pytest
from processes import needs_affinity, one_cpu
from tiny_store import commit, copied, make_ground, make_model, make_row, parquet, read

from yanmo.common.answers import RESULTS_LATER
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.work import STEPS
from yanmo.formats.records import EVALUATION
from yanmo.nights.record import read_record
from yanmo.stage.run import main
from yanmo.store.named import carried_in
from yanmo.store.output import open_reference
from yanmo.store.pointers import move_pointer, pointer_name, read_pointer


def evaluate(ground, *more, documents="none"):
    argv = ground.arguments("--documents", documents, "--samples", "4", *more)
    return main(STAGE, STEPS, argv)


def opened(ground, name="evaluate"):
    return open_reference(ground.store, read_pointer(ground.store, "dev", name))


@pytest.fixture(autouse=True)
def _log_of_the_stage(caplog):
    caplog.set_level(logging.INFO, logger="yanmo")


def test_a_run_leaves_figures_scores_samples_and_baselines(ground, caplog):
    assert evaluate(ground, documents="latest") == 0
    output = opened(ground)
    summary = read(output, "summary.json")
    assert list(summary["genres"]) == ["诗", "词", "文", "赋"]
    assert summary["model"] == ground.model.content_digest
    assert summary["conditions"]["evaluation_set"] == ground.evaluation_set.content_digest
    table = pq.read_table(output.path("documents-00000-of-00001.parquet"))
    assert table.schema.equals(EVALUATION)
    assert table.num_rows == 48
    assert table.schema.metadata == EVALUATION.metadata
    bits, characters = (sum(table[name].to_pylist()) for name in ("bits", "characters"))
    assert summary["total"]["bits_per_character"] == pytest.approx(bits / characters, abs=1e-4)
    assert [len(v) for v in read(output, "samples.json")["genres"].values()] == [4, 4, 4, 4]
    baselines = read(opened(ground, "baselines"), "summary.json")["baselines"]
    assert list(baselines) == ["xz", "ppmd", "ngram", "mixture"]
    means = {name: figures["mean"]["bits_per_character"] for name, figures in baselines.items()}
    assert means["ngram"] < means["ppmd"] < means["xz"] and means["mixture"] < 1.01 * means["ngram"]
    table_in_log = [r.getMessage() for r in caplog.records if r.getMessage().startswith(("bits per", "mean"))]
    assert "with genre tag" in table_in_log[0] and "5-gram" in table_in_log[0]


@needs_affinity
def test_the_workers_are_as_many_as_cpus_may_be_used_and_the_bytes_are_the_same(ground, tmp_path, caplog):
    other = make_ground(tmp_path / "another", tmp_path / "its model")
    assert evaluate(ground, "--workers", "2", documents="latest") == 0
    with one_cpu():
        assert evaluate(other, "--workers", "0", documents="latest") == 0
    assert "1 at work at a time at most: 1 CPU may be used here" in caplog.text
    assert opened(other).manifest.execution["workers"] == 1
    for name in ("evaluate", "baselines", "writing"):
        one, two = opened(ground, name), opened(other, name)
        assert one.manifest.attempt != two.manifest.attempt
        assert (one.manifest.key, one.content_digest) == (two.manifest.key, two.content_digest)


def test_what_is_made_after_the_output_records_a_cost_of_its_own(ground):
    assert evaluate(ground, documents="latest") == 0
    for name in ("evaluate", "baselines", "writing"):
        recorded = opened(ground, name).path("metrics.prom").read_text(encoding="utf-8")
        for figure in ("duration", "cpu"):
            found = re.search(rf"^yanmo_{name}_{figure}_seconds (\S+)$", recorded, re.MULTILINE)
            assert found and float(found[1]) > 0, figure
    digest = opened(ground, "baselines").content_digest
    assert evaluate(ground, "--force", documents="latest") == 0
    assert opened(ground, "baselines").content_digest == digest, "a record is no content"


def test_the_table_is_left_to_a_run_that_prints_it_at_its_end(ground, caplog, monkeypatch):
    monkeypatch.setenv(RESULTS_LATER, "1")
    assert evaluate(ground, documents="latest") == 0
    assert "bits per character, mean of 4 genres" in caplog.text and "5-gram mixture" not in caplog.text


def test_a_run_says_how_the_model_writes_beside_the_originals(ground):
    assert evaluate(ground, "--seed", "3", documents="latest") == 0
    output = opened(ground, "writing")
    assert output.input("evaluation").content_digest == opened(ground).content_digest
    memorization = read(output, "memorization.json")
    assert list(memorization["genres"]) == ["诗", "词", "文", "赋"]
    assert all(genre["generated"]["texts"] == 4 for genre in memorization["genres"].values())
    assert len(memorization["nearest"]) == 16 and memorization["genre_by_chance"] == 0.25
    assert memorization["held_out"].keys() == memorization["generated"].keys()
    form = read(output, "verse.json")["rules"][0]
    assert form["held_out"]["share"] == 1.0 and form["generated"]["of"] == 4
    assert read(opened(ground).part("contamination"), "contamination.json")["share"] == 0.0


def test_a_test_text_that_was_trained_on_is_found(ground):
    leaked = [make_row("诗", "train", 0, text=make_row("诗", "test", i)["text"]) for i in range(3)]
    documents = commit(
        ground.store, "curate", {"train-00000-of-00001.parquet": parquet(leaked)}, options={"n": 1}
    )
    assert evaluate(ground, documents=f"curate/{documents.reference.key}") == 0
    found = read(opened(ground).part("contamination"), "contamination.json")
    assert found["genres"]["诗"]["with_a_fifth_shared"] == 3
    assert found["share"] == 3 / 48
    memorization = read(opened(ground, "writing"), "memorization.json")
    assert memorization["genres"]["诗"]["held_out"]["longest_copy"] == 20


def test_the_second_run_does_nothing_and_another_model_keeps_the_baselines(ground, tmp_path, caplog):
    evaluate(ground, documents="latest")
    caplog.clear()
    assert evaluate(ground, documents="latest") == 0
    assert "committed already" in caplog.text
    assert "scoring" not in caplog.text and "baselines:" not in caplog.text
    before = read_pointer(ground.store, "dev", "baselines")
    names = make_model(tmp_path / "other", seed=1)
    commit(ground.store, "train", copied(tmp_path / "other", names), options={"seed": 1})
    caplog.clear()
    assert evaluate(ground, "--temperature", "0.5", documents="latest") == 0
    assert "scoring" in caplog.text and "baselines:" not in caplog.text
    assert read_pointer(ground.store, "dev", "baselines") == before


def test_no_champion_yet_is_no_fault_and_no_model_is_one(ground, tmp_path, caplog):
    none = tmp_path / "champion.json"
    none.write_text("none\n")
    assert evaluate(ground, "--champion", str(none)) == 0
    assert read_pointer(ground.store, "dev", "champion_evaluation") is None
    assert evaluate(ground, "--model", "none") == 65
    ground.store.delete("pointers/dev/train.json")
    assert evaluate(ground) == 65
    assert "run `yanmo train` first" in caplog.text


def model_beside(ground, tmp_path, damaged=False):
    """Another model of the store, which the channel does not point at."""
    folder, ours = tmp_path / "another model", read_pointer(ground.store, "dev", "train")
    names = make_model(folder, seed=5)
    if damaged:
        (folder / "model.safetensors").write_bytes(b"x")
    cache = ground.model.input("token_cache")
    files = {name: (folder / name).read_bytes() for name in names}
    found = commit(
        ground.store, "train", files, inputs={"token_cache": cache} if cache else {}, options={"n": 5}
    )
    move_pointer(ground.store, "dev", "train", ours)
    return found


def handed_on(ground, tmp_path, *flags, documents="latest"):
    """What the next task of a pipeline gets."""
    names = {n: {"artifacts": [{"name": n, "uri": str(tmp_path / "kfp" / n)}]} for n in STAGE.outputs}
    asked = {"outputs": {"artifacts": names, "outputFile": str(tmp_path / "kfp/out.json")}}
    assert evaluate(ground, "--executor-input", json.dumps(asked), *flags, documents=documents) == 0
    return carried_in(str(tmp_path / "kfp/evaluation"), "--challenger")


def test_the_champion_is_measured_in_the_same_task_under_its_own_key(ground, tmp_path, caplog):
    other = model_beside(ground, tmp_path)
    carried = handed_on(ground, tmp_path, f"--champion=train/{other.manifest.key}", "--base=latest")
    assert sorted(carried) == ["base", "baselines", "champion", "contamination", "writing"]
    measured = open_reference(ground.store, carried["champion"])
    assert read(measured, "summary.json")["model"] == other.content_digest
    assert carried["champion"] == read_pointer(ground.store, "dev", "champion_evaluation")
    assert carried["base"] == read_pointer(ground.store, "dev", "evaluate"), (
        "the base is the model itself here"
    )
    alone = opened(ground).content_digest
    assert (
        evaluate(ground, "--model", f"train/{other.manifest.key}", "--pointer=mine", documents="latest") == 0
    )
    assert read_pointer(ground.store, "dev", "mine") == carried["champion"], (
        "measured alone it has the same key"
    )
    assert opened(ground).content_digest == alone
    gauges = opened(ground).path("metrics.prom").read_text(encoding="utf-8")
    mean = read(opened(ground), "summary.json")["mean"]["bits_per_character"]
    assert f"mean_bits_per_character {mean}" in gauges, "/metrics shows the challenger"


def test_where_nothing_is_handed_on_that_is_said_so_that_no_pointer_is_asked(ground, tmp_path):
    """Else promote would take the baselines of the channel's last run for this one's."""
    assert handed_on(ground, tmp_path, documents="none") == {}


@pytest.mark.long
def test_the_time_of_the_champions_evaluation_is_its_own(ground, tmp_path):
    """The page of nights adds the tasks' seconds up: it showed twice what a night had taken."""
    champion = f"--champion=train/{model_beside(ground, tmp_path).manifest.key}"
    argv = ground.arguments("--documents=none", champion, "--run-id=night-7")
    assert main(STAGE, STEPS, argv, started=time.monotonic() - 1000) == 0
    stages = read_record(ground.store, "dev", "night-7").stages
    assert sorted(stages) == ["evaluate", "evaluate-champion"]
    assert stages["evaluate-champion"].seconds < 1000 < stages["evaluate"].seconds


@pytest.mark.long
def test_a_smaller_budget_takes_the_place_of_no_evaluation_of_the_champion(ground, tmp_path):
    champion = f"--champion=train/{model_beside(ground, tmp_path).manifest.key}"
    whole = handed_on(ground, tmp_path, champion)["champion"]
    trial = handed_on(ground, tmp_path, champion, "--budget-documents=5")["champion"]
    assert trial != whole == read_pointer(ground.store, "dev", "champion_evaluation")


def test_a_champion_that_cannot_be_measured_does_not_fail_the_challenger(ground, tmp_path, caplog):
    other = model_beside(ground, tmp_path, damaged=True)
    carried = handed_on(ground, tmp_path, f"--champion=train/{other.manifest.key}")
    assert sorted(carried) == ["baselines", "contamination", "writing"]
    assert f"the champion {other} cannot be measured: " in caplog.text
    assert read_pointer(ground.store, "dev", "champion_evaluation") is None


@pytest.mark.parametrize(("documents", "is_said"), [("", True), ("none", False)])
def test_without_training_documents_there_are_no_baselines(ground, caplog, documents, is_said):
    ground.store.delete(pointer_name("dev", "curate"))
    assert evaluate(ground, documents=documents) == 0
    assert read_pointer(ground.store, "dev", "baselines") is None
    assert read_pointer(ground.store, "dev", "writing") is None
    assert ("no baselines" in caplog.text) is is_said, "not to who declined them, as a night for its champion"


def test_an_absent_or_empty_split_is_refused(ground, caplog):
    files = {"valid-00000-of-00001.parquet": parquet([make_row("诗", "valid", 0)])}
    commit(ground.store, "evaluation_set", files, options={"n": 0})
    assert evaluate(ground) == 65
    assert "has no split 'test'" in caplog.text
    commit(ground.store, "evaluation_set", {"test-00000-of-00001.parquet": parquet([])}, options={"n": 1})
    assert evaluate(ground) == 65
    assert "split 'test' is empty" in caplog.text


@pytest.mark.parametrize(
    ("of_set", "words"),
    [("classical-1", "form 'modern-1', expected"), ("modern-1", "a model of text of form")],
)
def test_text_of_another_form_than_the_sets_or_the_models_is_refused(ground, caplog, of_set, words):
    body = parquet([make_row("诗", "test", 0)], {b"yanmo.text_form": b"modern-1"})
    files = {"test-00000-of-00001.parquet": body}
    commit(ground.store, "evaluation_set", files, options={"n": 0}, metadata={"text_form": of_set})
    assert evaluate(ground) == 65
    assert words in caplog.text and "'modern-1'" in caplog.text and "'classical-1'" in caplog.text


@pytest.mark.parametrize("how", ["damaged", "truncated"])
def test_damaged_weights_are_refused_by_name(ground, caplog, how):
    manifest = ground.model.manifest
    path = ground.folder / f"cas/train/{manifest.key}/{manifest.attempt}/model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:100] if how == "truncated" else data[:-1] + bytes([data[-1] ^ 1]))
    assert evaluate(ground) == 65
    assert "model.safetensors: " in caplog.text
    assert not list((ground.folder / "cas").glob("evaluate/*/*"))


def test_a_model_of_another_vocabulary_is_refused_by_name(ground, tmp_path, caplog):
    names = make_model(tmp_path / "small", vocab_size=100)
    model = commit(ground.store, "train", copied(tmp_path / "small", names), options={"vocabulary": 1})
    assert evaluate(ground) == 65
    assert f"{model}: model of another vocabulary: its embedding has 100 rows" in caplog.text


def test_kfp_gets_references_and_bits_under_ascii_names(ground, tmp_path):
    artifacts = {
        name: {"artifacts": [{"name": name, "uri": str(tmp_path / "kfp" / name)}]} for name in STAGE.outputs
    }
    asked = {"outputs": {"artifacts": artifacts, "outputFile": str(tmp_path / "kfp" / "out.json")}}
    assert evaluate(ground, "--executor-input", json.dumps(asked), documents="latest") == 0
    written = json.loads((tmp_path / "kfp" / "out.json").read_text())["artifacts"]
    shown = written["metrics"]["artifacts"][0]["metadata"]
    assert sorted(shown) == [f"bits_per_character_{name}" for name in ("ci", "fu", "mean", "shi", "wen")]
    assert all(isinstance(value, float) for value in shown.values())
    said = written["evaluation"]["artifacts"][0]["metadata"]
    assert said["bytes_at"].endswith(opened(ground).manifest.attempt) and said["documents"] == 48
    carried = carried_in(str(tmp_path / "kfp/evaluation"), "--challenger")
    assert all(name == one.stage for name, one in carried.items())
    assert sorted(carried) == ["baselines", "contamination", "writing"]


def test_a_budget_of_documents_takes_the_first_of_each_genre(ground):
    assert evaluate(ground, "--budget-documents", "5") == 0
    summary = read(opened(ground), "summary.json")
    assert [genre["documents"] for genre in summary["genres"].values()] == [5, 5, 5, 5]
    assert summary["conditions"]["documents_per_genre"] == "5"
    assert evaluate(ground, "--budget-documents", "12") == 0  # all that there are
    assert "documents_per_genre" not in read(opened(ground), "summary.json")["conditions"]


def test_a_stride_is_a_condition_of_comparison_and_must_fit_the_model(ground, caplog):
    assert evaluate(ground, "--stride", "4") == 0
    summary = read(opened(ground), "summary.json")
    assert summary["conditions"]["scoring"] == "stride-4/1"
    assert evaluate(ground, "--stride", "17") == 64
    assert "--stride: stride 17: expected 1 to 16 tokens" in caplog.text
    assert evaluate(ground, "--device", "tpu") == 64
    json.dumps(summary, allow_nan=False)
