"""Copies are looked for in the text that the model was trained on, whatever documents the run is given."""

import pytest
from tiny_store import GENRES, commit, copied, make_model, make_row, parquet, read

from yanmo.evaluate.config import STAGE
from yanmo.evaluate.work import STEPS
from yanmo.formats.training_text import training_text
from yanmo.promote.command import main as promote
from yanmo.stage.run import main as run_stage
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

FILE = "train-00000-of-00001.parquet"


def main(arguments):
    return run_stage(STAGE, STEPS, arguments)


@pytest.fixture(autouse=True)
def _log_of_the_stage(caplog):
    caplog.set_level("INFO", logger="yanmo")


def opened(ground, name):
    return open_reference(ground.store, read_pointer(ground.store, "dev", name))


def text_with(ground, name, rows):
    return commit(ground.store, "curate", {FILE: parquet(rows)}, options={"name": name}, pointer=name)


def model_of(ground, folder, text, *, base=None, seed=1):
    """A model whose manifests lead through a token cache and balanced documents to `text`."""
    options = {"seed": seed}
    balanced = commit(ground.store, "balance", {"b": "b"}, inputs={"documents": text}, options=options)
    cache = commit(ground.store, "tokenize", {"t": "t"}, inputs={"documents": balanced}, options=options)
    names = make_model(folder, seed=seed)
    inputs = {"token_cache": cache, "model": base}
    return commit(ground.store, "train", copied(folder, names), inputs=inputs, options=options)


@pytest.fixture
def leak(ground):
    """A training text that holds half of the test split."""
    test = [make_row(g, "test", i) for g in GENRES for i in range(6)]
    leaked = [{**row, "split": "train", "id": f"{i:064d}"} for i, row in enumerate(test)]
    return text_with(ground, "leak", leaked + [make_row(g, "train", i) for g in GENRES for i in range(40)])


def contamination(ground):
    return read(opened(ground, "evaluate").part("contamination"), "contamination.json")["share"]


def test_a_clean_text_that_the_model_was_not_trained_on_does_not_make_it_clean(
    ground, leak, tmp_path, caplog
):
    model_of(ground, tmp_path / "leaky", leak)
    given = ("--documents", f"curate/{ground.documents.reference.key}")
    assert main(ground.arguments("--samples", "1", *given)) == 0
    assert "is not what train/" in caplog.text and f"looking for copies in {leak}" in caplog.text
    assert contamination(ground) == 0.5
    assert opened(ground, "writing").input("documents").content_digest == leak.content_digest


def test_the_text_of_the_model_that_it_began_from_is_searched_too(ground, leak, tmp_path):
    base = model_of(ground, tmp_path / "base", leak)
    tuned = model_of(ground, tmp_path / "tuned", ground.documents, base=base, seed=2)
    assert training_text(tuned).texts[0].content_digest == ground.documents.content_digest
    given = ("--documents", f"curate/{ground.documents.reference.key}")
    assert main(ground.arguments("--samples", "1", *given)) == 0
    assert contamination(ground) == 0.5


def test_a_lineage_with_a_gap_says_where(ground, leak, tmp_path):
    model = model_of(ground, tmp_path / "model2", leak)
    ground.store.delete(leak.reference.manifest_uri)
    known = training_text(model)
    assert known.texts == [] and "no such output; run the curate stage again" in known.unknown[0]
    assert "does not say which documents" in training_text(ground.model).unknown[0]


def test_a_gap_in_a_models_own_text_does_not_hide_that_of_the_model_it_began_from(ground, leak, tmp_path):
    base = model_of(ground, tmp_path / "base", leak)
    tuned = model_of(ground, tmp_path / "tuned", ground.documents, base=base, seed=2)
    ground.store.delete(tuned.input("token_cache").reference.manifest_uri)
    known = training_text(tuned)
    assert len(known.unknown) == 1 and known.digests() == {leak.content_digest}
    given = ("--documents", f"curate/{ground.documents.reference.key}")
    assert main(ground.arguments("--samples", "1", *given)) == 0
    assert contamination(ground) == 0.5


def test_the_champions_parts_leave_the_channels_own_alone(ground, tmp_path):
    given = ("--samples", "1", "--documents", f"curate/{ground.documents.reference.key}")
    assert main(ground.arguments(*given)) == 0
    own = read_pointer(ground.store, "dev", "writing")
    assert main(ground.arguments(*given, "--seed", "9", "--pointer", "champion_evaluation")) == 0
    assert read_pointer(ground.store, "dev", "writing") == own
    other = opened(ground, "champion_evaluation_writing")
    assert other.reference != own
    assert other.input("evaluation").reference == read_pointer(ground.store, "dev", "champion_evaluation")


def test_what_promote_advises_where_contamination_was_not_measured_mends_it(ground, leak, tmp_path, caplog):
    """The text is away for a night: `evaluate --force` where it is back measures, and promote goes by it."""
    clean = text_with(ground, "clean", [make_row(g, "train", i) for g in GENRES for i in range(20)])
    model_of(ground, tmp_path / "second", clean)
    bare = ground.arguments("--documents", "none", "--samples", "0")
    verdict = [*ground.arguments()[:4], "--writing", "none", "--limits", ""]
    (path,) = ground.folder.glob(f"cas/curate/{clean.manifest.key}/*/{FILE}")
    path.rename(tmp_path / "away")
    assert main(bare) == 0
    assert promote(verdict) == 0 and "Not measured: whether" in caplog.text
    assert read_pointer(ground.store, "dev", "champion") is None
    (tmp_path / "away").rename(path)
    assert "Evaluate again (--force)" in caplog.text
    assert main([*bare, "--force"]) == 0
    assert read(opened(ground, "evaluate").part("contamination"), "contamination.json")["share"] == 0
    assert promote(verdict) == 0
    assert read_pointer(ground.store, "dev", "champion") is not None
