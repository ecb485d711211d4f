"""The loss of frequent tokens apart: on average it is the whole one, its gradient too."""

import pytest
import torch
import torch.nn.functional as F

from yanmo.model.frequent_loss import Apart, frequent_cross_entropy
from yanmo.model.loss import linear_cross_entropy

N, D, V, COUNT, SHARE = 900, 16, 90, 20, 0.1


def drawn_case(rows: int = V) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, weights, targets, and token ids in an order of frequency."""
    torch.manual_seed(0)
    order = torch.randperm(V)
    targets = order[(torch.rand(N) ** 3 * V).long()]
    return 2 * torch.randn(N, D), torch.randn(rows, D), targets, order


def apart_by(order: torch.Tensor, targets: torch.Tensor, is_drawn: torch.Tensor, share: float) -> Apart:
    """What the positions compute if these are drawn."""
    frequent = torch.isin(targets, order[:COUNT])
    whole = (~frequent | is_drawn).nonzero()[:, 0]
    near = (frequent & ~is_drawn).nonzero()[:, 0]
    return Apart(order, near, whole, frequent[whole], COUNT, share)


def value_and_gradients(hidden, weight, loss_of) -> list[torch.Tensor]:
    h, w = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = loss_of(h, w)
    (2 * loss).backward()
    return [loss.detach(), h.grad, w.grad]


@pytest.mark.parametrize("rows", [V, V + 7])
def test_its_expected_value_and_gradient_are_those_of_the_whole_loss(rows):
    """Each position is drawn by itself, so the mean over all draws is that of none and all, by share."""
    hidden, weight, targets, order = drawn_case(rows)
    every, none = torch.ones(N, dtype=torch.bool), torch.zeros(N, dtype=torch.bool)
    of_all, of_none = (
        value_and_gradients(
            hidden,
            weight,
            lambda h, w, d=d: frequent_cross_entropy(
                h, w, targets, 1 / N, apart_by(order, targets, d, SHARE)
            ),
        )
        for d in (every, none)
    )
    expected = value_and_gradients(hidden, weight, lambda h, w: F.cross_entropy(h @ w.T, targets))
    for drawn, left, whole in zip(of_all, of_none, expected, strict=True):
        torch.testing.assert_close(SHARE * drawn + (1 - SHARE) * left, whole, atol=2e-6, rtol=2e-4)


def test_with_all_positions_drawn_it_is_the_whole_loss():
    hidden, weight, targets, order = drawn_case()
    apart = apart_by(order, targets, torch.ones(N, dtype=torch.bool), 1.0)
    ours = value_and_gradients(hidden, weight, lambda h, w: frequent_cross_entropy(h, w, targets, 0.5, apart))
    theirs = value_and_gradients(hidden, weight, lambda h, w: linear_cross_entropy(h, w, targets, 0.5))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_positions_near_see_no_other_token():
    hidden, weight, targets, order = drawn_case()
    apart = apart_by(order, targets, torch.zeros(N, dtype=torch.bool), SHARE)
    near = Apart(order, apart.near, apart.near[:0], apart.drawn[:0], COUNT, SHARE)
    _, of_hidden, of_weight = value_and_gradients(
        hidden, weight, lambda h, w: frequent_cross_entropy(h, w, targets, 1.0, near)
    )
    assert not of_weight[order[COUNT:]].any() and of_weight[order[:COUNT]].any()
    expected = value_and_gradients(
        hidden,
        weight,
        lambda h, w: F.cross_entropy(
            h[apart.near] @ w[order[:COUNT]].T,
            torch.argsort(order)[targets[apart.near]],
            reduction="sum",
        ),
    )
    torch.testing.assert_close(of_hidden[apart.near], expected[1][apart.near], atol=1e-4, rtol=1e-4)


def test_bf16_and_a_frozen_head():
    hidden, weight, targets, order = drawn_case()
    apart = apart_by(order, targets, torch.rand(N) < 0.5, 0.5)
    h, w = (x.bfloat16().requires_grad_() for x in (hidden / 2, weight))
    frequent_cross_entropy(h, w, targets, 1 / N, apart).backward()
    h2, w2 = (x.detach().float().requires_grad_() for x in (h, w))
    loss = frequent_cross_entropy(h2, w2, targets, 1 / N, apart)
    loss.backward()
    for ours, theirs in ((h.grad, h2.grad), (w.grad, w2.grad)):
        assert (ours.float() - theirs).abs().max() < 2e-2 * theirs.abs().max()
    h3 = h2.detach().requires_grad_()
    frequent_cross_entropy(h3, w2.detach(), targets, 1 / N, apart).backward()
    assert torch.equal(h3.grad, h2.grad)
    with torch.no_grad():
        assert frequent_cross_entropy(h3, w2, targets, 1 / N, apart).item() == loss.item()


def test_logits_far_apart_stay_finite():
    """All of the probability is on rare tokens: more than fp32 can tell from none for the frequent ones."""
    hidden, weight = torch.ones(2, 1), torch.tensor([[0.0], [300.0], [0.0]])
    order = torch.tensor([0, 2, 1])
    apart = Apart(order, torch.tensor([1]), torch.tensor([0]), torch.tensor([True]), 2, 0.1)
    loss, *gradients = value_and_gradients(
        hidden, weight, lambda h, w: frequent_cross_entropy(h, w, torch.tensor([0, 2]), 1.0, apart)
    )
    assert torch.isfinite(loss) and all(torch.isfinite(g).all() for g in gradients)
    assert loss.item() > 300
