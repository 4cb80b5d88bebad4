"""Skip-grams: corpora, negatives, the loss by PyTorch, and the closed form of its minimum."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads import skip_gram
from curvebench.workloads.skip_gram import TABLE, TOPICS, WORKLOADS, lower_bound, topics
from curvebench.workloads.workload import Problem, Workload
from tests.made_r_files import write_novels
from tests.workloads.cases import agreed_gradient, minibatch, random_of

OPS = numpy_ops()


def _instance(**given: Any) -> tuple[Workload, dict[str, Any], Problem]:
    (workload,) = WORKLOADS
    settings = workload.complete(given)
    return workload.at(settings), settings, workload.problem(settings, random_of(0))


def test_pairs_of_topics_have_the_probabilities_of_their_mixture():
    _, _, problem = _instance(vocabulary=6, train_examples=200_000)
    shares = topics(6, random_of(0)("corpus", shared=True))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    joint = np.mean([np.outer(share, share) for share in shares], axis=0)
    pairs = problem.splits["train"]["pairs"]
    found = np.bincount(6 * pairs[:, 0] + pairs[:, 1], minlength=36).reshape(6, 6) / len(pairs)
    np.testing.assert_allclose(found, joint, atol=5 * np.sqrt(0.25 / len(pairs)))
    assert np.abs(joint - np.outer(joint.sum(0), joint.sum(0))).max() > 0.01  # words of a pair are dependent


def test_topics_differ_around_the_law_of_zipf():
    logarithms = np.log(topics(4000, np.random.default_rng(0)))
    ranks = np.arange(1, 4001)
    slopes = [np.polyfit(np.log(ranks), row, 1)[0] for row in logarithms]
    np.testing.assert_allclose(slopes, -1.0, atol=0.2)
    assert len(logarithms) == TOPICS
    assert (logarithms - logarithms.mean(0)).std() == pytest.approx(2 * np.sqrt(0.9), rel=0.02)


def test_negatives_are_drawn_by_a_power_of_the_frequency():
    workload, settings, problem = _instance(vocabulary=6)
    frequencies = topics(6, random_of(0)("corpus", shared=True)).mean(axis=0) ** 0.75
    counts = np.bincount(problem.state["table"], minlength=6)
    np.testing.assert_allclose(counts / TABLE, frequencies / frequencies.sum(), atol=1 / TABLE)
    assert workload.noise is not None
    entries = workload.noise(settings, np.random.default_rng(0), 4000)["entries"]
    assert entries.shape == (4000, 5)
    assert 0 <= entries.min() < 10
    assert TABLE - 10 < entries.max() < TABLE


def test_pairs_of_novels_are_words_at_most_five_words_apart(novels_folder):
    skip_gram._words.cache_clear()
    sentence = "The cat, a CAT; sat on it. And a dog -- 3 dogs -- ate"
    write_novels(novels_folder, [[sentence] * (20 + number) for number in range(6)])
    _, _, problem = _instance(corpus="austen", vocabulary=4, train_examples=500, validation_examples=50)
    parts = [sentence.lower().split() * (20 + number) for number in range(6)]
    words = [["".join(c for c in word if c.isalpha()) for word in part] for part in parts]
    texts: dict[str, list[str]] = {"train": [], "validation": []}
    for part in ([word for word in part if word] for part in words):
        texts["train"] += part[: 9 * len(part) // 10]
        texts["validation"] += part[9 * len(part) // 10 :]
    names = sorted(Counter(texts["train"]).items(), key=lambda item: (-item[1], item[0]))[:4]
    ids = {word: number for number, (word, _) in enumerate(names)}
    assert {"a", "cat"} <= ids.keys()
    for split, fields in problem.splits.items():
        text = [ids[word] for word in texts[split] if word in ids]
        near = {(a, b) for i, a in enumerate(text) for b in text[max(0, i - 5) : i] + text[i + 1 : i + 6]}
        found = set(map(tuple, fields["pairs"].tolist()))
        assert found <= near
        assert len(found) > len(near) / 2
    frequencies = np.array([count for _, count in names]) ** 0.75
    counts = np.bincount(problem.state["table"])
    np.testing.assert_allclose(counts / TABLE, frequencies / frequencies.sum(), atol=1 / TABLE)
    skip_gram._words.cache_clear()


def test_missing_novels_say_how_to_get_them(novels_folder):
    (workload,) = WORKLOADS
    said = workload.missing(workload.complete({"corpus": "austen"}))
    assert said is not None
    assert "apt-get install r-cran-janeaustenr" in said
    assert workload.missing(workload.complete({})) is None


@pytest.mark.parametrize("noise", ["fresh", "fixed"])
def test_the_loss_is_that_of_embeddings_of_pytorch(noise: str):
    workload, settings, problem = _instance(noise=noise, vocabulary=9, width=4, negatives=3)
    batch, params = minibatch(problem), problem.parameters
    assert (workload.noise is not None) is (noise == "fresh")
    drawn = workload.noise(settings, np.random.default_rng(0), 40) if workload.noise is not None else {}
    tables = {name: torch.nn.Embedding.from_pretrained(torch.tensor(value)) for name, value in params.items()}
    rows = tables["inputs"](torch.tensor(batch["pairs"][:, 0]))
    negatives = problem.state["table"][{**batch, **drawn}["entries"]]
    words = np.concatenate([batch["pairs"][:, 1:], negatives], axis=1)
    scores = torch.einsum("nd,nkd->nk", rows, tables["outputs"](torch.tensor(words)))
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1.0
    expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / 40
    found = workload.loss(OPS, params, problem.state, batch, drawn)[0]
    assert float(found) == pytest.approx(expected.item(), rel=1e-12)


def test_rows_of_words_that_are_absent_have_no_gradient():
    workload, _, problem = _instance(noise="fixed")
    batch = minibatch(problem)
    gradient, _ = agreed_gradient(workload, problem, batch)
    seen = {
        "inputs": batch["pairs"][:, 0],
        "outputs": np.append(problem.state["table"][batch["entries"]], batch["pairs"][:, 1]),
    }
    for name, words in seen.items():
        assert np.array_equal(np.flatnonzero(gradient[name].any(axis=1)), np.unique(words))


def test_the_lower_bound_is_the_loss_at_the_shifted_mutual_information():
    """On a batch with each pair and each negative as often as expected, at scores log(a / b)."""
    vocabulary, negatives = 3, 2
    counts = np.array([[4, 2, 2], [2, 1, 1], [1, 1, 2]])
    joint = counts / 16
    negative = np.array([2, 1, 1]) / 4
    expected = negatives * joint.sum(axis=1, keepdims=True) * negative
    scores = np.log(joint / expected)
    params = {"inputs": scores, "outputs": np.eye(vocabulary)}
    pairs = np.repeat(list(np.ndindex(3, 3)), 16 * counts.ravel(), axis=0)
    batch = {"pairs": pairs, "entries": np.array(list(np.ndindex(4, 4)) * 16)}
    workload = _instance(vocabulary=vocabulary, width=vocabulary, noise="fixed")[0]
    state = {"table": np.array([0, 0, 1, 2])}
    found = workload.loss(OPS, params, state, batch, {})[0]
    assert float(found) == pytest.approx(lower_bound(joint, negative, negatives), rel=1e-12)
    for direction in np.random.default_rng(0).normal(size=(5, 3, 3)):
        moved = {**params, "inputs": scores + 0.01 * direction}
        assert workload.loss(OPS, moved, state, batch, {})[0] > found


def test_the_problem_states_a_lower_bound_of_topics_only(novels_folder):
    _, _, problem = _instance()
    shares = topics(500, random_of(0)("corpus", shared=True))
    negative = np.bincount(problem.state["table"], minlength=500) / TABLE
    joint = np.mean([np.outer(share, share) for share in shares], axis=0)
    assert problem.facts["lower_bound"] == pytest.approx(lower_bound(joint, negative, 5), rel=1e-12)
    assert lower_bound(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([1.0, 0.0]), 1) == 0.0
