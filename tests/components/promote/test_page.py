"""The page and the summary: what is on them, and that nothing on them can do harm."""

import base64
import copy
import hashlib
import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from tiny_store import commit

from yanmo.common.errors import DataError
from yanmo.common.store.output import open_reference
from yanmo.promote import page
from yanmo.promote.evaluation import open_evaluation
from yanmo.promote.lineage import trace
from yanmo.promote.page import MOST_BYTES, SCRIPT, render
from yanmo.promote.summary import chosen_verses

HOSTILE = '<script>alert("x")</script><img src=//evil.example/x onerror=alert(1)> & "明月"'
VOID = {"meta", "input", "br", "img", "link"}
ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((Path(page.__file__).parent / "page/report.schema.json").read_text(encoding="utf-8"))


class Page(HTMLParser):
    """Checks that tags are closed in order; collects tags, attributes and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def written(stage, name):
    output = open_reference(stage.store, stage.pointer("promote"))
    return output.path(name).read_text(encoding="utf-8")


@pytest.fixture
def judged(stage):
    """A channel whose second model was just promoted, with a hostile sample."""
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    stage.evaluate(stage.model(2), 7.8, texts=(HOSTILE, "春江潮水连海平。\n海上明月共潮生。"))
    stage.promote()
    return stage


@pytest.fixture
def html(judged):
    return written(judged, "report.html")


@pytest.fixture
def report(judged):
    return json.loads(written(judged, "report.json"))


def test_the_page_asks_nothing_of_anyone(html):
    shown = Page(html)
    assert not {"link", "img", "iframe", "form", "object", "base"} & set(shown.tags)
    names = {name for name, _ in shown.attributes}
    assert not {"src", "href", "action", "srcset"} & names
    assert not [name for name in names if name.startswith("on")]
    assert "url(" not in html and "@import" not in html
    assert len(html.encode()) < MOST_BYTES


def test_only_the_pages_own_script_may_run(html):
    assert re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL) == [SCRIPT]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        dict(Page(html).attributes)["content"] if False else re.search(r'Policy" content="([^"]+)"', html)[1]
    )
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; ")
    assert f"script-src 'sha256-{digest}'" in policy.replace("&#43;", "+")


def test_hostile_text_is_shown_and_not_obeyed(html):
    assert HOSTILE in Page(html).text
    assert "<script>alert" not in html and "<img" not in html


def test_hostile_words_anywhere_in_the_report_are_escaped(report):
    """Every string of the document, and every name in it, could come from a file that somebody prepared."""

    def poisoned(value, path=()):
        if isinstance(value, dict):
            return {
                (n if fixed(path) else f"{n}{HOSTILE}"): poisoned(v, (*path, n)) for n, v in value.items()
            }
        if isinstance(value, list):
            return [poisoned(v, path) for v in value]
        return f"{value}{HOSTILE}" if isinstance(value, str) and path[-1:] not in KEPT else value

    def fixed(path):
        return not path or path[-1] not in (
            "genres",
            "documents",
            "sources",
            "dropped",
            "licenses",
            "options",
            "inputs",
        )

    KEPT = [("outcome",), ("made_at",), ("id",)]
    hostile = poisoned(report)
    for column in hostile["bits_per_character"]["columns"]:  # rows are looked up by the names of genres
        rows = {n if n == "mean" else f"{n}{HOSTILE}": v for n, v in column["rows"].items()}
        column["rows"] = rows
    html = render(hostile)
    assert html.count("<script>") == 1 and "<img" not in html
    assert "onerror" not in {name for name, _ in Page(html).attributes}


def test_the_verdict_comes_first_and_everything_is_there_in_both_languages(html):
    first = Page(html[: html.index("</header>")] + "</header></body></html>").text
    assert "Promoted: 7.79" in first and "晋升：每字 7.79" in first
    text = Page(html).text
    for heading in (
        "每字比特数",
        "准则",
        "训练过程",
        "生成样例",
        "成本",
        "来历、选项与重跑",
        "How the run went",
        "Cost",
    ):
        assert heading in text
    for genre in ("诗", "词", "文", "赋", "mean of genres", "各体平均"):
        assert genre in text
    assert "春江潮水连海平。" in text
    assert "gain above 0 beyond doubt" in text and "提升确实大于零" in text


def test_every_word_on_the_page_has_its_twin(html):
    assert html.count('<span class="en"') == html.count('<span class="zh"') > 50


def test_the_report_obeys_its_schema_and_holds_the_numbers(report):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(report, SCHEMA)
    assert report["verdict"]["gain"]["bits"] == pytest.approx(0.2, abs=0.01)
    assert [c["id"] for c in report["bits_per_character"]["columns"]] == ["challenger", "champion"]
    assert report["training"]["series"]["bits_per_character"][0] == [0, 9.0]
    broken = copy.deepcopy(report)
    broken["verdict"]["outcome"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_a_first_champion_has_no_comparison(stage):
    stage.evaluate(stage.model(1))
    stage.promote()
    report = json.loads(written(stage, "report.json"))
    jsonschema.validate(report, SCHEMA)
    assert report["champion"] is None and report["verdict"]["gain"] is None
    assert "document by document" not in written(stage, "report.html")


def test_verse_and_memorization_are_shown_where_they_were_measured(report):
    assert "格律" not in render(report)
    share = {"of": 10, "share": 0.4, "interval": [0.1, 0.7]}
    row = {"name": "rhyme", "title": "all even lines rhyme", "genre": "诗", "unit": "poems"}
    report["verse"] = [
        {**row, "held_out": {**share, "share": 0.91}, "chance": {**share, "share": 0.04}, "generated": share}
    ]
    report["verse"].append(
        {**row, "name": "new", "held_out": share, "chance": share, "generated": {"of": 0, "share": None}}
    )
    report["memorization"] = {
        "generated": {"copied_8grams": 0.31, "longest_copy": 12},
        "held_out": {"copied_8grams": 0.08},
    }
    report["contamination"] = {"share": 0.001, "limit": 0.01}
    text = Page(render(report)).text
    assert "偶句通押平水韵" in text and "40.0 %91.0 %4.0 %10" in text
    assert "copied 8grams" in text and "0.31" in text and "0.001" in text


def test_a_page_that_would_be_too_large_is_refused(report):
    report["samples"]["genres"]["诗"] = [{"text": "月" * 2000, "tokens": 1, "ended": True}] * 400
    with pytest.raises(DataError, match="lower evaluate's --samples"):
        render(report)


def test_long_samples_and_many_of_them_are_cut(stage):
    stage.evaluate(stage.model(1), texts=("月" * 100_000,) * 40)
    assert stage.promote() == 0
    assert len(written(stage, "report.html").encode()) < MOST_BYTES


def test_lineage_leads_to_the_raw_files_with_the_commands_between(stage):
    raw = {"content_digest": "d" * 64, "uri": "file:///data/a.jsonl", "files": []}
    raw["files"] = [{"name": "a.jsonl", "sha256": "5" * 64, "bytes": 3}]
    config = {"config.yaml": "{}\n"}
    documents = commit(stage.store, "curate", config, inputs={"sources": raw, "evaluation_set": None})
    model = commit(stage.store, "train", config, inputs={"documents": documents})
    found = trace(model)
    assert [a.output.manifest.stage for a in found.ancestors] == ["train", "curate"]
    assert found.sources == [("a.jsonl", "5" * 64)]
    train, curate = (a.command for a in found.ancestors)
    assert f"--documents curate/{documents.reference.key}" in train and "/config.yaml" in train
    assert "--sources /data/a.jsonl" in curate and "--evaluation-set none" in curate


def test_a_lost_ancestor_is_named_and_stops_nothing(stage):
    documents = commit(stage.store, "curate", {"a": "b"})
    model = commit(stage.store, "train", {"config.json": "{}"}, inputs={"documents": documents})
    stage.store.delete(documents.reference.manifest_uri)
    stage.evaluate(model)
    assert stage.promote() == 0
    assert "no such output; run the curate stage again" in Page(written(stage, "report.html")).text


def test_three_verses_are_chosen_by_seed():
    samples = {"genres": {g: [{"text": f"{g}{i}"} for i in range(5)] for g in ("文", "赋", "曲", "诗", "词")}}
    shown = [chosen_verses(samples, seed) for seed in range(20)]
    assert shown[3] == chosen_verses(samples, 3)
    assert all([genre for genre, _ in verses][:2] == ["诗", "词"] for verses in shown)
    assert {verses[2][0] for verses in shown} == {"文", "赋", "曲"}
    assert len({verses[0][1] for verses in shown}) > 1
    assert chosen_verses({"genres": {"文": [{"text": "a"}]}}, 0) == [("文", "a")]


def test_the_summary_ends_with_verdict_and_verses(judged):
    output = open_reference(judged.store, judged.pointer("promote"))
    text = output.path("summary.txt").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[2].split() == ["genre", "challenger", "champion"]
    assert [line.split()[0] for line in lines[3:8]] == ["诗", "词", "文", "赋", "mean"]
    assert any(line.startswith("Promoted: 7.79") for line in lines)
    assert text.count("(generated)") == 3


def test_a_champion_evaluation_shows_in_the_figures(judged):
    champion = open_evaluation(open_reference(judged.store, judged.pointer("champion_evaluation")))
    assert champion.mean == pytest.approx(7.79, abs=0.01)


def test_the_summary_says_in_how_many_genres_a_baseline_is_beaten(stage):
    figures = {"documents": 1, "characters": 1, "bits_per_character": 7.0}
    genres = {
        g: {**figures, "bits_per_character": 7.0 if g == "诗" else 9.0} for g in ("诗", "词", "文", "赋")
    }
    summary = {
        "baselines": {"xz": {"title": "xz -9e", "genres": genres, "mean": {"bits_per_character": 8.5}}}
    }
    baselines = commit(stage.store, "baselines", {"summary.json": json.dumps(summary)})
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote("--baselines", f"baselines/{baselines.reference.key}") == 0
    output = open_reference(stage.store, stage.pointer("promote"))
    text = output.path("summary.txt").read_text(encoding="utf-8")
    assert "Against xz -9e: fewer bits in 3 of 4 genres, fewer on average." in text
    assert "better in 3 of 4 genres" in Page(written(stage, "report.html")).text


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
