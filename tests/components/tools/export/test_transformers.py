"""Every kind of export in transformers 4 and 5, each in an environment of its own, used as its pages say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from yanmo.tools.export.command import main

if TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.process
DOCS = Path(__file__).parents[4] / "docs"
PROGRAM = """
import json
import sys

import torch
import transformers


def main(folder: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    few = {"max_new_tokens": 5, "do_sample": False}

    def goes_on(*texts: str) -> list[str]:
        read = tokenizer(list(texts), return_tensors="pt", padding=True)
        made = model.generate(**read, **few)[:, read["input_ids"].shape[1] :]
        return [tokenizer.decode(row, skip_special_tokens=True) for row in made]

    alone = [*goes_on("春眠春眠眠"), *goes_on("春")]
    assert goes_on("春眠春眠眠", "春") == alone, "a batch writes what each text alone does"
    asked = []
    if tokenizer.chat_template:
        for content in ("春眠", [{"type": "text", "text": "春"}, {"type": "text", "text": "眠"}]):
            read = tokenizer.apply_chat_template(
                [{"role": "user", "content": content}],
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
            model.generate(**read, **few)
            asked.append(read["input_ids"][0].tolist())
        assert asked[0] == asked[1], "a content may be a list of parts"
    with torch.no_grad():
        logits = model(torch.arange(1, 20)[None] % model.config.vocab_size).logits[0, -1, :8]
    print(
        json.dumps(
            {"version": transformers.__version__, "alone": alone, "asked": asked, "logits": logits.tolist()}
        )
    )


main(sys.argv[1])
"""
"""What anybody does with an export; prints what came as JSON. An argument: the folder."""
VERSIONS = {
    "4": ["transformers==4.57.6", "tokenizers==0.22.2", "huggingface-hub==0.36.2", "requests==2.34.2"],
    "5": [],
}
"""Version -> what is laid over this environment, without what these packages depend on."""


@pytest.fixture(scope="session", params=VERSIONS)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process that has this version of transformers."""
    pytest.importorskip("transformers")
    packages = VERSIONS[request.param]
    if not packages:
        return dict(os.environ)
    folder = tmp_path_factory.mktemp("transformers")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        f"--target={folder}",
        *packages,
    ]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"transformers 4 cannot be installed: {done.stderr.strip()[-200:]}")
    return {**os.environ, "PYTHONPATH": str(folder)}


def used(folder: Path, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_our_model_writes_alone_in_a_batch_and_in_a_chat(
    lab: Lab, tmp_path: Path, environment: dict[str, str], dtype: str
) -> None:
    assert main(["main", str(tmp_path / "out"), "--store", lab.uri, f"--dtype={dtype}"]) == 0
    found = used(tmp_path / "out", environment)
    assert len(found["alone"]) == 2 and found["asked"]


@pytest.mark.parametrize("language", ["", ".zh"], ids=["en", "zh"])
def test_what_the_pages_show_runs(
    lab: Lab, tmp_path: Path, environment: dict[str, str], language: str
) -> None:
    assert main(["main", str(tmp_path / "exported/demo"), "--store", lab.uri]) == 0
    blocks = [
        line[4:]
        for page in ("use-a-model", "chat")
        for block in re.findall(
            r"(?:^    .*\n)+", next(DOCS.glob(f"*/{page}{language}.md")).read_text("utf-8"), re.MULTILINE
        )
        if "tokenizer" in block and "yanmo " not in block
        for line in block.splitlines()
    ]
    assert sum("generate(" in line for line in blocks) == 3
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
