"""What of the test a model was trained on is measured with every evaluation, and said aloud."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_training_text import main, model_of, opened, text_with
from tiny_store import GENRES, HAN, commit, copied, make_model, make_row, parquet, read

from yanmo.evaluate.documents.reading import Document
from yanmo.evaluate.writing.contamination import contamination
from yanmo.promote.command import main as promote

BARE = ("--documents", "none", "--samples", "0")


@pytest.fixture(autouse=True)
def _log_of_the_stage(caplog):
    caplog.set_level("INFO", logger="yanmo")


def leaked(ground, number):
    """A training text that holds `number` of the 12 test documents of each genre."""
    test = [make_row(g, "test", i) for g in GENRES for i in range(number)]
    rows = [{**row, "split": "train", "id": f"{i:064d}"} for i, row in enumerate(test)]
    rows += [make_row(g, "train", i) for g in GENRES for i in range(20)]
    return text_with(ground, f"leak{number}", rows)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "contamination" in r.msg]


def test_trained_on_test_documents_are_told_whatever_is_asked_for(ground, tmp_path, caplog):
    model_of(ground, tmp_path / "leaky", leaked(ground, 5))
    for _ in range(2):  # made, and found
        caplog.clear()
        assert main(ground.arguments(*BARE)) == 0
        (message,) = warnings(caplog)
        assert (
            message.startswith("contamination=0.4167: train/")
            and "was trained on 20 of 48 documents" in message
        )
        assert "诗 5 of 12, 词 5 of 12, 文 5 of 12, 赋 5 of 12" in message and "says not valid" in message
    found = read(opened(ground, "evaluate").part("contamination"), "contamination.json")
    assert found["share"] == pytest.approx(20 / 48, abs=1e-5)
    code = promote(
        ["--store", str(ground.folder), "--metrics-port", "-1", "--writing", "none", "--limits", ""]
    )
    assert code == 0 and "Not valid: evaluated texts are in its training text. 41.67 % of" in caplog.text
    assert ground.store.sizes(["pointers/dev/champion.json"]) == [None]


def test_a_clean_model_is_promoted_without_a_word_more(ground, tmp_path, caplog):
    model_of(ground, tmp_path / "clean", leaked(ground, 0))
    assert main(ground.arguments(*BARE)) == 0
    assert not warnings(caplog) and "contamination=0: none of 48 documents" in caplog.text
    code = promote(
        ["--store", str(ground.folder), "--metrics-port", "-1", "--writing", "none", "--limits", ""]
    )
    assert code == 0 and "The channel had no champion yet" in caplog.text


def test_what_the_lineage_does_not_show_is_not_called_clean(ground, caplog):
    assert main(ground.arguments(*BARE)) == 0
    (message,) = warnings(caplog)
    assert message.startswith("contamination=unknown: ") and "does not say which documents" in message
    argv = ["--store", str(ground.folder), "--metrics-port", "-1", "--writing", "none", "--limits", ""]
    assert promote(argv) == 0 and "Not measured: whether the evaluated texts" in caplog.text
    assert ground.store.sizes(["pointers/dev/champion.json"]) == [None]
    assert promote([*argv, "--accept-unmeasured", "contamination"]) == 0
    assert ground.store.sizes(["pointers/dev/champion.json"]) != [None]


def test_half_of_a_lineage_is_searched_and_said_to_be_half(ground, tmp_path, caplog):
    names = make_model(tmp_path / "imported", seed=9)
    imported = commit(ground.store, "train", copied(tmp_path / "imported", names), options={"i": 1})
    model_of(ground, tmp_path / "tuned", leaked(ground, 5), base=imported)
    assert main(ground.arguments(*BARE)) == 0
    leak, gap = warnings(caplog)
    assert leak.startswith("contamination=0.4167: ") and "may be higher" in gap


def test_models_of_one_text_share_the_search(ground, tmp_path):
    text = leaked(ground, 2)
    for seed in (1, 2):
        model_of(ground, tmp_path / f"model{seed}", text, seed=seed)
        assert main(ground.arguments(*BARE)) == 0
    assert len(list(ground.folder.glob("cas/contamination/*/MANIFEST.json"))) == 1


def test_a_text_that_cannot_be_read_is_unknown_and_stops_nothing(ground, tmp_path, caplog):
    text = leaked(ground, 5)
    model_of(ground, tmp_path / "leaky", text)
    (path,) = ground.folder.glob(f"cas/curate/{text.manifest.key}/*/train-*.parquet")
    path.write_bytes(b"PAR1")
    assert main(ground.arguments(*BARE)) == 0
    assert "cannot be read" in caplog.text and "contamination=unknown" in caplog.text


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=12))
def test_the_share_is_that_of_the_documents_that_can_be_found(tmp_path_factory, cases):
    """By hand: a copied document is found when it holds 13 Han characters; others never are."""
    texts = [
        f"{HAN[i % 7 :] + HAN * 2}"[: 3 * i % 5] + chr(0x4E00 + i) * length
        for i, (length, _) in enumerate(cases)
    ]
    documents = [Document(str(i), "诗", "s", text) for i, text in enumerate(texts)]
    found = contamination(
        documents, [_Text(tmp_path_factory, [t for t, (_, c) in zip(texts, cases, strict=True) if c])]
    )
    held = [sum("\u4e00" <= c <= "\u9fff" for c in text) >= 13 for text in texts]
    hits = sum(h and copied for h, (_, copied) in zip(held, cases, strict=True))
    assert found["genres"]["诗"]["with_a_shared_run"] == hits
    assert found["genres"]["诗"]["too_short"] == held.count(False)
    assert found["share"] == (round(hits / sum(held), 5) if any(held) else None)


def test_in_modern_text_code_counts_and_a_fifth_is_found(tmp_path_factory):
    code = [f"def f{i}(x): return x + {i}" for i in range(100)]
    documents = [Document(str(i), "诗", "s", "\n".join(code[i::2])) for i in range(2)]
    for lines, share in ((code[::2], 0.5), ([*code[:16:2], HAN], 0.0), ([*code[:40:2], HAN], 0.5)):
        found = contamination(documents, [_Text(tmp_path_factory, ["\n".join(lines)])], form="modern-1")
        assert found["share"] == share and found["genres"]["诗"]["with_a_shared_run"] == 1


class _Text:
    """A documents output of one file."""

    def __init__(self, factory, texts):
        self.path = factory.mktemp("text") / "train-0.parquet"
        parquet([make_row("诗", "train", i, text=text) for i, text in enumerate(texts)])(self.path)

        self.manifest = SimpleNamespace(metadata={})

    def paths(self, pattern):
        return [self.path]
