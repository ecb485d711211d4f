"""Places of charts, and the record of a training that they draw."""

import json

import pytest
from tiny_store import commit

from yanmo.promote.page.charts import dot_chart, line_chart, short, ticks_between
from yanmo.promote.page.training import MOST_POINTS, training_report


def places(chart):
    return [float(v) for line in chart.lines for p in line.points.split() for v in p.split(",")]


@pytest.mark.parametrize(
    "train",
    [
        [(0, 9.0), (10, 8.0)],
        [(s, 2000.0 if s < 5 else 8 + 5 / (s + 1)) for s in range(500)],
        [(s, 8.0) for s in range(5)],
        [(s, 0.0) for s in range(5)],
        [(0, 1e-9), (1, 2e-9)],
        [(5, -3.0), (6, 4e12)],
    ],
)
def test_lines_stay_inside_their_frame(train):
    chart = line_chart({"train": train, "valid": [(train[-1][0], train[-1][1])]}, dotted="valid")
    assert all(0 <= place <= 100 for place in places(chart))
    assert len(chart.lines[1].dots) == 1 and chart.lines[1].points == ""
    labels = [t.label for t in (*chart.x_ticks, *chart.y_ticks)]
    assert labels and "-0" not in labels
    assert all(-0.01 <= t.at <= 100.01 for t in (*chart.x_ticks, *chart.y_ticks))


def test_lines_fill_their_frame():
    chart = line_chart({"train": [(0, 9.0), (10, 8.0)]})
    assert (min(places(chart)), max(places(chart))) == (0, 100)


def test_fewer_than_two_points_make_no_chart():
    assert line_chart({"train": [], "valid": []}) is None
    assert line_chart({"train": [(0, 1.0)]}) is None


def test_ticks_are_round_and_labels_short():
    assert ticks_between(0, 450, 4) == [0, 200, 400]
    assert ticks_between(7.9, 9.5, 4) == [8.0, 8.5, 9.0, 9.5]
    assert [short(v) for v in (0.0, 0.05, 450, 12_000, 3_200_000)] == ["0", "0.05", "450", "12k", "3.2M"]


def column(name, value, interval=None):
    cell = {"value": value, "interval": interval, "few_documents": False}
    return {"id": name, "title": name, "rows": {"诗": cell}, "mean": cell}


def test_a_baseline_too_far_away_is_named_and_does_not_squeeze_the_others():
    chart = dot_chart([column("challenger", 8.0, [7.9, 8.1]), column("champion", 8.2), column("xz", 10.5)])
    assert chart.left_out == ("xz",) and chart.styles == {"challenger": "challenger", "champion": "champion"}
    ((name, (champion, challenger)),) = chart.rows
    assert chart.mean == (champion, challenger)
    assert name == "诗" and challenger.low < challenger.at < challenger.high < champion.at < 100
    assert champion.low is None


def test_one_figure_alone_is_still_a_chart():
    ((_, (mark,)),) = dot_chart([column("challenger", 8.0)]).rows
    assert 0 <= mark.at <= 100


def model_with(store, lines):
    return commit(
        store, "train", {"metrics.jsonl": "".join(f"{line}\n" for line in lines)}, options={"n": len(lines)}
    )


def line(step, **values):
    return json.dumps(
        {"step": step, "loss": 5.0, "bits_per_character": 8.0, "grad_norm": 1.0, "seconds": step, **values}
    )


def test_the_speed_is_the_median_of_the_intervals(stage):
    lines = [line(s, tokens_per_second=1000.0) for s in range(10, 100, 10)]
    lines.append(line(110, seconds=190.0, tokens_per_second=100.0))
    assert training_report(model_with(stage.store, lines))["median_tokens_per_second"] == 1000.0


def test_a_record_with_holes_is_read_as_far_as_it_goes(stage):
    lines = [
        line(10, tokens_per_second=5.0),
        json.dumps(
            {
                "step": 20,
                "loss": None,
                "bits_per_character": None,
                "grad_norm": None,
                "tokens_per_second": 4.0,
            }
        ),
        json.dumps({"step": 20, "event": "rewind", "reason": "loss"}),
        json.dumps({"step": 20, "valid_bits_per_character": {"诗": 7.0, "词": 9.0}}),
        '{"step": 30, "loss": 5.',
        "[]",
        "",
    ]
    found = training_report(model_with(stage.store, lines))
    assert found["bits_per_character"] == [[10, 8.0]]
    assert found["valid"] == [[20, 8.0]]
    assert found["events"] == [{"step": 20, "event": "rewind", "reason": "loss"}]


def test_no_record_is_none(stage):
    assert training_report(commit(stage.store, "train", {"config.json": "{}"})) is None
    assert training_report(model_with(stage.store, ["", "nonsense"])) is None


def test_a_long_training_is_thinned(stage):
    found = training_report(model_with(stage.store, [line(s, tokens_per_second=1.0) for s in range(1, 5000)]))
    assert len(found["bits_per_character"]) == MOST_POINTS
