"""`yanmo model ...`: models that `yanmo train` did not make."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import word
from yanmo.options.shared import ToolOptions
from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of


@dataclass(frozen=True, kw_only=True)
class ImportOptions(ToolOptions, group="import"):
    """Import a Qwen3-, Qwen2- or Llama-type model from a folder in Hugging Face's format.

    The store then holds it as if `yanmo train` had made it.

        yanmo model import FOLDER --store runs/store    # prints train/KEY, for `yanmo train --model`

    The key depends on the files' bytes, so that importing twice makes one output. Weights may be in
    several safetensors files; bf16 stays bf16, other types are stored as fp32. The import is refused,
    with the file's name, for weights that are not finite or do not have the shapes of config.json,
    for missing or duplicate parts, and for a tokenizer with another vocabulary or one that loses
    text. To train the model further, text must be tokenized with its own tokenizer, which is
    imported too: the log names it for `yanmo tokenize --tokenizer`. Nothing of the folder is run,
    and pickled weights are not read.
    """

    folder: str = word("folder with config.json, tokenizer.json and *.safetensors")


TOOL = tool.Tool(
    "model",
    "Import models that were made elsewhere into a store.",
    {"import": Subcommand(ImportOptions, work_of("yanmo.tools.model.hf_import"))},
)

if __name__ == "__main__":
    tool.run(TOOL)
