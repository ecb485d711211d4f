"""Rows of tasks: which are shown, and with what they are compared."""

from yanmo.promote.gate.evaluation import open_evaluation
from yanmo.promote.page.tasks import task_rows


def test_tasks_are_compared_only_where_they_were_set_alike(stage):
    tasks = {
        "genre": {"of": 20, "accuracy": 0.5, "interval": [0.3, 0.7], "chance": 0.25},
    }
    other = {**tasks, "genre": {**tasks["genre"], "of": 10, "accuracy": 0.9}}
    own, alike, unlike = (open_evaluation(stage.evaluate(stage.model(i))) for i in (1, 2, 3))
    own.summary.update(tasks=tasks)
    alike.summary.update(tasks=tasks)
    unlike.summary.update(tasks=other)
    (row,) = task_rows(own, alike)["rows"]
    assert (row["value"], row["champion"], row["obedient"]) == (0.5, 0.5, None)
    assert task_rows(own, unlike)["rows"][0]["champion"] is None


def test_answers_to_chats_are_cut_to_what_is_read(stage):
    evaluation = open_evaluation(stage.evaluate(stage.model(1)))
    answer = {"asked": "问", "answer": "答" * 900, "reference": ""}
    nobodys = {"champion": None, "base": None}
    evaluation.summary["tasks"] = {"how": "chat", "chat": {"of": 1, "chrf": 0.0, "answers": [answer]}}
    assert task_rows(evaluation, None)["answers"] == [{**answer, "answer": "答" * 500, **nobodys}]


def test_answers_of_others_are_those_to_the_same_question(stage):
    own, champion, base = (open_evaluation(stage.evaluate(stage.model(i))) for i in (1, 2, 3))
    for evaluation, asked, said in ((own, "问", "一"), (champion, "别的", "二"), (base, "问", "三")):
        chat = {"of": 1, "chrf": 1.0, "answers": [{"asked": asked, "answer": said, "reference": "零"}]}
        evaluation.summary["tasks"] = {"how": "chat", "chat": chat}
    (shown,) = task_rows(own, champion, base)["answers"]
    assert shown == {"asked": "问", "answer": "一", "reference": "零", "champion": None, "base": "三"}
