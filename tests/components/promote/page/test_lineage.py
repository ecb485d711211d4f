"""The outputs that a verdict rests on: each once, and none of the models that a training went on from."""

from tiny_store import commit

from yanmo.formats.stage_cost import Span
from yanmo.promote.page.cost import Judging, cost_report
from yanmo.promote.page.lineage import trace

JUDGING = Judging(
    key="0" * 64, made_at="2026-11-23T00:00:00+00:00", run_id="", span=Span(0.0, 5.0), cpu_seconds=2.0
)


def test_a_model_that_goes_on_every_night_has_its_own_lineage_and_cost_alone(stage):
    def made(name, **inputs):
        prom = f"yanmo_{name}_duration_seconds 50.0\nyanmo_{name}_cpu_seconds 90.0\n"
        return commit(
            stage.store, name, {"metrics.prom": prom}, inputs=inputs, options={"night": len(models)}
        )

    models = []
    shared = made("curate", sources={"content_digest": "d" * 64, "uri": "file:///data/a.jsonl"})
    for _ in range(3):
        own = made("balance", documents=shared)
        model = made("train", documents=own, documents_2=shared, model=models[-1] if models else None)
        lineage = trace(model)
        assert list(map(str, lineage.outputs)) == [str(model), str(own), str(shared)]
        assert lineage.of_stage("balance").reference == own.reference and not lineage.lost
        cost = cost_report(lineage.outputs, JUDGING)
        assert sorted(row["stage"] for row in cost["stages"]) == ["balance", "curate", "promote", "train"]
        assert cost["total"]["cpu_seconds"] == 90 * 3 + JUDGING.cpu_seconds
        models.append(model)
