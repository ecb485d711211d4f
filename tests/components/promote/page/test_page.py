"""The page and the summary: what is on them, and that nothing on them can do harm."""

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from hostile_pages import HOSTILE as WORDS
from hostile_pages import check, grown, poisoned
from hypothesis import HealthCheck, example, given, settings
from tiny_store import commit

from yanmo.common.pages.html import SCRIPT
from yanmo.promote.page import rendering as page
from yanmo.promote.page.rendering import MOST_BYTES, render
from yanmo.promote.page.report import baseline_wins
from yanmo.promote.run_metrics import run_metrics

HOSTILE = '<script>alert("x")</script><img src=//evil.example/x onerror=alert(1)> & "明月"'
VOID = {"meta", "input", "br", "img", "link"}
SCHEMA = json.loads((Path(page.__file__).parent / "report.schema.json").read_text(encoding="utf-8"))


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


@pytest.fixture(scope="module")
def hostile(new_stage):
    """A channel whose second model was just promoted, with a hostile sample."""
    stage = new_stage()
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    stage.evaluate(stage.model(2), 7.8, texts=(HOSTILE, "春江潮水连海平。\n海上明月共潮生。"))
    stage.promote()
    return stage


@pytest.fixture
def html(hostile):
    return hostile.written("report.html")


@pytest.fixture
def report(hostile):
    return json.loads(hostile.written("report.json"))


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
    policy = re.search(r'Policy" content="([^"]+)"', html)[1]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; ")
    assert f"script-src 'sha256-{digest}'" in policy.replace("&#43;", "+")


DATA_NAMES = ("genres", "documents", "rows", "dropped", "licenses", "options", "inputs")
CHOICES = ("outcome", "made_at", "id", "how", "measure")
"""Texts of ours that choose what is shown; the schema lists their values."""


@pytest.mark.parametrize("more", ["\u202e<script>a()</script>", "{{ 7*7 }}{% x %}", "\"'>&lt;%s"])
def test_every_text_of_the_report_is_shown_as_it_is_and_obeyed_by_nothing(report, more):
    """Every text of the document, and every name in it, could come from a file that somebody prepared."""
    report |= with_everything()

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(WORDS)
    @example(more)
    def shown(more):
        check(lambda words: render(poisoned(report, words, keys=DATA_NAMES, kept=CHOICES)), more)

    shown()


