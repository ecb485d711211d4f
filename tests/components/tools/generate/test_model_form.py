"""A prompt is read in the text form of the model's training, and by no other way of writing it."""

from __future__ import annotations

import pytest
from saying import random_model

from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.tools.generate.command import main
from yanmo.tools.generate.named_model import in_form


@pytest.mark.parametrize(
    ("form", "typed", "read"),
    [
        ("classical-1", "春眠不覺曉", "春眠不觉晓"),
        ("classical-1", "春眠不覺曉,\n", "春眠不觉晓，\n"),
        ("classical-1", " 床前　明月光 ", "床前明月光"),
        ("modern-1", "我們的 list = [1, 2]", "我们的 list = [1, 2]"),
        ("classical-1+lacuna-simplified", "覺■", "覺□"),
        ("", "春眠不覺曉", "春眠不覺曉"),
        ("another-9", "春眠不覺曉", "春眠不覺曉"),
        ("classical-1", "", ""),
    ],
)
def test_a_prompt_is_read_as_the_training_text_was_written(form: str, typed: str, read: str) -> None:
    assert in_form(form, typed) == read == in_form(form, read)


def test_a_model_of_the_store_gets_its_prompt_in_its_form_and_a_folder_as_it_is(tmp_path, capsys) -> None:
    folder = random_model(tmp_path / "model")
    store = FileStore(tmp_path / "store")

    def build(attempt):
        for path in sorted(folder.iterdir()):
            attempt.write(path.name, path.read_bytes())
        return Result(counts={}, metadata={"text_form": "classical-1"})

    output = commit_once(store, Recipe(stage="train", revision=1, semantic={}, inputs={}), build)
    assert output is not None

    def says(prompt: str, model: str) -> tuple[str, str]:
        argv = [prompt, f"--model={model}", f"--store={store.root}", "--temperature=0", "--max-tokens=12"]
        assert main(argv) == 0
        out, err = capsys.readouterr()
        return out, err

    name = f"train/{output.manifest.key}"
    one, said = says("春眠不覺曉", name)
    two, quiet = says("春眠不觉晓", name)
    assert one.removeprefix("春眠不覺曉") == two.removeprefix("春眠不觉晓")
    assert "read in the model's text form classical-1: 春眠不觉晓" in said and "text form" not in quiet
    assert "text form" not in says("春眠不觉晓", str(folder))[1]
