"""Lineage: back to the raw files, and the commands that are printed can be pasted."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from tiny_store import commit

from yanmo.formats.stage_cost import Span
from yanmo.promote.command import main
from yanmo.promote.page.ancestors import trace
from yanmo.promote.page.cost import FORMER, Judging, cost_report
from yanmo.store.output import open_reference

ROOT = Path(__file__).parents[4]
JUDGING = Judging(
    key="0" * 64, made_at="2026-11-23T00:00:00+00:00", run_id="", span=Span(0.0, 5.0), cpu_seconds=2.0
)


def test_lineage_leads_to_the_raw_files_with_the_commands_between(stage):
    raw = {"content_digest": "d" * 64, "uri": "file:///data/a.jsonl", "files": []}
    raw["files"] = [{"name": "a.jsonl", "sha256": "5" * 64, "bytes": 3}]
    config = {"config.yaml": "{}\n"}
    documents = commit(stage.store, "curate", config, inputs={"sources": raw, "evaluation_set": None})
    model = commit(stage.store, "train", config, inputs={"documents": documents})
    found = trace(model)
    assert [a.output.manifest.stage for a in found.ancestors] == ["train", "curate"]
    assert list(found.sources) == [("a.jsonl", "5" * 64)]
    train, curate = (a.command for a in found.ancestors)
    assert f"--documents curate/{documents.reference.key}" in train and "/config.yaml" in train
    assert "--sources /data/a.jsonl" in curate and "--evaluation-set none" in curate


def test_what_former_models_rest_on_is_a_line_each_and_one_row_of_the_cost(stage):
    """A model that goes on every night has a hundred of them: the page may not grow with each."""

    def made(name, **inputs):
        prom = f"yanmo_{name}_duration_seconds 50.0\nyanmo_{name}_cpu_seconds 90.0\n"
        options = {"night": len(models)}
        return commit(stage.store, name, {"metrics.prom": prom}, inputs=inputs, options=options)

    models = []
    shared = made("curate")
    for night in range(6):
        own = made("balance")
        model = made("train", documents=own, documents_2=shared, model=models[-1] if models else None)
        lineage = trace(model)
        assert [str(a.output) for a in lineage.own()] == [str(model), str(own), str(shared)]
        former = [str(o) for o in lineage.former() if o.manifest.stage == "train"]
        assert former == [str(m) for m in reversed(models)]
        cost = cost_report([a.output for a in lineage.own()], JUDGING, lineage.former())
        stages = [row["stage"] for row in cost["stages"]]
        assert sorted(stages) == sorted([FORMER] * bool(night) + ["curate", "balance", "train", "promote"])
        assert cost["total"]["cpu_seconds"] == 90 * (2 * night + 3) + JUDGING.cpu_seconds
        if models:
            assert stages[0] == FORMER and cost["stages"][0]["cpu_seconds"] == 90 * 2 * night
            assert cost["stages"][0]["key"] in {m.manifest.key for m in models}
        models.append(model)


def test_each_raw_file_is_named_once_and_the_page_shows_as_many_as_a_person_reads(stage):
    """One input may be a folder of thousands of files, and two stages may have read the same ones."""
    files = [{"name": f"{'春' * 80}{i}.txt", "sha256": f"{i:064d}", "bytes": 3} for i in range(20_000)]
    raw = {"content_digest": "d" * 64, "uri": "file:///data/poems", "files": files}
    other = commit(stage.store, "curate", {"a": "b"}, inputs={"sources": raw})
    documents = commit(stage.store, "curate", {"a": "c"}, inputs={"sources": raw, "documents": other})
    stage.evaluate(stage.model(1, text=documents))
    assert stage.promote() == 0
    assert len(json.loads(stage.written("report.json"))["raw_files"]) == 20_000
    html = stage.written("report.html")
    assert html.count(".txt</dt>") + html.count("…</dt>") == 200 and "and 19,800 more" in html


def test_the_printed_command_makes_the_output_again(stage, tmp_path):
    text = tmp_path / "my poems" / "春.jsonl"
    text.parent.mkdir()
    text.write_bytes((ROOT / "tests/data/documents.jsonl").read_bytes())
    (tmp_path / "sources.yaml").write_text(
        "sources:\n  - path: my poems/春.jsonl\n    license: CC0-1.0\n", encoding="utf-8"
    )
    again = [sys.executable, "-m", "yanmo.cli", "curate", "--store", str(stage.folder), "--workers", "1"]
    given = ["--sources", str(tmp_path / "sources.yaml"), "--max-filter-share", "1"]
    made = subprocess.run([*again, *given], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    output = open_reference(stage.store, stage.pointer("curate"))
    (ancestor,) = (a for a in trace(output).ancestors if a.output.manifest.stage == "curate")
    printed = shlex.split(ancestor.command)
    assert printed[:2] == ["yanmo", "curate"]
    command = [sys.executable, "-m", "yanmo.cli", *printed[1:]]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert f"{output} is committed already" in found.stderr
    forced = subprocess.run([*command, "--force"], capture_output=True, text=True, cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert open_reference(stage.store, output.reference).content_digest == output.content_digest


def test_in_a_bucket_the_command_spells_out_every_option(stage, monkeypatch):
    options = {"steps": 3, "start": "", "tied_head": False}
    model = commit(stage.store, "train", {"config.yaml": "{}\n"}, options=options)
    monkeypatch.setattr(stage.store, "uri", "s3://bucket/prefix")
    words = shlex.split(trace(model).ancestors[0].command)
    assert words[:4] == ["yanmo", "train", "--store", "s3://bucket/prefix"]
    assert sorted(words[4:-2]) == ["--start=", "--steps=3", "--tied-head=false"]


def test_the_verdicts_own_command_finds_it_again(judged, caplog):
    """Also after the champion has changed: `--dry-run` compares what is named."""
    report = json.loads(judged.written("report.json"))
    key, words = judged.pointer("promote").key, shlex.split(report["command"])
    assert words[:2] == ["yanmo", "promote"] and words[-1] == "--dry-run"
    judged.evaluate(judged.model(3), 7.0)
    judged.promote()
    caplog.clear()
    assert main([*words[2:], "--metrics-port", "-1"]) == 0
    assert f"promote/{key[:12]} is committed already" in caplog.text
