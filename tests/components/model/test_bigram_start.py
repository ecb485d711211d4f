"""The bigram start: the sparse products equal the dense table's, and the decoder knows the bigrams."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from yanmo.model.bigram_start import _LogRatio, count_bigrams, set_bigram_start
from yanmo.model.decoder import Decoder, DecoderConfig

V = 40


def text() -> np.ndarray:
    """A Markov chain in which each token has three likely successors."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, V, (V, 3))
    tokens = [0]
    for _ in range(20000):
        tokens.append(int(table[tokens[-1], rng.integers(3)]) if rng.random() < 0.9 else int(rng.integers(V)))
    return np.array(tokens)


def dense(tokens: np.ndarray) -> np.ndarray:
    """log p(y|x)/p(y) with absolute discounting, by the formula."""
    counts = np.zeros((V, V))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    u = counts.sum(0) + 0.5
    u /= u.sum()
    n = counts.sum(1, keepdims=True)
    left = np.where(n > 0, 0.75 * (counts > 0).sum(1, keepdims=True) / np.maximum(n, 1), 1.0)
    return np.log((np.maximum(counts - 0.75, 0) / np.maximum(n, 1) + left * u) / u)


def test_the_sparse_products_equal_the_dense_ones():
    tokens = text()[:300]  # some tokens never occur
    matrix = _LogRatio(count_bigrams([(tokens[:-1], tokens[1:])], V), V)
    table = torch.from_numpy(dense(tokens))
    x = torch.randn(V, 5, dtype=torch.float64)
    assert (matrix.times(x) - table @ x).abs().max() < 1e-12
    assert (matrix.transposed_times(x) - (table * matrix.weight).T @ x).abs().max() < 1e-11


def started(width: int, tokens: np.ndarray) -> Decoder:
    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    config = DecoderConfig(
        vocab_size=V, hidden_size=width, intermediate_size=16, max_position_embeddings=8, **shape
    )
    decoder = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    decoder.initialize(generator, 1.0)
    set_bigram_start(decoder, count_bigrams([(tokens[:-1], tokens[1:])], V), generator, 1.0)
    return decoder


@torch.no_grad()
def bits(decoder: Decoder, tokens: np.ndarray) -> float:
    ids = torch.from_numpy(tokens[:4001].reshape(1, -1))
    segments = torch.arange(4000)[None] // 8
    logits = decoder(ids[:, :-1], segments)[0]
    return torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item() / np.log(2)


def test_a_started_decoder_is_nearly_as_good_as_the_bigrams_themselves():
    tokens = text()
    table = dense(tokens)
    u = np.bincount(tokens[1:], minlength=V) / (len(tokens) - 1)
    best = -np.mean((table + np.log(u))[tokens[:4000], tokens[1:4001]]) / np.log(2)
    unigram = -np.mean(np.log2(u[tokens[1:4001]]))
    found = bits(started(41, tokens), tokens)
    assert unigram - best > 2
    assert found < best + 0.1 * (unigram - best)
    assert bits(started(12, tokens), tokens) < unigram - 0.2


def test_the_same_seed_gives_the_same_start():
    tokens = text()[:2000]
    a, b = started(12, tokens), started(12, tokens)
    assert torch.equal(a.lm_head.weight, b.lm_head.weight)
    assert abs(a.model.embed_tokens.weight.std().item() - 1.0) < 0.2


def test_a_model_wider_than_its_vocabulary_starts_as_well():
    tokens = text()
    assert bits(started(V + 24, tokens), tokens) == pytest.approx(
        bits(started(V + 1, tokens), tokens), abs=0.05
    )


def test_a_text_without_a_second_token_starts_finite():
    decoder = started(12, text()[:1])
    assert torch.isfinite(decoder.lm_head.weight).all()
    assert torch.isfinite(decoder.model.embed_tokens.weight).all()


