import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from yanmo.common.errors import ExitCode
from yanmo.formats.documents import read_documents
from yanmo.formats.records import write_parquet
from yanmo.formats.token_cache import SpecialIds, TokenCache
from yanmo.stage.run import main as run_stage
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.foreign import read_segmenter
from yanmo.tokenize.work import STEPS
from yanmo.tools.command_group import main
from yanmo.tools.tokenizer.command import TOOL


def latest(root: Path, name: str = "tokenizer"):
    store = FileStore(root)
    return open_reference(store, read_pointer(store, "dev", name))


def adopt(root: Path, folder: Path, *argv: str) -> int:
    return main(TOOL, ["import", str(folder), "--store", str(root), *argv])


def tokenize(root: Path, *argv: str) -> int:
    fast = ["--agreement-sentences=50", "--metrics-port=-1", "--tokenizer=latest"]
    return run_stage(STAGE, STEPS, ["--store", str(root), *fast, *argv])


def changed(folder: Path, target: Path, **changes) -> Path:
    value = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    target.mkdir(exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(value | changes), encoding="utf-8")
    return target


def test_what_a_training_needs_is_added_behind_the_ids_of_the_tokenizer(store, bpe, capsys):
    assert adopt(store, bpe) == ExitCode.DONE
    assert "1063 ids, 63 added" in capsys.readouterr().out
    output = latest(store)
    special = SpecialIds.read(output.path("genres.json"))
    ours = Tokenizer.from_file(str(output.path("tokenizer.json")))
    assert special.vocab_size == read_segmenter(output.path("tokenizer.json")).vocab_size == 1000 + 63
    assert (special.bos, special.eos, special.pad) == (1000, 1001, 1002)
    assert special.im_start == 1 and special.im_end == 1003
    assert special.genres == ("诗", "词", "文", "赋") and special.tag_ids == (1004, 1005, 1006, 1007)
    assert ours.token_to_id("<|tag_58|>") == 1062 and ours.token_to_id("<|bos|>") == 1000
    before = Tokenizer.from_file(str(bpe / "tokenizer.json"))
    text = "春眠不觉晓，处处闻啼鸟。Hello 𠀀"
    assert ours.encode(text).ids == before.encode(text).ids


def test_adopted_tokenizer_loads_in_transformers_with_chat_template(store, bpe):
    assert adopt(store, bpe, "--genres=qu,话本") == ExitCode.DONE
    folder = latest(store).path("tokenizer_config.json").parent
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == ("<|bos|>", "<|eos|>", "<|pad|>")
    text = loaded.apply_chat_template([{"role": "user", "content": "春"}], tokenize=False)
    assert text == "<|bos|><|im_start|>user\n春<|im_end|>\n"
    assert latest(store).manifest.metadata["genres"][4:] == ["曲", "话本"]


def test_cache_of_an_adopted_tokenizer_gives_the_texts_back(store, bpe, corpus):
    assert adopt(store, bpe) == tokenize(store) == ExitCode.DONE
    output = latest(store, "tokenize")
    TokenCache.open(output)
    cache = TokenCache.open(output)
    tokenizer = Tokenizer.from_file(str(cache.tokenizer.path("tokenizer.json")))
    index = cache.split("train")
    for row in range(0, 300, 30):
        begin, length = int(index.offset[row]), int(index.length[row])
        ids = cache.tokens[index.shard[row]][begin : begin + length].tolist()
        assert (ids[0], ids[-1]) == (1000, 1001)
        text = corpus[row]["text"]
        assert tokenizer.decode(ids[1:-1]) == text
        assert index.characters[row] == len("".join(text.split()))
    assert output.manifest.metadata["jieba_agreement"]["boundary_recall"] < 1
    assert output.manifest.metadata["judged_documents"] > 0


def test_tokenizer_that_loses_text_is_refused_with_the_place(store, bpe, tmp_path, capsys):
    folder = changed(bpe, tmp_path / "nfkc", normalizer={"type": "NFKC"})
    assert adopt(store, folder) == ExitCode.DATA
    err = capsys.readouterr().err
    assert "nfkc/tokenizer.json: its tokenizer loses text: " in err and "byte-level" in err
    assert "expected '，' (U+FF0C), found ',' (U+002C)" in err and "comes back as" in err
    assert not list((store / "cas" / "tokenizer").glob("*/MANIFEST.json"))


DROPS = {"type": "Replace", "pattern": {"String": "𪚥"}, "content": ""}


def test_a_tokenizer_that_loses_what_no_built_in_text_holds_is_refused_by_the_stage(
    store, bpe, tmp_path, capsys, corpus
):
    """Here a word of a poem."""
    word = corpus[0]["text"].replace("\n", "")[3:6]
    lossy = {"type": "Replace", "pattern": {"String": word}, "content": word[:2]}
    assert adopt(store, changed(bpe, tmp_path / "word", normalizer=lossy)) == ExitCode.DONE
    capsys.readouterr()
    assert tokenize(store) == ExitCode.DATA
    err = capsys.readouterr().err
    assert "document " in err and "of curate/" in err and "loses text" in err


