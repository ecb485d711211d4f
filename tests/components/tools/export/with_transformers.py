"""What anybody does with an export, in a process with one version of transformers; prints it as JSON."""

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
