"""The first task refuses what a later one would, by the name of the form's field, and leaves options."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.common.names import STAGES
from yanmo.options.one_line import as_line, read_line
from yanmo.resolve.command import main
from yanmo.resolve.config import STAGE
from yanmo.stage.form import is_pinned, load_shared, with_pinned
from yanmo.stage.options_line import options_line, with_settings
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.runs.run_record import pin_for_run

MODEL = Reference(
    stage="train",
    key="a" * 64,
    manifest_uri=f"cas/train/{'a' * 64}/MANIFEST.json",
    manifest_sha256="b" * 64,
    content_digest="c" * 64,
)

FORM = {"curate.sources": "poems.jsonl", "balance.quotas": "size^0.7", "train.steps": "auto"}


def flags(tmp_path: Path, form: dict[str, str], line: str = "") -> list[str]:
    given = {**FORM, **form}
    return [
        f"--store={tmp_path / 'store'}",
        *(f"--stages=yanmo.{stage}.config" for stage in STAGES),
        *(f"--form={name}={value}" for name, value in given.items()),
        f"--others={line}",
    ]


@pytest.mark.parametrize(
    ("form", "line", "words"),
    [
        ({"train.steps": "many"}, "", "train_steps many: expected a whole number"),
        ({"train.steps": "0"}, "train.layers=3", "train_steps 0: expected a whole number from 1"),
        (
            {"resolve.training_pod_memory": "32"},
            "",
            "training_pod_memory 32: expected an amount above 0 with",
        ),
        (
            {},
            "resolve.training_pod_nodes=gpu",
            "options of resolve: --training-pod-nodes gpu: expected",
        ),
        ({}, "train.warmup=3", "error 64: options of train: unknown option 'warmup'"),
        ({}, "train.ranks=5", "train: --batch-rows 32 does not divide among --ranks 5"),
        ({}, "train.steps=5", "options: train.steps is the form's field train_steps; set it there"),
        ({"resolve.channel": "a/b"}, "", "channel 'a/b': expected up to 100 letters"),
        ({}, "resolve.channel=dev", "resolve: options names --channel"),
        ({}, "tran.steps=5", "options: tran.steps: no stage tran, did you mean train?"),
        ({}, "train.warmup_steps=20 train.warmup-steps=30", "train.warmup_steps is given twice"),
        ({}, "absent.txt", "options: absent.txt: no such file"),
        ({}, "x" * 5000 + "=", "5001 characters, at most 4000"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: dict[str, str], line: str, words: str
) -> None:
    assert main(flags(tmp_path, form, line)) == 64
    said = capsys.readouterr().err
    assert words in said.replace("; did you", ", did you"), said
    assert "Traceback" not in said and "resolve error 64: " in said.splitlines()[-1]


def test_all_wrong_values_are_told_at_once_and_no_contradiction_that_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ranks that do not divide the default's rows say nothing beside rows that somebody gave."""
    good_together = "train.ranks=5 train.batch_rows=35"
    form = {"train.steps": "many", "balance.quotas": "none"}
    assert main(flags(tmp_path, form, f"{good_together} train.layers=q")) == 64
    said = caplog.text
    assert all(word in said for word in ("train_steps many", "data_quotas", "--layers q")), said
    assert "does not divide" not in said
    caplog.clear()
    assert main(flags(tmp_path, {}, "train.ranks=5 train.batch_rows=36")) == 64
    assert "--batch-rows 36 does not divide among --ranks 5" in caplog.text
    assert "--batch-rows 32" not in caplog.text


def handed_on(tmp_path: Path, argv: list[str]) -> dict[str, str]:
    """What the first task hands on."""
    names = [*STAGE.parameters, *STAGE.objects]
    outputs = {name: {"outputFile": str(tmp_path / "out" / name)} for name in names}
    given = {"outputs": {"parameters": outputs, "outputFile": str(tmp_path / "out.json")}}
    assert main([*argv, f"--executor-input={json.dumps(given)}"]) == 0
    return {name: (tmp_path / "out" / name).read_text(encoding="utf-8") for name in names}


MORE = "train.layers=3 train.warmup-steps='30'"


