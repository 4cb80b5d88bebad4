"""Word embeddings by skip-grams with negative sampling, on topics with known probabilities or on novels.

A pair is a word w and a word c in its context. Each word has an input row v_w and an output row u_c. The loss
of a pair with negatives n_1, ..., n_k, words that are drawn regardless of w, is

    -log s(u_c . v_w) - sum_i log s(-u_(n_i) . v_w),    s the logistic function

(Mikolov et al. 2013, "Distributed representations of words and phrases and their compositionality"). The
gradient of a minibatch is zero in the rows of all words that the minibatch lacks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from curvebench.spec.values import choice, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.austen import AUSTEN, read_austen
from curvebench.workloads.workload import (
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    require_batch,
)

TOPICS = 10  # topics of the synthetic corpus
RELEVANCE = 2.0  # standard deviation of the logarithm of a word's share in a topic, in addition to its rank's
WINDOW = 5  # largest distance of a context word from its word in a novel
POWER = 0.75  # negatives are drawn with probabilities proportional to this power of the frequency of a word
TABLE = 10_000  # entries of the table from which negatives are drawn
SPLITS = ("train", "validation")


class Corpus(NamedTuple):
    """Pairs of each split, (examples, 2), and frequencies of words.

    Args:
        pairs: the pairs by split: a word, and a word of its context, as numbers.
        frequencies: numbers that are proportional to the frequency of each word, (vocabulary,).
        joint: probabilities of pairs, (vocabulary, vocabulary); None if they are not known.
    """

    pairs: Mapping[str, np.ndarray]
    frequencies: np.ndarray
    joint: np.ndarray | None


def topics(vocabulary: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the probabilities of words in each topic, (TOPICS, vocabulary).

    The share of the word of rank r is proportional to e^z / r, where z ~ N(0, RELEVANCE^2) differs
    between topics, so that words have frequencies like those of Zipf's law.
    """
    logarithms = RELEVANCE * generator.normal(size=(TOPICS, vocabulary)) - np.log(
        np.arange(1, vocabulary + 1)
    )
    shares = np.exp(logarithms)
    return shares / shares.sum(axis=1, keepdims=True)


def lower_bound(joint: np.ndarray, negative: np.ndarray, negatives: int) -> float:
    """Return a number that the expected loss of a pair exceeds, whatever the width of the embeddings.

    The score x of a word and a context word contributes a log(1 + e^-x) + b log(1 + e^x), where a is the
    probability of the pair, and b the expected number of the same pair as a negative. The minimum is at
    x = log(a / b) (Levy and Goldberg 2014, "Neural word embedding as implicit matrix factorization").

    Args:
        joint: probabilities of pairs, (vocabulary, vocabulary).
        negative: probabilities of negatives, (vocabulary,).
        negatives: number k of negatives of a pair.
    """
    expected = negatives * joint.sum(axis=1, keepdims=True) * negative
    total = joint + expected
    parts = [(part[part > 0], total[part > 0]) for part in (joint, expected)]
    return float(sum(np.sum(part * np.log(both / part)) for part, both in parts))


def _from_topics(settings: Settings, random: Random) -> Corpus:
    """Draw a topic for each pair, and both words from the topic."""
    generator = random("corpus", shared=True)
    shares = topics(settings["vocabulary"], generator)
    bounds, pairs = shares.cumsum(axis=1), {}
    for split in SPLITS:
        drawn = generator.uniform(size=(settings[f"{split}_examples"], 2))
        topic = generator.integers(TOPICS, size=len(drawn))
        words = [np.searchsorted(bounds[z], uniform) for z, uniform in zip(topic, drawn, strict=True)]
        pairs[split] = np.minimum(words, settings["vocabulary"] - 1)  # a last bound may be rounded below 1
    return Corpus(pairs, shares.mean(axis=0), shares.T @ shares / TOPICS)


@lru_cache(maxsize=1)  # the novels are divided once, and shared by the seeds of a job
def _words() -> tuple[list[str], list[str]]:
    """Return the words of the first nine tenths of each novel, and those of the last tenths."""
    parts: tuple[list[str], list[str]] = [], []
    for lines in read_austen().values():
        words = re.findall("[a-z]+", " ".join(lines).lower())
        edge = 9 * len(words) // 10
        parts[0].extend(words[:edge])
        parts[1].extend(words[edge:])
    return parts


def _from_novels(settings: Settings, random: Random) -> Corpus:
    """Draw positions in the novels, and another word at most WINDOW words away from each."""
    train = Counter(_words()[0])
    vocabulary = sorted(train, key=lambda word: (-train[word], word))[: settings["vocabulary"]]
    ids = {word: number for number, word in enumerate(vocabulary)}
    generator, pairs = random("corpus", shared=True), {}
    for split, words in zip(SPLITS, _words(), strict=True):
        text = np.array([ids[word] for word in words if word in ids])
        count = settings[f"{split}_examples"]
        positions = generator.integers(WINDOW, len(text) - WINDOW, size=count)
        offsets = generator.integers(1, WINDOW + 1, size=count) * generator.choice([-1, 1], size=count)
        pairs[split] = text[np.stack([positions, positions + offsets], axis=1)]
    return Corpus(pairs, np.array([train[word] for word in vocabulary], float), None)