def test_a_tokenizer_that_loses_evaluated_text_is_refused_before_a_training_is_paid_for(
    store, bpe, tmp_path, capsys, corpus
):
    """Here a word that no training text holds."""
    held_out, (path,) = evaluation_set(store), latest(store, "curate").paths("train-*")
    texts = [document["text"].replace("\n", "") for document in corpus[:300]]
    word = texts[0][3:6]
    table = read_documents(path).take([i for i, text in enumerate(texts) if word not in text])

    def commit(stage: str, inputs: dict[str, Output], references: dict[str, Output]) -> Output:
        def build(attempt: Attempt) -> Result:
            write_parquet(table, attempt.path(path.name))
            attempt.add(path.name)
            return Result(counts={}, references=references)

        made = commit_once(
            FileStore(store), Recipe(stage=stage, revision=2, semantic={}, inputs=inputs), build
        )
        assert made is not None
        return made

    lossy = {"type": "Replace", "pattern": {"String": word}, "content": word[:2]}
    assert adopt(store, changed(bpe, tmp_path / "word", normalizer=lossy)) == ExitCode.DONE
    curated = commit("curate", {}, {"evaluation_set": held_out})
    balanced = commit("balance", {"documents": curated}, {})
    capsys.readouterr()
    for documents in (curated, balanced):
        given = f"{documents.manifest.stage}/{documents.manifest.key}"
        assert tokenize(store, f"--documents={given}") == ExitCode.DATA
        err = capsys.readouterr().err
        assert "of evaluation_set/" in err and "loses text" in err


def evaluation_set(store: Path) -> Output:
    """The texts of the channel's documents, as an evaluation set of their own."""
    curated = latest(store, "curate")

    def build(attempt: Attempt) -> Result:
        for path in curated.paths("*.parquet"):
            attempt.write(path.name, path.read_bytes())
        return Result(counts=curated.manifest.counts, metadata=curated.manifest.metadata)

    recipe = Recipe(stage="evaluation_set", revision=1, semantic={}, inputs={})
    made = commit_once(FileStore(store), recipe, build)
    assert made is not None
    return made


@pytest.mark.long
def test_unigram_whose_decoder_drops_text_is_refused(store, tmp_path, capsys):
    """A plain one, which our own kernel encodes: only decoding shows it."""
    argv = ["--store", str(store), "--metrics-port=-1", "--vocab-size=4096"]
    assert run_stage(STAGE, STEPS, argv) == ExitCode.DONE
    own = latest(store).path("tokenizer.json").parent
    steps = [{"type": "ByteFallback"}, {"type": "Fuse"}, DROPS]
    folder = changed(own, tmp_path / "drops", decoder={"type": "Sequence", "decoders": steps})
    assert adopt(store, folder, "--channel=none") == ExitCode.DATA
    assert "expected '𪚥' (U+2A6A5)" in capsys.readouterr().err
    assert adopt(store, own, "--channel=none") == ExitCode.DONE


@pytest.mark.parametrize(
    "content",
    ["", "[" * 200_000, "{}", "[]", '{"model": {"type": "BPE"}}', '{"model": {"type": "X", "vocab": {}}}'],
)
def test_file_that_is_no_tokenizer_is_refused(store, tmp_path, capsys, content):
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    assert adopt(store, tmp_path) == ExitCode.DATA
    assert "tokenizer.json" in capsys.readouterr().err


def test_folder_without_tokenizer_json_says_how_to_get_one(store, tmp_path, capsys):
    assert adopt(store, tmp_path) == ExitCode.DATA
    assert "save_pretrained" in capsys.readouterr().err


@pytest.mark.process
def test_model_is_trained_and_scored_on_an_adopted_tokenizer(store, bpe):
    assert adopt(store, bpe) == tokenize(store) == ExitCode.DONE
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    common = ["--store", str(store), "--metrics-port=-1"]
    shape = ["--steps=3", "--layers=1", "--width=32", "--heads=1", "--head-width=32", "--feed-forward=64"]
    shape += ["--warmup-steps=0", "--ranks=1", "--backend=torch"]
    train = [sys.executable, "-m", "yanmo.train", *common, *shape]
    subprocess.run(train, env=env, check=True, timeout=300, capture_output=True)
    model = latest(store, "train")
    assert json.loads(model.path("config.json").read_text())["bos_token_id"] == 1000
    judge = ["--evaluation-set", f"evaluation_set/{evaluation_set(store).manifest.key}", "--documents=none"]
    evaluate = [sys.executable, "-m", "yanmo.evaluate", *common, "--split=valid", *judge]
    done = subprocess.run(evaluate, env=env, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
