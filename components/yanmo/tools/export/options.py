"""Options of `yanmo export`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from yanmo.options.fields import opt, word
from yanmo.options.shared import MODEL, ToolOptions, channel_opt


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ToolOptions, group="export"):
    """Write a model as a folder that transformers, vLLM or llama.cpp serve.

        yanmo export demo exported/demo                      # the champion of the channel demo
        yanmo export demo exported/demo-gguf --for llama.cpp
        yanmo export train/1bcc4416 exported/small --dtype bf16

    Weights, tokenizer with chat template, the marks that end a text, and README.md, the model card that
    `yanmo train` wrote; an imported model has none. The folder is there whole or not at all, and one that
    is there is not replaced without --overwrite. Exit code: 0, 64, 65 (no such model, or a damaged one),
    75, 78.
    """

    model: str = word(f"model: a folder in Hugging Face's layout, {MODEL}")
    folder: str = word("folder to make")
    for_: str = opt(
        "transformers",
        "what will read it: transformers and vllm one folder in Hugging Face's layout; llama.cpp a GGUF "
        "file, with a Modelfile for Ollama",
        choices=("transformers", "vllm", "llama.cpp"),
        often=True,
    )
    channel: str = channel_opt("channel of what is named without one, such as run:ID")
    dtype: str = opt("fp32", "type of the weights", choices=("fp32", "bf16"), often=True)
    overwrite: bool = opt(False, "replace a folder that an earlier export made", often=True)

    def contradictions(self) -> Iterator[str]:
        """Return what no folder can be called."""
        if not self.folder.strip():
            yield "FOLDER is empty: expected a folder to make"
