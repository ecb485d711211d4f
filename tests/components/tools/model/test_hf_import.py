"""A Qwen3-type model of transformers' own making comes into the store and trains on."""

from __future__ import annotations

import torch

from yanmo.model.hf_export import load
from yanmo.tools.command_group import main
from yanmo.tools.model.command import TOOL


def imported(store, folder, capsys) -> tuple[int, str]:
    code = main(TOOL, ["import", str(folder), "--store", str(store)])
    return code, capsys.readouterr().out.strip()


def test_an_imported_model_has_the_weights_it_came_with(store, folder, capsys):
    assert len(list(folder.glob("*.safetensors"))) > 1
    code, name = imported(store, folder, capsys)
    assert code == 0 and imported(store, folder, capsys)[1] == name, "importing twice gives one output"
    (weights,) = (store / "cas" / name).glob("*/model.safetensors")
    ours, theirs = load(weights.parent).model, load(folder).model
    for (key, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), key


def test_an_address_is_no_folder(store, capsys):
    assert imported(store, "s3://models/Qwen2.5-0.5B", capsys) == (64, "")


def test_a_folder_that_is_not_there_is_not_said_to_lack_files(store, tmp_path, caplog):
    (tmp_path / "a.txt").write_text("x")
    for name, found in (("nosuch", "nothing"), ("a.txt", "a file")):
        assert main(TOOL, ["import", str(tmp_path / name), "--store", str(store)]) == 64
        assert f"expected a folder with a model in Hugging Face's layout, found {found}" in caplog.text
