"""What a person reads at the end of a run."""

from yanmo.promote.page.summary import base_lines, chosen_verses


def test_three_verses_are_chosen_by_seed():
    samples = {"genres": {g: [{"text": f"{g}{i}"} for i in range(5)] for g in ("文", "赋", "曲", "诗", "词")}}
    shown = [chosen_verses(samples, seed) for seed in range(20)]
    assert shown[3] == chosen_verses(samples, 3)
    assert all([genre for genre, _ in verses][:2] == ["诗", "词"] for verses in shown)
    assert {verses[2][0] for verses in shown} == {"文", "赋", "曲"}
    assert len({verses[0][1] for verses in shown}) > 1
    assert chosen_verses({"genres": {"文": [{"text": "a"}]}}, 0) == [("文", "a")]


def test_the_summary_ends_with_verdict_and_verses(judged):
    text = judged.written("summary.txt")
    lines = text.splitlines()
    assert lines[2].split() == ["genre", "challenger", "champion"]
    assert [line.split()[0] for line in lines[3:8]] == ["诗", "词", "文", "赋", "mean"]
    verdict = lines.index("Promoted: 2.50 % fewer bits per character than the champion.")
    assert "0.25 % is assumed. 7.79" in lines[verdict + 1], "the conditions follow"
    asked = "Asked for: a gain of at least 0.995 %, or of 0.813 % as the mean of three nights (4.0 times the "
    assert any(line.startswith(f"{asked}seed's noise of 0.25 %, which is assumed") for line in lines)
    assert any("true gain under 1.18 % may take more than three nights" in line for line in lines)
    assert text.count("(generated)") == 3


def test_what_tuning_changed_is_said_in_bits_and_in_tasks():
    change = {"base": 9.5, "tuned": 8.25, "interval": [-1.5, -1.0]}
    row = {"task": "genre", "measure": "accuracy", "base": 0.25, "value": 0.5, "chance": 0.25}
    tasks = {"rows": [{**row, "interval": [0.4, 0.6]}, {**row, "measure": "obedient", "interval": None}]}
    lines = base_lines({"base": {"answers": change, "forgotten": None}, "tasks": tasks})
    (bits,) = (line for line in lines if line.startswith("bits of answers"))
    assert [word for word in bits.split() if word[-1].isdigit()] == ["9.500", "8.250", "-1.500", "-1.000"]
    (task,) = (line for line in lines if line.startswith("name the genre"))
    assert "after: 40" in task and "60" in task, "one line: what no person reads as a share is left out"
    assert not any(line.startswith("bits of texts") for line in lines)
    assert not base_lines({"base": None, "tasks": tasks})