CORPORA = {"topics": _from_topics, "austen": _from_novels}


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw both embeddings with entries N(0, 1 / width)."""
    size = (settings["vocabulary"], settings["width"])
    return {name: generator.normal(scale=size[1] ** -0.5, size=size) for name in ("inputs", "outputs")}


def _draw(settings: Settings, generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Draw the entries of the table that are the negatives of each pair, (count, negatives)."""
    return {"entries": generator.integers(TABLE, size=(count, settings["negatives"]))}


def _problem(settings: Settings, random: Random) -> Problem:
    """Return pairs with fixed negatives, the same for all seeds, and random initial parameters.

    The model state has the table of negatives, in which words repeat in proportion to their probabilities.
    """
    corpus = CORPORA[settings["corpus"]](settings, random)
    bounds = (corpus.frequencies**POWER).cumsum()
    table = np.searchsorted(bounds / bounds[-1], (np.arange(TABLE) + 0.5) / TABLE)
    generator = random("negatives of splits", shared=True)
    facts = {}
    if corpus.joint is not None:
        negative = np.bincount(table, minlength=settings["vocabulary"]) / TABLE
        facts["lower_bound"] = lower_bound(corpus.joint, negative, settings["negatives"])
    return Problem(
        parameters=_sample_parameters(settings, random("parameters")),
        splits={
            name: {"pairs": pairs, **_draw(settings, generator, len(pairs))}
            for name, pairs in corpus.pairs.items()
        },
        state={"table": table},
        facts=facts,
    )


def _objective(ops: Ops, params: Arrays, state: Arrays, fields: Arrays) -> Array:
    """Return the mean loss of pairs."""
    word, context = (fields["pairs"][:, number] for number in (0, 1))
    rows = ops.take(params["inputs"], word, 0)
    negatives = ops.take(params["outputs"], ops.take(state["table"], fields["entries"], 0), 0)
    positive = ops.sum(ops.take(params["outputs"], context, 0) * rows, axis=-1)
    negative = ops.matmul(negatives, rows[:, :, None])
    return -(ops.sum(ops.log_sigmoid(positive)) + ops.sum(ops.log_sigmoid(-negative))) / rows.shape[0]


def _loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    """Return the loss of a step, whose negatives replace those of the pairs."""
    return _objective(ops, params, state, {**batch, **noise}), state, {}


SKIP_GRAM = Workload(
    name="skip_gram",
    description="embeddings of 500 words by skip-grams with 5 negatives, on pairs of 10 topics (d = 32000)",
    source="Mikolov et al. 2013; Levy and Goldberg 2014",
    metrics={
        f"{split}_loss": Metric(f"loss of a pair of the {split} split with its negatives", "minimize", "nats")
        for split in SPLITS
    },
    settings={
        "batch_size": batch_size(256),
        "corpus": Setting(
            "topics",
            "topics: pairs with known probabilities; austen: the novels of Jane Austen",
            choice(*CORPORA),
        ),
        "negatives": Setting(5, "negatives of a pair", whole()),
        "noise": Setting(
            "fresh",
            "fresh: each step draws new negatives; fixed: each pair keeps its own, so that the full batch "
            "has a deterministic loss",
            choice("fresh", "fixed"),
        ),
        "vocabulary": Setting(500, "words; in novels the most frequent", whole(2)),
        "width": Setting(32, "units of an embedding", whole()),
        "train_examples": Setting(20_000, "pairs of the training split", whole()),
        "validation_examples": Setting(5_000, "pairs of the validation split", whole()),
    },
    dtype="float32",
    shared_data=True,
    roles=lambda settings: {
        name: Role("embedding", layer) for layer, name in enumerate(("inputs", "outputs"))
    },
    problem=_problem,
    sample_parameters=_sample_parameters,
    loss=_loss,
    evaluate=lambda ops, params, state, split: {"loss": _objective(ops, params, state, split)},
    noise=_draw,
    start=Start(4.182033840136372, 0.05251960543481137),
    missing=lambda settings: AUSTEN.missing() if settings["corpus"] == "austen" else None,
    files=lambda settings: AUSTEN.paths() if settings["corpus"] == "austen" else (),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
    bind=lambda settings: BY_NOISE[settings["noise"]],
)
BY_NOISE: dict[str, Workload] = {"fresh": SKIP_GRAM, "fixed": replace(SKIP_GRAM, noise=None)}

WORKLOADS = (SKIP_GRAM,)
