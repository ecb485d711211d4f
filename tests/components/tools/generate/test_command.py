"""`yanmo generate`: a prompt, a question, stdin; what is wrong ends with its exit code."""

import json
import re
import subprocess
import sys

import pytest
import torch
from saying import random_model, saying_model
from tokenizers import Tokenizer
from verse_judge import passes

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.words import visible
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import move_pointer
from yanmo.tools.generate.command import clean, main
from yanmo.tools.generate.named_model import writes_chatml
from yanmo.tools.generate.spelling import Spelling
from yanmo.verse.forms import form_of


@pytest.fixture
def run(capsys):
    """Runs the command; its exit code, what it answered, and what it said."""

    def run(*argv):
        code = main([*map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_likeliest_text_is_that_of_transformers(run, folder):
    transformers = pytest.importorskip("transformers")
    code, out, _ = run("春眠不觉晓", "--model", folder, "--temperature", "0", "--max-tokens", "30")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = torch.tensor([[0, *tokenizer("春眠不觉晓", add_special_tokens=False).input_ids]])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False)
    spelled = Spelling(Tokenizer.from_file(str(folder / "tokenizer.json"))).reader()
    wanted = "".join(map(spelled, whole[0].tolist()))
    assert (code, out) == (0, f"{visible(wanted)}\n") and len(whole[0]) > ids.shape[1] + 5


def test_a_text_is_written_among_others_as_alone(run, folder):
    how = ("春眠不觉晓", "--model", folder, "--max-tokens", "9", "--seed", "5")
    code, out, _ = run(*how, "--samples", "20")
    several = out.removesuffix("\n").split("\n\n春眠不觉晓")
    assert code == 0 and len(several) == 20 and len(set(several)) > 10
    assert run(*how)[1] == f"{several[0]}\n"


def test_what_a_model_says_never_steers_the_terminal(run, tmp_path):
    said = [
        "<|bos|>",
        "<0x1B>",
        "<0xC2>",
        "<0x9B>",
        "<0x07>",
        "<0xE2>",
        "<0x80>",
        "<0xAE>",
        "春",
        "<|eos|>",
    ]
    model = saying_model(tmp_path / "m", said)
    code, out, _ = run("", "--model", model)
    assert (code, out) == (0, "\\u001b\\u009b\\u0007\\u202e春\n")


def test_a_length_ends_a_text(run, tmp_path):
    model = saying_model(tmp_path / "m", ["<|bos|>", *"春眠不觉晓，", "春"])
    assert run("", "--model", model, "--max-tokens", "8")[1] == "春眠不觉晓，春眠\n"
    code, out, _ = run("", "--model", model, "--samples", "2", "--max-tokens", "2")
    assert (code, out) == (0, "春眠\n\n春眠\n")
    assert len(run("", "--model", model)[1]) == 64, "63 tokens after <|bos|> fill the context of 64"


def test_the_folders_own_settings_hold_where_no_option_is_given(run, tmp_path):
    model = random_model(tmp_path / "m")
    settings = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))
    how = ("春", "--model", model, "--max-tokens", "20")
    greedy = run(*how, "--temperature", "0")[1]
    assert run(*how, "--seed", "1")[1] == run(*how, "--seed", "1", "--temperature", "0.8")[1] != greedy
    text = json.dumps({**settings, "do_sample": False, "eos_token_id": [1, 2]})
    (model / "generation_config.json").write_text(text, encoding="utf-8")
    assert run(*how, "--seed", "1")[1] == greedy
    assert run(*how, "--seed", "1", "--temperature", "2.5")[1] != greedy
    plain = run(*how, "--seed", "1", "--temperature", "2.5")[1]
    for name, value, is_left_aside in (
        ("top_p", 0.5, False),
        ("top_p", 1.5, True),
        ("top_p", 0, True),
        ("top_p", True, True),
        ("min_p", 0.5, False),
        ("min_p", 1.5, True),
    ):
        text = json.dumps({**settings, name: value})
        (model / "generation_config.json").write_text(text, encoding="utf-8")
        code, out, _ = run(*how, "--seed", "1", "--temperature", "2.5")
        assert (code, out == plain) == (0, is_left_aside), f"{name} {value}"


