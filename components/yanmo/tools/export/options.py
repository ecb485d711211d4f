"""Options of `yanmo export`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yanmo.options.fields import opt, word
from yanmo.options.shared import MODEL, ToolOptions, channel_opt

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ToolOptions, group="export"):
    """Write a model as a folder that transformers, vLLM or llama.cpp serve.

        yanmo export demo exported/demo                      # the champion of the channel demo
        yanmo export demo exported/demo-gguf --for llama.cpp
        yanmo export train/1bcc4416 s3://models/demo --dtype bf16

    Weights, tokenizer with chat template, the marks that end a text, and README.md, a model card: which
    texts under which licences, options, evaluation, machine, limits. The folder is there whole or not
    at all, and one that is there is not replaced without --overwrite. Exit code: 0, 64, 65 (no such model,
    or a damaged one), 75, 78.
    """

    model: str = word(f"model: a folder in Hugging Face's layout, {MODEL}")
    folder: str = word("folder to make, or s3://bucket/prefix")
    for_: str = opt(
        "transformers",
        "what will read it: transformers and vllm one folder in Hugging Face's layout; llama.cpp a GGUF "
        "file, with a Modelfile for Ollama",
        choices=("transformers", "vllm", "llama.cpp"),
        often=True,
    )
    channel: str = channel_opt("channel of what is named without one, such as run:ID")
    dtype: str = opt("fp32", "type of the weights", choices=("fp32", "bf16"), often=True)
    name: str = opt("", "name of the model in its card; default: that of the folder")
    license: str = opt("", "licence that you give the model, for its card: an SPDX name such as apache-2.0")
    overwrite: bool = opt(False, "replace a folder that an earlier export made", often=True)

    def contradictions(self) -> Iterator[str]:
        """Options that exclude each other, and names that no card can have."""
        if not self.folder.strip():
            yield "FOLDER is empty: expected a folder to make, or s3://bucket/prefix"
        if self.name and not _NAME.fullmatch(self.name):
            yield f"--name {self.name[:60]}: expected letters, digits, '.', '_' and '-', at most 96"
        if self.license and not _LICENSE.fullmatch(self.license):
            yield f"--license {self.license[:60]}: expected an SPDX name, such as apache-2.0 or cc-by-sa-4.0"
