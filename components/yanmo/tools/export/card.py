"""The model card of an export: README.md with the front matter that Hugging Face's hub reads.

What it says comes from the lineage; where that does not say something, the card says so. Names of sources,
genres and licences are somebody's text: they are escaped for Markdown and written as JSON into the YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from yanmo.common.made_by import made_by
from yanmo.common.markdown import plain
from yanmo.common.markdown import table as markdown_table
from yanmo.tools.evaluations import Bits
from yanmo.tools.export.contents import Source
from yanmo.tools.export.options import ExportOptions
from yanmo.tools.export.origin import Learned, Origin

_MOST_SOURCES = 40


def model_card(options: ExportOptions, name: str, source: Source, origin: Origin) -> str:
    """The text of README.md.

    Args:
        name: of the model.
    """
    parts = [
        _front_matter(options, name, origin),
        f"# {plain(name)}",
        _about(options, source, origin),
        "## Use\n\n" + _use(options, source),
        "## Training text\n\n" + _texts(origin),
        "## Training\n\n" + _training(origin),
        "## Evaluation\n\n" + _evaluation(origin, options),
        "## Limits\n\n" + _limits(source),
        "## Made by\n\n" + _made_by(origin),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(options: ExportOptions, name: str, origin: Origin) -> str:
    values: dict[str, Any] = {
        "language": ["zh", "lzh"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["yanmo"],
    }
    if options.license:
        values["license"] = options.license.lower()
    if origin.evaluation:
        values["model-index"] = [{"name": name, "results": list(_results(origin))}]
    lines = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
    return f"---\n{lines}---"


def _results(origin: Origin) -> Iterator[dict[str, Any]]:
    """One result per genre, as the hub's model-index has them."""
    evaluation = origin.evaluation
    assert evaluation is not None
    held_out = evaluation.conditions.get("evaluation_set", "")[:16]
    split = evaluation.conditions.get("split", "test")
    for genre, bits in [*evaluation.genres.items(), ("mean over genres", evaluation.mean)]:
        yield {
            "task": {"type": "text-generation"},
            "dataset": {
                "type": f"yanmo-evaluation-set-{held_out}",
                "name": f"held-out texts, {genre}",
                "config": genre,
                "split": split,
            },
            "metrics": [
                {"type": "bits_per_character", "name": "bits per character", "value": round(bits.value, 4)}
            ],
        }


def _about(options: ExportOptions, source: Source, origin: Origin) -> str:
    config = source.config
    counts = origin.output.manifest.counts if origin.output else {}
    size = f"{counts['parameters'] / 1e6:,.2f} M parameters, " if counts.get("parameters") else ""
    text = (
        f"A Chinese language model: a decoder of {size}{config.num_hidden_layers} layers and width "
        f"{config.hidden_size}, with {config.vocab_size:,} tokens and a context of "
        f"{config.max_position_embeddings:,} tokens. Its weights are in {options.dtype}."
    )
    return text if options.license else f"{text}\n\nWho exported it has not said under which licence it is."


def _use(options: ExportOptions, source: Source) -> str:
    if options.for_ == "llama.cpp":
        return """\
    llama-server -m model.gguf                            # its page: http://127.0.0.1:8080
    ollama create NAME -f Modelfile && ollama run NAME

A text that is sent without the chat template begins with `<|bos|>`, which these programs do not add."""
    how = """\
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
    inputs = tokenizer("春眠不觉晓", return_tensors="pt")
    print(tokenizer.decode(model.generate(**inputs, max_new_tokens=50)[0], skip_special_tokens=True))

`vllm serve .` serves it, too. It needs no code but these programs' own."""
    if source.is_ours:
        how += " The tokenizer puts `<|bos|>` before a text."
        tagged = list(zip(source.symbols.genres, source.symbols.tag_ids, strict=True))
        if tagged:
            tags = ", ".join(f"`{source.tokenizer.id_to_token(tag)}` {plain(genre)}" for genre, tag in tagged)
            how += f" The tag of a genre may stand before the text: {tags}."
    return how


def _texts(origin: Origin) -> str:
    if not origin.learned:
        return "Nothing is known of it: the model was not trained by Yanmo, or its lineage is gone."
    known = [_texts_of(learned, i) for i, learned in enumerate(origin.learned)]
    unknown = [
        f"It began from {name}, which was imported: its text is not known." for name in origin.imported
    ]
    return "\n\n".join([*known, *unknown])