def test_the_verdict_comes_first_and_everything_is_there_in_both_languages(html):
    first = Page(html[: html.index("</header>")] + "</header></body></html>").text
    assert "Promoted: 2.50 % fewer bits" in first and "晋升：每字比特比现任冠军少 2.50 %" in first
    assert first.index("Promoted: ") < first.index("The seed's noise was not measured") < first.index("7.79")
    text = Page(html).text
    for heading in (
        "每字比特数",
        "晋升规则",
        "训练过程",
        "生成样例",
        "来源与选项",
        "How the run went",
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
    assert report["training"]["bits_per_character"][0] == [0, 9.0]
    broken = copy.deepcopy(report)
    broken["verdict"]["outcome"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_what_made_the_model_stands_next_to_the_verdict(report):
    made_by = {"processor": "Xeon 9", "torch": "2.13.0", "yanmo": "c519f3362b73"}
    report["training"] |= {"parameters": 4327104, "tokens": 3000, "made_by": made_by}
    (train,) = (stage for stage in report["stages"] if stage["stage"] == "train")
    train["options"] |= {"seed": 17, "size": "tiny"}
    report["data"]["tokenize"]["genres"] = {"诗": {"tokens": 2000, "characters": 1}}
    report["samples"]["genres"] = {"诗": [{"text": "\n".join("一二三四五六七八"), "ended": True}]}
    html = render(report)
    top = squeezed(Page(html[: html.index("<section>")] + "</body></html>").text)
    for words in ("4,327,104 parameters", "· tiny", "3,000 tokens", "1.50 epochs", "1.50 轮", "Seed种子17"):
        assert words in top
    assert "Xeon 9" in top and "Commit提交c519f3362b73 · torch 2.13.0" in top
    assert "四 ……" in top and "五" not in top


def test_a_baseline_that_knows_the_genre_is_marked_where_it_is_shown(report):
    columns = report["bits_per_character"]["columns"]
    columns.append({**columns[0], "id": "ngram", "title": "5-gram"})
    assert "knows the genre" not in render(report)
    columns.append({**columns[0], "id": "mixture", "title": "5-gram mixture"})
    text = squeezed(Page(render(report)).text)
    assert text.count("5-gram mixture五元混合模型 knows the genre已知体裁") == 2, (
        "in the legend and in the table"
    )
    assert "5-gram五元模型 knows" not in text


def test_the_curve_of_validations_is_drawn_and_named(report):
    assert len(page.loss_chart(report["training"]).lines[1].dots) == 1
    report["training"]["curve"] = [[30, 9.0], [60, 8.6], [90, 8.5]]
    jsonschema.validate(report, SCHEMA)
    (_, drawn) = page.loss_chart(report["training"]).lines
    assert drawn.style == "valid" and len(drawn.dots) == 3 and drawn.points
    text = Page(render(report)).text
    assert "The curve of validations is on a part" in text and "验证，最后 8.500" in text


def test_a_table_says_which_heads_belong_to_a_row_and_which_to_a_column(report):
    html = render(report | with_everything())
    heads = re.findall("<th[ >][^>]*>?", html)
    assert len(heads) > 60 and not [h for h in heads if 'scope="row"' not in h and 'scope="col' not in h]
    for head in re.findall("<thead>.*?</thead>", html, flags=re.DOTALL):
        assert 'scope="row"' not in head
    charts = re.findall('role="img" aria-labelledby="([^"]+)"', html)
    assert len(charts) >= 2 and all(html.count(f'id="{name}"') == 1 for name in charts)


def test_a_first_champion_has_no_comparison(stage):
    stage.evaluate(stage.model(1))
    stage.promote()
    report = json.loads(stage.written("report.json"))
    jsonschema.validate(report, SCHEMA)
    assert report["champion"] is None and report["verdict"]["gain"] is None
    assert "document by document" not in stage.written("report.html")


def test_verse_and_memorization_are_shown_where_they_were_measured(report):
    assert "格律" not in render(report)
    report |= with_everything()
    jsonschema.validate(report, SCHEMA)
    text = Page(render(report)).text
    assert "偶句通押平水韵" in text and "40.0 %10.0 – 70.0 %91.0 %4.0 %" in text
    assert "1,010 regular poems" in text
    assert "copied runs of eight characters照抄的八字片段31.00 %8.00 %" in text
    assert "longest copied run, characters最长照抄（字）129" in text
    assert "Evaluated texts that are in the training text见于训练文本的评测文本: 0.10 %" in text
    assert "诗 shi, poems7991" in text.replace("\n", "")


def test_tasks_are_shown_where_they_were_set(report):
    assert "任务" not in render(report)
    report |= with_everything()
    jsonschema.validate(report, SCHEMA)
    text = Page(render(report)).text
    assert (
        "name the genre辨体裁 accuracy正确率, 200 questions题65.0 %59.0 – 71.0 %58.5 %25.0 %100.0 %"
        in squeezed(text)
    )
    assert "answer the last question答末问 chrFchrF, 40 questions题31.4––95.0 %" in squeezed(text)
    report["tasks"]["rows"] = report["tasks"]["rows"][:1]
    assert "chrF is" not in Page(render(report)).text


def squeezed(text):
    return "".join(line.strip() for line in text.splitlines())


SHARE = {"of": 1010, "share": 0.4, "interval": [0.1, 0.7]}


def with_everything():
    """What a report holds where everything was measured."""
    row = {"name": "rhyme", "title": "all even lines rhyme", "genre": "诗", "unit": "regular poems"}
    original, chance = {**SHARE, "share": 0.91}, {"of": 9, "share": 0.04}
    nothing = {"of": 0, "share": None, "interval": None}
    new = {**row, "name": "new", "held_out": original, "chance": nothing, "generated": nothing}
    own, other = {"copied_8grams": 0.31, "longest_copy": 12}, {"copied_8grams": 0.08, "longest_copy": 9}
    figures = dict.fromkeys(("copied_8grams", "loops", "distinct_2", "genre_obedience", "ended"), 0.5)
    by_genre = {"诗": {"generated": figures, "held_out": {**figures, "loops": None}}}
    task = {"of": 200, "champion": 0.585, "base": None, "chance": 0.25, "obedient": 1.0}
    genre = {**task, "task": "genre", "measure": "accuracy", "value": 0.65, "interval": [0.59, 0.71]}
    chat = {"task": "chat", "measure": "chrf", "value": 31.41, "interval": None, "obedient": 0.95, "of": 40}
    said = {"asked": f"明月几时有{HOSTILE}", "answer": f"把酒{HOSTILE}", "reference": "问青天"}
    said |= {"champion": f"不知{HOSTILE}", "base": None}
    return {
        "verse": [{**row, "held_out": original, "chance": chance, "generated": SHARE}, new],
        "memorization": {"window": 8, "generated": own, "held_out": other, "genres": by_genre},
        "contamination": {
            "window": 13,
            "share": 0.001,
            "genres": {"诗": {"documents": 799, "with_a_shared_run": 1, "with_a_fifth_shared": 0}},
        },
        "tasks": {
            "rows": [genre, {**chat, "champion": None, "base": None, "chance": None}],
            "answers": [said],
        },
    }


EXTRA = tuple(with_everything())


def test_rules_of_verse_are_left_out_where_nobody_wrote_any(report):
    """On prose it was a table of fifteen rows of dashes."""
    report |= with_everything()
    assert "Form of verse" in Page(render(report)).text
    nothing = {"of": 0, "share": None, "interval": None}
    for row in report["verse"]:
        row |= {"generated": nothing, "held_out": nothing}
    assert "Form of verse" not in Page(render(report)).text


GROWING = (
    "dropped",
    "licenses",
    "options",
    "classes",
    "conditions",
)


def test_no_list_of_the_report_makes_the_page_too_large(report):
    """Thousands of genres, ancestors or tasks: each list is cut, and says how much is left out."""
    report |= with_everything()
    report["lost"] = ["curate/1: lost"]
    report["data"]["curate"]["licenses"] = {"CC0-1.0": 1}
    report["data"]["curate"]["dropped"] = {"stub": 1}
    report["training"]["events"] = [{"step": 1, "event": "stop"}]
    plain, places = len(render(report).encode()), []
    for place, document in grown(report, GROWING):
        if "interval" not in place:
            places.append(place)
            assert len(render(document).encode()) < plain + 400_000 < MOST_BYTES, place
    assert len(places) > 25


def test_thousands_of_genres_are_cut_to_the_largest_in_every_table(report):
    """A corpus labelled by author: the rows that are shown are the same ones in chart and table."""
    report |= with_everything()
    names = [f"{i}{'月' * 400}" for i in range(3000)]

    def many(values):
        return dict.fromkeys(names, next(iter(values.values()))) if values else values

    table = report["bits_per_character"]
    table["documents"] = {name: {"documents": 1, "characters": i} for i, name in enumerate(names)}
    for column in table["columns"]:
        column["rows"] = many(column["rows"])
    for part in (report["verdict"], report["memorization"], report["contamination"], report["samples"]):
        part["genres"] = many(part["genres"])
    counts = {"read": 3, "documents": 2, "characters": 1, "tokens": 1, "before": 1, "after": 1, "epochs": 1}
    for part, name in (("curate", "genres"), ("balance", "classes"), ("tokenize", "genres")):
        report["data"][part][name] = dict.fromkeys(names, counts)
    text = render(report)
    assert len(text.encode()) < 1_000_000 and text.count("and 2,960 more") == 8
    assert "9,0006,0003,000" in squeezed(Page(text).text), "the sums are those of all genres"
    shown = set(re.findall(r"([0-9]+)月+…</span>", text))
    gains = text[text.index("document by document") :]
    assert {f"{i}" for i in range(2960, 3000)} <= set(re.findall("([0-9]+)月+…", gains)) <= shown


def test_texts_of_any_length_make_no_page_too_large(report):
    report |= with_everything()
    long = poisoned(report, "<月>" * 40_000, keys=DATA_NAMES, kept=CHOICES)
    assert len(render(long).encode()) < MOST_BYTES


def test_half_of_a_surrogate_pair_is_shown_as_what_cannot_be_shown(report):
    report |= with_everything()
    text = render(poisoned(report, "\ud800", keys=DATA_NAMES, kept=CHOICES)).encode().decode()
    assert text.count("\ufffd") > 100


def test_a_lost_ancestor_is_named_and_stops_nothing(stage):
    documents = commit(stage.store, "curate", {"a": "b"})
    model = commit(stage.store, "train", {"config.json": "{}"}, inputs={"documents": documents})
    stage.store.delete(documents.reference.manifest_uri)
    stage.evaluate(model)
    assert stage.promote() == 0
    assert "no such output; run the curate stage again" in Page(stage.written("report.html")).text


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
    text = stage.written("summary.txt")
    assert "Against xz -9e: fewer bits in 3 of 4 genres, fewer on average." in text
    assert "better in 3 of 4 genres" in Page(stage.written("report.html")).text


def test_a_baseline_without_a_genre_is_compared_on_the_others_and_has_no_mean(stage):
    """Baselines leave chats out; a mean of the rest beside the mean of all would mislead."""
    stage.numbers = {"诗": 30, "chat": 30}
    figures = {"documents": 1, "characters": 1, "bits_per_character": 9.0}
    summary = {
        "baselines": {
            "ngram": {"title": "5-gram", "genres": {"诗": figures}, "mean": {"bits_per_character": 9.0}}
        }
    }
    baselines = commit(stage.store, "baselines", {"summary.json": json.dumps(summary)})
    stage.evaluate(stage.model(1), 8.0, shift={"chat": -3.0})
    assert stage.promote("--baselines", f"baselines/{baselines.reference.key}") == 0
    report = json.loads(stage.written("report.json"))
    jsonschema.validate(report, SCHEMA)
    own, *_, ngram = report["bits_per_character"]["columns"]
    assert ngram["mean"]["value"] is None and own["rows"]["chat"]["value"] < 6
    (win,) = baseline_wins(report["bits_per_character"])
    assert win["mean_gain"] == pytest.approx(9.0 - own["rows"]["诗"]["value"])
    text = Page(stage.written("report.html")).text
    assert "A column without some genre has no mean." in text and "Not drawn" not in text
    assert "fewer bits in 1 of 1 genres, fewer on average" in stage.written("summary.txt")


def test_a_genre_may_be_called_mean_or_total(stage):
    """The mean over genres is another row, and another column of metrics."""
    stage.numbers = {"诗": 30, "mean": 30, "total": 30}
    stage.evaluate(stage.model(1), 8.0, shift={"mean": -0.3})
    assert stage.promote() == 0
    report = json.loads(stage.written("report.json"))
    own = report["bits_per_character"]["columns"][0]
    assert own["rows"]["mean"]["value"] < own["mean"]["value"] - 0.1
    figures = run_metrics(report, True)
    assert figures["bits_per_character_mean"] == round(own["mean"]["value"], 4)
    of_genre = figures["bits_per_character_u006d_u0065_u0061_u006e"]
    assert of_genre == round(own["rows"]["mean"]["value"], 4)
    lines = stage.written("summary.txt").splitlines()
    shown = [line.split()[1] for line in lines[:10] if line.startswith("mean ")]
    assert shown == [f"{own['rows']['mean']['value']:.3f}", f"{own['mean']['value']:.3f}"]
