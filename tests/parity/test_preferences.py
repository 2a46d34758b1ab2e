"""DPO, ORPO, distillation and sentence pairs against torch: losses and gradients for the same logits or vectors."""

import mlx.core as mx
import numpy as np
import torch
import torch.nn.functional as F

from zoo.training.loss import IGNORED
from zoo_tune.objectives.contrastive import info_nce
from zoo_tune.objectives.distill import divergence
from zoo_tune.objectives.dpo import dpo_loss
from zoo_tune.objectives.orpo import orpo_loss
from zoo_tune.objectives.preferences import answer_lengths, answer_logprobs

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(6, 7, 11)).astype(np.float32) * 2  # three pairs, the better answers first
TARGETS = np.where(DRAW.random((6, 7)) < 0.5, DRAW.integers(0, 11, (6, 7)), IGNORED)
TARGETS[:, -1] = 3  # no answer is empty
REFERENCE = DRAW.normal(size=(3, 2)).astype(np.float32) * 5 - 20


def same(ours, theirs, array):
    """A loss and its gradient by an array, computed by both."""
    loss, gradient = mx.value_and_grad(ours)(mx.array(array))
    given = torch.tensor(array, dtype=torch.float64, requires_grad=True)
    expected = theirs(given)
    expected.backward()
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(np.array(gradient), given.grad.numpy(), atol=1e-6)


def torch_logprobs(logits):
    """The sum of the targets' log-probabilities of each row, and their number, (3, 2)."""
    targets = torch.tensor(TARGETS)
    chosen = F.log_softmax(logits, -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    kept = targets != IGNORED
    return (chosen * kept).sum(-1).reshape(3, 2), kept.sum(-1).reshape(3, 2)


def test_dpo():
    def ours(logits):
        logprobs = answer_logprobs(lambda inputs: logits, mx.array(TARGETS), mx.array(TARGETS))
        return dpo_loss(logprobs, mx.array(REFERENCE), 0.1)

    def theirs(logits):
        policy, reference = torch_logprobs(logits)[0], torch.tensor(REFERENCE, dtype=torch.float64)
        better, worse = (policy[:, side] - reference[:, side] for side in (0, 1))
        return -F.logsigmoid(0.1 * better - 0.1 * worse).mean()

    same(ours, theirs, LOGITS)


def test_orpo():
    def ours(logits):
        targets = mx.array(TARGETS)
        return orpo_loss(
            answer_logprobs(lambda inputs: logits, targets, targets) / answer_lengths(targets), 0.2
        )

    def theirs(logits):
        sums, counts = torch_logprobs(logits)
        likelihood = (sums / counts).exp()
        odds = likelihood / (1 - likelihood)
        ratio = odds[:, 0] / odds[:, 1]
        return (-likelihood[:, 0].log() - 0.2 * torch.sigmoid(ratio.log()).log()).mean()

    same(ours, theirs, LOGITS)


def test_distillation():
    teacher = DRAW.normal(size=LOGITS.shape).astype(np.float32)

    def theirs(logits):
        kept = torch.tensor(TARGETS) != IGNORED
        ours = F.log_softmax(logits[kept] / 3, -1)
        return 9 * F.kl_div(
            ours, F.softmax(torch.tensor(teacher).double()[kept] / 3, -1), reduction="batchmean"
        )

    same(lambda logits: divergence(mx.array(teacher), logits, mx.array(TARGETS), 3.0), theirs, LOGITS)


def test_sentence_pairs():
    vectors = DRAW.normal(size=(10, 8)).astype(np.float32)  # four anchors, four positives, two negatives

    def theirs(given):
        scores = F.cosine_similarity(given[:4, None], given[None, 4:], dim=-1) / 0.05
        right = torch.arange(4)
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores[:, :4].T, right)) / 2

    same(lambda given: info_nce(given, mx.arange(4), 0.05), theirs, vectors)
