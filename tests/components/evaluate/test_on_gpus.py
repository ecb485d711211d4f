"""With GPUs everything that is asked of a model is asked of the copies on them: scores, samples, answers.

There is no GPU here: copies on the CPU stand in for theirs, and the model that stays behind is spoilt, so
that whoever still reads it gives nothing.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from yanmo.common.errors import EnvironmentFault
from yanmo.evaluate import document_bits as scoring
from yanmo.evaluate.document_bits import load_model, on_devices, ran_on, score
from yanmo.evaluate.documents.reading import read_split
from yanmo.evaluate.tasks.asking import answer_all
from yanmo.evaluate.writing.samples import SampleOptions, write_samples
from yanmo.formats.chat_tokens import Turn
from yanmo.model.generation.choosing import nucleus

SAMPLES = SampleOptions(number=3, most_tokens=24, temperature=0.9, top_p=0.9, seed=3)


@pytest.fixture
def spoil(monkeypatch):
    """A loaded model whose copies on `number` GPUs are right and which itself gives NaN."""

    def make(output, number):
        monkeypatch.setattr(
            scoring, "on_devices", lambda whole, device: [copy.deepcopy(whole) for _ in range(number)]
        )
        loaded = load_model(output, "cuda")
        assert len(loaded.on_gpus) == number
        with torch.no_grad():
            for parameter in loaded.model.parameters():
                parameter.fill_(float("nan"))
        return loaded

    return make


@pytest.mark.parametrize("gpus", [1, 2])
def test_scores_and_samples_come_from_the_copies(ground, spoil, gpus):
    documents = read_split(ground.evaluation_set, "test")[:12]
    there, here = spoil(ground.model, gpus), load_model(ground.model)
    bits, expected = (score(m, documents, with_tag=True, workers=2) for m in (there, here))
    np.testing.assert_allclose(bits.bits, expected.bits, atol=1e-3)
    genres = ("诗", "词", "文")
    assert write_samples(there, genres, SAMPLES, 2) == write_samples(here, genres, SAMPLES, 2)


def test_answers_in_words_come_from_the_copies(ground, chat_model, spoil):
    asked = [[Turn("user", text)] for text in ("明月几时有", "青天", "把酒问青天明", "明月几时无")]
    answers = [answer_all(m, asked, 6, workers=2) for m in (spoil(chat_model, 2), load_model(chat_model))]
    assert answers[0] == answers[1] and any(answers[0])


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9, 0.999])
def test_the_nucleus_is_the_same_set_on_a_device_as_on_the_cpu(top_p):
    # What `nucleus` does off the CPU is torch alone, so it runs here too.
    class Elsewhere(torch.Tensor):
        is_cpu = False

    logits = torch.randn(64, 500, generator=torch.Generator().manual_seed(0))
    probabilities = torch.softmax(3 * logits, -1).double()
    there = nucleus(probabilities.as_subclass(Elsewhere), top_p).as_subclass(torch.Tensor)
    here = nucleus(probabilities, top_p)
    assert torch.equal(probabilities < there, probabilities < here)


def test_every_gpu_counts_for_the_cost_and_the_cpu_as_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert ran_on("auto") == {"device": "cuda", "ranks": 4}
    assert ran_on("cpu") == {"device": "cpu", "ranks": 1}


def test_a_gpu_that_is_not_there_is_a_matter_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(EnvironmentFault, match="this machine shows no GPU to torch; use one that does"):
        on_devices(torch.nn.Linear(1, 1), "cuda")
