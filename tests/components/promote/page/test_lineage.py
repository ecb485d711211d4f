"""The outputs that a verdict rests on: each once, and none of the models that a training went on from."""

from tiny_store import commit

from yanmo.promote.page.lineage import trace


def test_a_model_that_goes_on_every_night_has_its_own_lineage_alone(stage):
    def made(name, **inputs):
        return commit(stage.store, name, {"file": name}, inputs=inputs, options={"night": len(models)})

    models = []
    shared = made("curate", sources={"content_digest": "d" * 64, "uri": "file:///data/a.jsonl"})
    for _ in range(3):
        own = made("balance", documents=shared)
        model = made("train", documents=own, documents_2=shared, model=models[-1] if models else None)
        lineage = trace(model)
        assert list(map(str, lineage.outputs)) == [str(model), str(own), str(shared)]
        assert lineage.of_stage("balance").reference == own.reference and not lineage.lost
        models.append(model)
