"""The Fisher matrix: the verdict of the claim, and that its checks notice wrong matrices."""

import numpy as np

from curvebench.benchmarks.claims import notes_curvature
from curvebench.benchmarks.claims.notes_curvature import FISHER, PopulationDerivatives
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

GAUSS_NEWTON = "Gauss-Newton is Fisher"
LINEAR = "Gauss-Newton is the Hessian of linear logits"
EMPIRICAL = "the empirical Fisher matrix and its batches"
ADAM = "Adam's denominators"


def test_labels_of_the_population_do_not_give_the_fisher_matrix(monkeypatch):
    wrap(monkeypatch, PopulationDerivatives, "second_moment", lambda right, own, _: right(own, own.labels))
    assert_noticed(FISHER, 2, GAUSS_NEWTON)


def test_labels_of_the_model_do_not_give_the_empirical_one(monkeypatch):
    wrap(monkeypatch, PopulationDerivatives, "second_moment", lambda right, own, _: right(own, own.predicted))
    assert_noticed(FISHER, 2, EMPIRICAL, ADAM)


def test_logits_that_are_not_linear_are_noticed(monkeypatch):
    right = notes_curvature._classifier
    monkeypatch.setattr(notes_curvature, "_classifier", lambda random, linear: right(random, linear=False))
    assert_noticed(FISHER, 2, LINEAR)


def test_another_adam_is_noticed(monkeypatch):
    mutate(monkeypatch, "adam", beta2=lambda beta2: 0.99 * beta2)
    assert_noticed(FISHER, 3, ADAM)


def test_the_derivatives_of_a_linear_classifier_by_hand():
    """The gradient of the logits W x is (p - e_y) x^T, and their second derivative is 0."""
    model = notes_curvature._classifier(np.random.default_rng(1), linear=True)
    assert not model.logit_hessians.any()
    examples, classes, size = model.gradients.shape
    slopes = model.predicted[:, None, :] - np.eye(classes)
    features = model.gradients.reshape(examples, classes, classes, -1) / slopes[..., None]
    np.testing.assert_allclose(features, np.broadcast_to(features[:, :1, :1], features.shape))
    assert features.shape[-1] * classes == size