def weights(decoder: Decoder) -> dict[str, NDArray[np.float32]]:
    return {name: value.detach().numpy() for name, value in decoder.named_parameters()}


def distance(a: dict[str, NDArray[np.float32]], b: dict[str, NDArray[np.float32]]) -> float:
    """The largest relative distance of a tensor."""
    return max(
        float(np.linalg.norm(a[k].astype(float) - b[k]) / max(np.linalg.norm(b[k].astype(float)), 1e-30))
        for k in a
    )


CODE_PATHS = {
    "this processor's": {},
    "none of its vector units": {
        "MKL_CBWR": "COMPATIBLE",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "AVX2": {
        "MKL_CBWR": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
}

START = f"""
import sys
import numpy as np
import torch
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_bigram_start import started, text, weights
np.savez(sys.argv[1], **weights(started(24, text())))
"""


@pytest.mark.process
def test_the_code_paths_of_other_processors_give_the_same_start(tmp_path: Path):
    found = []
    for number, switches in enumerate(CODE_PATHS.values()):
        path = tmp_path / f"{number}.npz"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MKL_", "ATEN_", "ONEDNN_"))}
        env |= {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **switches}
        subprocess.run([sys.executable, "-c", START, str(path)], env=env, check=True)
        with np.load(path) as arrays:
            found.append(dict(arrays))
    for a, b in itertools.combinations(found, 2):
        assert distance(a, b) < 1e-8  # measured: 3e-11; fp32 rounds to 6e-8, so nearly all are equal


def other_basis(vectors: torch.Tensor, values: torch.Tensor, turn: np.random.Generator) -> torch.Tensor:
    """Orthogonal, to take singular vectors to others that a library may give: signs, and turns where singular
    values are equal."""
    signs = torch.from_numpy(turn.choice([-1.0, 1.0], len(values)))
    turned = torch.diag(signs)
    for i in range(len(values) - 1):
        if float(values[i] - values[i + 1]) < 1e-12 * float(values[0]):
            c, s = np.cos(angle := turn.uniform(0, 7)), np.sin(angle)
            pair = torch.tensor([[c, -s], [s, c]], dtype=turned.dtype)
            turned[:, i : i + 2] = turned[:, i : i + 2] @ pair
    return turned.to(vectors.dtype)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([3, 12, 24, V, V + 24]), st.integers(1, 3000))
def test_any_basis_that_a_library_may_choose_gives_the_same_start(seed: int, width: int, length: int):
    tokens = text()[:length]
    expected = weights(started(width, tokens))
    turn, qr, svd = np.random.default_rng(seed), torch.linalg.qr, torch.linalg.svd

    def turned_qr(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, r = qr(matrix)
        signs = torch.from_numpy(turn.choice([-1.0, 1.0], q.shape[1])).to(q.dtype)
        return q * signs, signs[:, None] * r

    def turned_svd(
        matrix: torch.Tensor, full_matrices: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        left, values, right = svd(matrix, full_matrices=full_matrices)
        basis = other_basis(left, values, turn)
        return left @ basis, values, basis.T @ right

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.linalg, "qr", turned_qr)
        patch.setattr(torch.linalg, "svd", turned_svd)
        assert distance(weights(started(width, tokens)), expected) < 1e-6


def test_openblas_gives_the_same_start_as_torch_s_library(monkeypatch: pytest.MonkeyPatch):
    expected = weights(started(24, text()))  # MKL's, on x86-64

    def by_numpy(function):  # whose wheels bring OpenBLAS
        return lambda x, **options: tuple(
            torch.from_numpy(np.ascontiguousarray(part)) for part in function(x.numpy(), **options)
        )

    monkeypatch.setattr(torch.linalg, "qr", by_numpy(np.linalg.qr))
    monkeypatch.setattr(torch.linalg, "svd", by_numpy(np.linalg.svd))
    assert distance(weights(started(24, text())), expected) < 1e-8
