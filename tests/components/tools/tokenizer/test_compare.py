import json

import pyarrow as pa
import pytest

from yanmo.common.errors import ExitCode
from yanmo.tools.command_group import main
from yanmo.tools.tokenizer.candidates import KINDS, Workshop
from yanmo.tools.tokenizer.command import TOOL
from yanmo.tools.tokenizer.compare import measure


@pytest.fixture(scope="module")
def texts(corpus):
    return [d["text"] for d in corpus]


@pytest.fixture(scope="module")
def workshop(texts, tmp_path_factory) -> Workshop:
    return Workshop(texts[:300], tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module")
def made(workshop):
    return {kind: workshop.make(kind, 1024) for kind in KINDS}


def test_measures_are_those_of_the_text(made, texts):
    jieba = made["jieba"]
    learned = jieba.encode(pa.array(texts[:300]))[0]
    found = measure(jieba, learned, ["春眠不觉晓"], ["春眠不觉晓"])
    assert (found.ids, found.boundary_recall) == (jieba.vocab_size, 1.0)
    assert found.unused_ids == jieba.vocab_size - len(set(learned.tolist()))
    assert found.unused_ids < found.rare_ids
    ids = jieba.encode(pa.array(["春眠不觉晓"]))[0]
    assert found.characters_per_token == round(5 / len(ids), 4)


def test_command_compares(store, bpe, capsys):
    argv = ["compare", "--documents=dev/curate", "--sizes=1024", "--store", str(store)]
    argv += ["--candidates", f"jieba,bpe,{bpe}"]
    assert main(TOOL, [*argv, "--json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert list(found["candidates"]) == ["jieba 1024", "bpe 1024", bpe.name]
    assert found["held_out"]["documents"] == 40
    one = found["candidates"]["jieba 1024"]
    assert one["ids"] <= 1024 and 0.4 < one["characters_per_token"] < 2 and one["boundary_recall"] > 0.9
    assert main(TOOL, argv) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "judged by 40 documents" in out and "\njieba 1024" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--documents"),
        (["--sizes=12"], "--sizes 12: expected a whole number from 512 to 300000"),
        (["--candidates=jieba,nothing"], "--candidates nothing"),
        (["--candidates=jieba"], "two or more"),
        (["--characters=0"], "--characters 0: expected a whole number from 1"),
    ],
)
def test_wrong_option_is_refused(tmp_path, argv, message, capsys):
    given = ["--documents=dev/curate"] * bool(argv)
    assert main(TOOL, ["compare", "--store", str(tmp_path), *given, *argv]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
