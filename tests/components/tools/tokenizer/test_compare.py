import json

import numpy as np
import pyarrow as pa
import pytest

from yanmo.common.errors import ExitCode, UsageError
from yanmo.tools.tokenizer.candidates import KINDS, Workshop, parse_candidates
from yanmo.tools.tokenizer.command import main
from yanmo.tools.tokenizer.measure import measure, save_encoded
from yanmo.tools.tokenizer.proxy import ProxyTask, operations_per_token, train_proxy


@pytest.fixture(scope="module")
def texts(corpus):
    return [d["text"] for d in corpus]


@pytest.fixture(scope="module")
def workshop(texts, tmp_path_factory) -> Workshop:
    return Workshop(texts[:300], tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module")
def made(workshop):
    return {kind: workshop.make(kind, 1024) for kind in KINDS}


@pytest.mark.long(few=1)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_texts_back(made, texts, kind):
    segmenter = made[kind]
    assert segmenter.vocab_size <= 1024
    for text in [*texts[1000:1020], "清华大学 Hello 2026 𪚥\n", ""]:
        ids = segmenter.encode(pa.array([text]))[0]
        assert segmenter.reference.decode(ids.tolist(), skip_special_tokens=False) == text
        assert segmenter.widths[ids].sum() == len(text)


def test_char_has_no_words_and_jieba_has(made):
    assert not [p for p in made["char"].pieces[324:] if len(p) > 1]
    assert [p for p in made["jieba"].pieces[324:] if len(p) > 1]


def test_measures_are_those_of_the_text(made, texts):
    learned = made["char"].encode(pa.array(texts[:300]))[0]
    found = measure(made["char"], learned, ["春眠不觉晓"], ["春眠不觉晓"])
    assert (found.ids, found.boundary_recall) == (made["char"].vocab_size, 1.0)
    assert found.unused_ids == made["char"].vocab_size - len(set(learned.tolist()))
    assert found.unused_ids < found.rare_ids
    ids = made["char"].encode(pa.array(["春眠不觉晓"]))[0]
    assert found.characters_per_token == round(5 / len(ids), 4)


@pytest.mark.long
def test_proxy_is_a_function_of_its_job_and_of_equal_operations(made, texts, tmp_path):
    save_encoded(tmp_path / "a.npz", made["jieba"], texts[:200], texts[1000:1040])
    size = made["jieba"].vocab_size
    job = ProxyTask(name="a", encoded=tmp_path / "a.npz", vocab_size=size, operations=2e10, seed=0)
    first, second = train_proxy(job), train_proxy(job)
    assert np.array_equal(first.bits, second.bits) and len(first.bits) == 40
    assert first.steps == int(2e10 / (operations_per_token(size + 2) * 24 * 64)) > 1
    assert first.tokens == first.steps * 24 * 64
    longer = train_proxy(ProxyTask(name="a", encoded=job.encoded, vocab_size=size, operations=6e10, seed=0))
    assert longer.bits.sum() < first.bits.sum()


def test_operations_grow_with_the_head():
    """6 operations per weight of the head, and nothing for the embedding."""
    assert operations_per_token(9000) - operations_per_token(8000) == 6 * 1000 * 128


def test_command_compares_and_recommends(store, bpe, capsys):
    argv = ["compare", "--documents=dev/curate", "--sizes=1024", "--tera-operations=0.01", "--workers=2"]
    argv += ["--candidates", f"jieba,bpe,{bpe}", "--store", str(store)]
    assert main([*argv, "--json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert set(found["candidates"]) == {"jieba 1024", "bpe 1024", bpe.name}
    for one in found["candidates"].values():
        assert 5 < one["bits_per_character"] < 20 and one["interval"][0] <= one["bits_per_character"]
        assert one["proxy"]["steps"] > 0
    assert found["held_out"]["documents"] == 40
    assert found["recommendation"].startswith(("Take ", "jieba", "bpe"))


def test_without_trainings_only_the_cheap_metrics_are_shown(store, capsys):
    argv = ["compare", "--store", str(store), "--documents=dev/curate", "--sizes=1024", "--tera-operations=0"]
    assert main([*argv, "--candidates=char,jieba"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "judged by 40 documents" in out and "char 1024" in out and "Take" not in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--documents"),
        (["--sizes=12"], "--sizes 12: expected a whole number from 512 to 300000"),
        (["--candidates=jieba,nothing"], "--candidates nothing"),
        (["--candidates=jieba"], "two or more"),
        (["--tera-operations=-1"], "--tera-operations -1: expected a number from 0"),
    ],
)
def test_wrong_option_is_refused(tmp_path, argv, message, capsys):
    given = ["--documents=dev/curate"] * bool(argv)
    assert main(["compare", "--store", str(tmp_path), *given, *argv]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_candidates_are_kinds_by_size_and_folders(tmp_path):
    assert parse_candidates("char,jieba", [1024, 2048]) == [("char", 1024), ("jieba", 1024), ("jieba", 2048)]
    assert parse_candidates(f"bpe, {tmp_path}", [1024]) == [("bpe", 1024), (str(tmp_path), 0)]
    with pytest.raises(UsageError):
        parse_candidates("", [1024])
