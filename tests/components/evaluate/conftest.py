import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from tiny_chats import commit_chat_model, make_chat_tokenizer
from tiny_store import make_ground


@pytest.fixture
def ground(tmp_path):
    return make_ground(tmp_path / "store", tmp_path / "model")


@pytest.fixture(scope="session")
def chat_tokenizer(tmp_path_factory):
    """A tokenizer with the marks of chats."""
    return make_chat_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture
def chat_model(ground, chat_tokenizer, tmp_path):
    """A chat model as the latest output of train in the store of `ground`."""
    return commit_chat_model(ground.store, chat_tokenizer, tmp_path / "chat")
