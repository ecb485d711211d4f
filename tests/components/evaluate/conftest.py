import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from tiny_store import GENRES, Ground, commit, copied, make_model, make_row, parquet

from yanmo.common.store.objects import open_store


@pytest.fixture
def ground(tmp_path):
    folder = tmp_path / "store"
    store = open_store(str(folder))
    train = [make_row(g, "train", i) for g in GENRES for i in range(40)]
    test = [make_row(g, "test", i) for g in GENRES for i in range(12)]
    valid = [make_row(g, "valid", i) for g in GENRES for i in range(3)]
    documents = commit(store, "curate", {"train-00000-of-00001.parquet": parquet(train)})
    evaluation_set = commit(
        store,
        "evaluation_set",
        {"test-00000-of-00001.parquet": parquet(test), "valid-00000-of-00001.parquet": parquet(valid)},
    )
    names = make_model(tmp_path / "model")
    model = commit(store, "train", copied(tmp_path / "model", names))
    return Ground(store, folder, documents, evaluation_set, model)