@pytest.mark.parametrize(
    ("kind", "more"), [("line", ""), ("file", ""), ("uri", ""), ("file", MORE), ("uri", MORE)]
)
def test_the_line_of_options_is_read_once_and_handed_on(tmp_path: Path, kind: str, more: str) -> None:
    line = "train.warmup_steps=20 curate.default_genre='白话 文' promote.draws=2500"
    file = tmp_path / ("options.txt" if kind == "uri" else "my options.txt")
    file.write_text("# a night\n" + line.replace(" p", "\np") + "\n", encoding="utf-8")
    given = {"line": line, "file": shlex.quote(str(file)), "uri": file.as_uri()}[kind]
    found = read_line(handed_on(tmp_path, flags(tmp_path, {}, f"{given} {more}"))["options"])
    assert found.pop("balance") == {"quotas": "size^0.7"}, "fields of the form are in it"
    assert found.pop("curate") == {"sources": "poems.jsonl", "default_genre": "白话 文"}
    expected = {"warmup_steps": "30", "layers": "3"} if more else {"warmup_steps": "20"}
    assert found == {"train": expected, "promote": {"draws": "2500"}}, "what follows a file wins over it"


def test_an_empty_field_has_the_pipelines_default_and_wins_over_no_other(tmp_path: Path) -> None:
    defaults = "--defaults=curate.sources=bundled resolve.channel=main train.layers=6 train.size=small"
    form = {"curate.sources": " ", "balance.quotas": "", "resolve.channel": "", "train.size": "auto"}
    found = handed_on(tmp_path, [*flags(tmp_path, form, "train.width=96"), defaults])
    assert read_line(found["options"]) == {
        "curate": {"sources": "bundled"},
        "train": {"layers": "6", "width": "96"},
    }
    found = handed_on(tmp_path, [*flags(tmp_path, form, "train.layers=3"), defaults])
    assert read_line(found["options"])["train"] == {"layers": "3"}, "the line wins over the pipeline"


def test_a_stage_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("yanmo.curat.config", "json", "", "..x", "yanmo.train"):
        assert main([f"--store={tmp_path}", f"--stages={module}"]) == 64
        assert "expected the module of a STAGE" in capsys.readouterr().err


def test_it_reads_the_options_of_every_stage_with_neither_images_libraries(tmp_path: Path) -> None:
    """It runs in the data image, where torch is not, and must not need the data libraries either."""
    hide = (
        "import sys; [sys.modules.__setitem__(n, None) for n in ('torch', 'deepspeed', 'jieba', 'numpy')]; "
    )
    run = f"from yanmo.resolve.command import main; sys.exit(main({flags(tmp_path, {})!r}))"
    done = subprocess.run([sys.executable, "-c", hide + run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


NAMES = st.sampled_from(["train.layers", "train.warmup_steps", "curate.default_genre"])
TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=8)


@given(
    in_file=st.dictionaries(NAMES, TEXTS),
    after_it=st.dictionaries(NAMES, TEXTS),
    by_flags=st.dictionaries(NAMES, TEXTS),
    dashed=st.booleans(),
)
@hypothesis_settings(max_examples=50, deadline=None)
def test_flags_win_over_what_follows_a_file_and_that_over_the_file(
    in_file: dict[str, str], after_it: dict[str, str], by_flags: dict[str, str], dashed: bool
) -> None:
    """`yanmo run --set options=FILE --set train.layers=4`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "of a night.txt"
        file.write_text(as_line(in_file), encoding="utf-8")
        given_flags = {n.replace("_", "-") if dashed else n: text for n, text in by_flags.items()}
        line = with_settings(f"{shlex.quote(str(file))} {as_line(after_it)}", given_flags)
        found = read_line(options_line(line))
        expected = read_line(as_line({**in_file, **after_it, **by_flags}))
        assert found == expected
        assert read_line(options_line(with_settings(as_line(in_file), given_flags))) == read_line(
            as_line({**in_file, **by_flags})
        )


@pytest.mark.parametrize("channel", ["dev", "pinned"])
def test_values_of_the_first_task_take_the_place_of_words_that_name_them(
    tmp_path: Path, channel: str
) -> None:
    store = FileStore(tmp_path)
    words = [
        f"--store={tmp_path}",
        "--run-id=night-1",
        "--documents={}",
        "--options=pinned",
        "--training=pinned",
        "--model=pinned:start",
        "--evaluation-set=pinned:none_yet",
        f"--channel={channel}",
    ]
    assert is_pinned(words) and not is_pinned(words[:3])
    options = load_shared(words, "yanmo train")
    with pytest.raises(DataError, match=f"run night-1 has no record in channel '{channel}'.*clone the run"):
        with_pinned(words, store, options)
    pin_for_run(store, channel, "night-1", "train.steps=3 train.layers=2", {"start": MODEL, "none_yet": None})
    assert with_pinned(words, store, options) == [
        *words[:3],
        "--options=train.steps=3 train.layers=2",
        "--training=train.steps=3 train.layers=2",
        f"--model={MODEL.to_json()}",
        "--evaluation-set=none",
        f"--channel={channel}",
    ]