@pytest.fixture
def store(tmp_path, folder):
    """A store whose channel `poems` has the model as its champion."""
    found = FileStore(tmp_path / "store")

    def build(attempt):
        for path in folder.iterdir():
            attempt.path(path.name).write_bytes(path.read_bytes())
            attempt.add(path.name)
        return Result(counts={})

    recipe = Recipe(stage="train", revision=1, semantic={"a": 1}, inputs={})
    output = commit_once(found, recipe, build)
    move_pointer(found, "poems", "champion", output.reference)
    move_pointer(found, "young", "train", output.reference)
    return recipe.key


def test_a_channel_a_key_and_a_folder_name_the_same_model(run, store, folder, tmp_path):
    key = store
    how = ("春", "--temperature", "0", "--max-tokens", "5", "--store", tmp_path / "store")
    wanted = run(*how, "--model", folder)[:2]
    assert wanted[0] == 0
    for name in ("poems", "poems/champion", f"train/{key}", f"train/{key[:6]}", "young"):
        assert run(*how, "--model", name)[:2] == wanted
    assert run(*how, "--channel", "poems")[:2] == wanted
    code, _, err = run(*how, "--channel", "nobody")
    assert code == ExitCode.DATA and "--model: channel 'nobody' of " in err and "no train output yet" in err


CASES = {
    "no channel": (["a", "--model", "nobody"], ExitCode.DATA, "and no channel of that name with one"),
    "no key": (["a", "--model", "train/0123456789"], ExitCode.DATA, "no such output"),
    "no name": (["a", "--model", "a b"], ExitCode.USAGE, "expected a folder, train/KEY"),
    "control": (["a\x1bb"], ExitCode.DATA, "U+001B at character 2"),
    "system alone": (["a", "--system", "b"], ExitCode.USAGE, "expected --chat"),
    "too long": (["春" * 64], ExitCode.DATA, "65 tokens"),
    "genre": (["a", "--genre", "词"], ExitCode.USAGE, "it knows: 诗"),
    "heat": (["a", "--temperature", "-1"], ExitCode.USAGE, "from 0 to 1000"),
    "mass": (["a", "--top-p", "0"], ExitCode.USAGE, "above 0 and at most 1"),
    "option": (["a", "--top-q", "0"], ExitCode.USAGE, "did you mean --top-"),
    "no form": (["a", "--form", "八股"], ExitCode.USAGE, "expected 五绝"),
    "oblique": (["a", "--form", "七绝", "--rhyme", "屋"], ExitCode.USAGE, "a level rhyme"),
    "rhyme alone": (["a", "--rhyme", "东"], ExitCode.USAGE, "expected --form"),
    "no verse": (["春a", "--form", "七绝"], ExitCode.DATA, "'a' does not fit 七绝 at line 1, character 2"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_with_a_command_is_said(run, folder, tmp_path, case):
    argv, code, message = CASES[case]
    named = [] if "--model" in argv else ["--model", folder]
    found, out, err = run(*argv, *named, "--store", tmp_path)
    assert (found, out) == (code, "") and message in err and "Traceback" not in err


def test_tabs_and_line_breaks_are_text_and_half_a_character_is_none():
    assert clean("a\tb\r\nc\n") == "a\tb\nc\n"
    for wrong, said in (("\0", "U+0000 at character 1"), ("a\ud800", "character 2 is half of one")):
        with pytest.raises(DataError, match=re.escape(said)):
            clean(wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_the_machines_fault(run, folder):
    code, _, err = run("a", "--model", folder, "--device", "cuda")
    assert code == ExitCode.ENVIRONMENT and "--device cpu" in err


def changed(path, **values):
    found = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**found, **values}), encoding="utf-8")


