"""The page and the summary: what is on them, and that nothing on them can do harm."""

import json
import re
from html.parser import HTMLParser

import pytest
from tiny_store import commit

from yanmo.common.store.output import open_reference
from yanmo.promote.curve import Curves, read_curves, svg
from yanmo.promote.evaluation import open_evaluation
from yanmo.promote.lineage import trace
from yanmo.promote.page import MOST_BYTES, count_tables
from yanmo.promote.summary import chosen_verses

HOSTILE = '<script>alert("x")</script><img src=//evil.example/x onerror=alert(1)> & "明月"'
VOID = {"meta", "line", "circle", "polyline", "br", "img", "link"}


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


def report(stage):
    output = open_reference(stage.store, stage.pointer("promote"))
    return output.path("report.html").read_text(encoding="utf-8")


@pytest.fixture
def html(stage):
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    stage.evaluate(stage.model(2), 7.8, texts=(HOSTILE, "春江潮水连海平。\n海上明月共潮生。"))
    stage.promote()
    return report(stage)


def test_the_page_asks_nothing_of_anyone(html):
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "form", "object"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not {"src", "href", "action", "srcset"} & names
    assert not [name for name in names if name.startswith("on")]
    assert "url(" not in html and "@import" not in html
    assert ("http-equiv", "Content-Security-Policy") in page.attributes
    assert len(html.encode()) < MOST_BYTES


def test_hostile_text_is_shown_and_not_obeyed(html):
    assert HOSTILE in Page(html).text
    assert "<script>" not in html


def test_the_verdict_comes_first_and_everything_is_there(html):
    text = Page(html).text
    assert "Promoted: 7.79" in Page(html[: html.index("</header>")] + "</header></body></html>").text
    for heading in ("每字比特数", "准则", "训练", "生成样例", "按来源", "来历、选项与重跑"):
        assert heading in text
    for genre in ("诗", "词", "文", "赋", "mean"):
        assert genre in text
    assert "春江潮水连海平。" in text
    assert "gain above 0 beyond doubt" in text


def test_a_page_without_champion_has_no_rules_table(stage):
    stage.evaluate(stage.model(1))
    stage.promote()
    assert "准则" not in Page(report(stage)).text


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
    assert "no such output; run the curate stage again" in Page(report(stage)).text


def test_counts_of_equal_columns_share_a_table():
    counts = {"documents": {"train": {"诗": 2000, "词": 1}, "valid": {"诗": 1, "词": 1}}, "vocab": 8192}
    tables = {table["columns"]: table["rows"] for table in count_tables(counts)}
    assert tables["诗", "词"] == [("documents train", ["2,000", "1"]), ("documents valid", ["1", "1"])]
    assert tables[("vocab",)] == [("", ["8,192"])]


def test_curves_are_read_from_the_models_metrics(stage):
    curves = read_curves(stage.model(1))
    assert curves.train[0] == (0.0, 9.0) and len(curves.train) == 10
    assert curves.valid == [(90.0, 8.5)]
    assert curves.last_valid == 8.5


def places(drawing):
    return [float(v) for points in re.findall(r'points="([^"]+)"', drawing) for v in re.split("[ ,]", points)]


@pytest.mark.parametrize(
    "train",
    [
        [(0, 9.0), (10, 8.0)],
        [(s, 20.0 if s < 5 else 8 + 5 / (s + 1)) for s in range(5000)],
        [(s, 8.0) for s in range(5)],
    ],
)
def test_a_curve_stays_inside_its_frame_and_small(train):
    drawing = svg(Curves(train, [(train[-1][0], 7.9)]))
    assert len(drawing) < 20_000
    assert all(-1 <= place <= 481 for place in places(drawing))
    assert "nan" not in drawing


def test_no_points_give_no_curve():
    assert svg(Curves([], [])) == ""


def test_three_verses_are_chosen_by_seed():
    samples = {"genres": {g: [{"text": f"{g}{i}"} for i in range(5)] for g in ("文", "赋", "曲", "诗", "词")}}
    shown = [chosen_verses(samples, seed) for seed in range(20)]
    assert shown[3] == chosen_verses(samples, 3)
    assert all([genre for genre, _ in verses][:2] == ["诗", "词"] for verses in shown)
    assert {verses[2][0] for verses in shown} == {"文", "赋", "曲"}
    assert len({verses[0][1] for verses in shown}) > 1
    assert chosen_verses({"genres": {"文": [{"text": "a"}]}}, 0) == [("文", "a")]


def test_the_summary_ends_with_verdict_and_verses(stage, html):
    output = open_reference(stage.store, stage.pointer("promote"))
    text = output.path("summary.txt").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[2].split() == ["genre", "challenger", "champion"]
    assert [line.split()[0] for line in lines[3:8]] == ["诗", "词", "文", "赋", "mean"]
    assert any(line.startswith("Promoted: 7.79") for line in lines)
    assert text.count("(generated)") == 3


def test_a_champion_evaluation_shows_in_the_figures(stage, html):
    champion = open_evaluation(open_reference(stage.store, stage.pointer("champion_evaluation")))
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
    assert "Against xz -9e" in Page(report(stage)).text