def _texts_of(learned: Learned, number: int) -> str:
    began = "The model it began from learned:\n\n" if number else ""
    total = sum(learned.sources.values())
    if not total:
        return (
            f"{began}Its text is not known any more: the store has lost the documents behind {learned.model}."
        )
    licenses = ", ".join(f"{plain(name)} {n:,}" for name, n in learned.licenses.most_common())
    shown = learned.sources.most_common(_MOST_SOURCES)
    rows = [(plain(source), plain(license), f"{n:,}") for (source, license), n in shown]
    rest = total - sum(n for _, n in shown)
    if rest:
        rows.append((f"{len(learned.sources) - len(shown)} others", "", f"{rest:,}"))
    files = [f"{plain(str(f.get('name')))} (sha256 {str(f.get('sha256'))[:16]})" for f in learned.files[:20]]
    read_from = f"\n\nRead from {', '.join(files)}" + (", among others." if len(learned.files) > 20 else ".")
    return (
        f"{began}{total:,} documents, by licence: {licenses}. Whoever passes on the model may owe what these "
        "licences ask for, such as naming the sources.\n\n"
        + markdown_table(("source", "licence", "documents"), rows)
        + (read_from if files else "")
    )


def _training(origin: Origin) -> str:
    if not origin.learned:
        return "Not known."
    return "\n\n".join(_training_of(learned) for learned in origin.learned)


def _training_of(learned: Learned) -> str:
    manifest, cost = learned.model.manifest, learned.cost
    counts, metadata = manifest.counts, manifest.metadata
    maker = metadata.get("made_by") or {}
    facts = [
        ("model", f"`{manifest.stage}/{manifest.key}`"),
        ("steps", f"{counts.get('steps', 0):,}"),
        ("tokens", f"{counts.get('tokens', 0):,}"),
        ("precision", metadata.get("precision", "")),
        ("machine", metadata.get("device_name") or maker.get("processor", "")),
        ("processes", metadata.get("ranks", "")),
        ("hours", f"{cost.seconds / 3600:.2f}" if cost.seconds else ""),
        ("GPU hours", f"{cost.gpu_hours:.2f}" if cost.gpu_hours else ""),
        ("kWh", f"{cost.kwh:.2f}" if cost.kwh else ""),
        ("Yanmo, torch", " ".join(filter(None, (maker.get("yanmo"), maker.get("torch"))))),
    ]
    rows = [(name, value if name == "model" else plain(str(value))) for name, value in facts if value != ""]
    made = [learned.model, *learned.made_of]
    options = [
        f"`{one.manifest.stage}`: "
        + ", ".join(f"{k}={plain(str(v))}" for k, v in _given(one.manifest.options))
        for one in made
    ]
    return (
        markdown_table(("", ""), rows)
        + "\n\nOptions, by stage:\n\n"
        + "\n".join(f"- {line.replace(chr(10), ' ')}" for line in options)
    )


def _given(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, value) for name, value in sorted(options.items()) if value not in ("", None))


def _evaluation(origin: Origin, options: ExportOptions) -> str:
    evaluation = origin.evaluation
    if evaluation is None:
        return "It was not evaluated."
    rows = [(plain(genre), *_shown(bits)) for genre, bits in evaluation.genres.items()]
    table = markdown_table(
        ("genre", "bits per character", "95 % interval"), [*rows, ("mean", *_shown(evaluation.mean))]
    )
    measured = f"{evaluation.output.manifest.stage}/{evaluation.output.manifest.key[:12]}"
    is_changed = options.dtype != "fp32"
    changed = " These are figures of the weights in fp32, before this export." if is_changed else ""
    return (
        "Bits per character of texts that it has not learned from, without the tag of a genre, "
        f"ends of texts counted (`{measured}`, split {evaluation.conditions.get('split', 'test')}). Less "
        f"is better.{changed}\n\n{table}"
    )


def _shown(bits: Bits) -> tuple[str, str]:
    between = f"{bits.interval[0]:.3f} to {bits.interval[1]:.3f}" if bits.interval else ""
    return f"{bits.value:.3f}", between


def _limits(source: Source) -> str:
    return (
        "- It continues texts as those it learned from would go on. What it writes may be false, and may "
        "repeat a text that it learned.\n"
        f"- It sees {source.config.max_position_embeddings:,} tokens at a time.\n"
        "- It was measured on the texts above and on nothing else; nobody has looked for what it says about "
        "people or groups of people.\n"
        "- It answers questions only if chats are among the texts above."
    )


def _made_by(origin: Origin) -> str:
    by = made_by()["yanmo"]
    digest = f", content digest `{origin.output.content_digest}`" if origin.output else ""
    return f"Exported by Yanmo {by} from {plain(origin.name)}{digest}. `yanmo.json` has the files' digests."