DAMAGES = {
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "lacks tokenizer.json"),
    "end": (lambda f: changed(f / "generation_config.json", eos_token_id=[1, 9999]), "expected ids below"),
    "settings": (lambda f: (f / "generation_config.json").write_text("[]"), "expected a JSON object"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_that_lies_is_refused(run, tmp_path, damage):
    model = random_model(tmp_path / "m")
    DAMAGES[damage][0](model)
    code, out, err = run("a", "--model", model)
    assert (code, out) == (ExitCode.DATA, "") and DAMAGES[damage][1] in err and "Traceback" not in err


def test_an_answer_needs_marks(run, tmp_path):
    model = random_model(tmp_path / "m")
    text = (model / "tokenizer.json").read_text(encoding="utf-8").replace("<|im_", "<|xx_")
    (model / "tokenizer.json").write_text(text, encoding="utf-8")
    code, _, err = run("a", "--chat", "--model", model)
    assert code == ExitCode.DATA and "leave --chat out" in err


@pytest.mark.parametrize("template", ["<|im_start|>{{ m }}<|im_end|>", "[INST]{{ m }}[/INST]"])
def test_marks_are_looked_for_in_each_template_of_a_list(tmp_path, template):
    named = [{"name": "default", "template": template}, {"name": "tools", "template": "[INST]"}]
    config = json.dumps({"chat_template": named})
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    assert writes_chatml(tmp_path) == ("<|im_start|>" in template)


def test_at_a_terminal_a_prompt_is_missed_and_not_waited_for(run, folder, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    code, out, err = run("--model", folder)
    assert (code, out) == (ExitCode.USAGE, "") and "PROMPT is missing" in err


@pytest.mark.long
def test_stdin_is_a_prompt_and_the_process_ends_with_its_code(tmp_path):
    model = saying_model(tmp_path / "m", ["<|bos|>", "春", "眠", "<|eos|>"])
    command = [sys.executable, "-m", "yanmo.cli", "generate", "--model", str(model), "--log-level", "error"]
    ended = subprocess.run(command, input="春", capture_output=True, text=True, encoding="utf-8")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "春眠\n", "")
    ended = subprocess.run([*command, "-"], input=b"\xff", capture_output=True)
    assert ended.returncode == ExitCode.USAGE and b"UTF-8" in ended.stderr


@pytest.mark.long
def test_a_poem_has_the_form_asked_for_alone_and_among_others(run, folder):
    how = ("--form", "五绝", "--rhyme", "东", "--model", folder, "--seed", "1")
    code, out, _ = run("春", *how, "--samples", "5")
    poems = out.removesuffix("\n").split("\n\n")
    assert code == 0 and len(poems) == 5
    assert all(poem[0] == "春" and passes(poem, form_of("五绝", "东")) for poem in poems)
    assert run("春", *how)[1] == f"{poems[0]}\n"
    likeliest = run("春", *how, "--temperature", "0")[1]
    assert passes(likeliest, form_of("五绝", "东"))


@pytest.mark.long
def test_a_poem_longer_than_the_context_is_whole_and_an_answer_is_one(run, folder):
    for argv in (["--form", "七律", "--tries", "2"], ["--form", "菩萨蛮", "--tries", "1"]):
        code, out, _ = run("", *argv, "--model", folder, "--max-tokens", "5")
        assert code == 0 and passes(out, form_of(argv[1]))
    code, out, _ = run("夜来风雨声", "--chat", "--form", "五绝", "--model", folder)
    assert code == 0 and passes(out, form_of("五绝"))


def test_forms_are_listed(run):
    code, out, _ = run("--form", "list")
    assert code == 0 and "七律 8x7\n" in out and "\n菩萨蛮 中平" in out
