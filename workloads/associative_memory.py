"""A matrix that stores facts, some of which are frequent and most of which are rare.

A fact joins the embedding e_k of a key with the embedding u_k of its answer. The logit of answer j for key k
is u_j . W e_k, where the embeddings are fixed random unit vectors, and W is the only parameter. In the
training split, the frequencies of facts obey Zipf's law. The validation split has each fact once, so that its
loss is mostly that of rare facts.

Source: Wang et al. 2025, "Muon outperforms Adam in tail-end associative memory learning" (arXiv 2509.26030).
"""

from __future__ import annotations

import numpy as np

from curvebench.spec.values import number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import Classifier, with_fixed_state
from curvebench.workloads.heavy_tailed import frequencies
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


def zipf_labels(facts: int, exponent: float, examples: int) -> np.ndarray:
    """Return the facts of `examples` examples, from frequent to rare, in the proportions of Zipf's law."""
    bounds = frequencies(facts, exponent).cumsum()
    return np.searchsorted(bounds[:-1], (np.arange(examples) + 0.5) / examples)


def _unit_vectors(count: int, width: int, generator: np.random.Generator) -> np.ndarray:
    """Draw unit vectors (count, width) with uniform directions."""
    vectors = generator.normal(size=(count, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw W with entries N(0, c^2), where c is the setting `start_scale`."""
    size = settings["width"], settings["width"]
    return {"W": generator.normal(scale=settings["start_scale"], size=size)}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw embeddings of keys and answers, different for each seed; the answers are in the model state."""
    facts, generator = settings["facts"], random("embeddings")
    keys, answers = (_unit_vectors(facts, settings["width"], generator) for _ in range(2))
    labels = {
        "train": zipf_labels(facts, settings["exponent"], settings["train_examples"]),
        "validation": np.arange(facts),
    }
    return Problem(
        parameters=_sample_parameters(settings, random("parameters")),
        splits={split: {"features": keys[part], "labels": part} for split, part in labels.items()},
        state={"answers": answers},
    )


def _logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """Return the logits u_j . W e_k, (examples, facts)."""
    return ops.linear(ops.linear(split["features"], params["W"]), ops.asarray(state["answers"]))


CLASSIFIER = Classifier(with_fixed_state(_logits))


def _evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the mean negative log-likelihood."""
    return {"loss": CLASSIFIER.loss(ops, params, state, split, {})[0]}


ASSOCIATIVE_MEMORY = Workload(
    name="associative_memory",
    description="matrix that stores 128 facts with Zipf's frequencies in 32 dimensions (d = 1024)",
    source="Wang et al. 2025, arXiv 2509.26030",
    metrics={
        "train_loss": Metric(
            "mean negative log-likelihood, with the frequencies of facts", "minimize", "nats"
        ),
        "validation_loss": Metric("mean negative log-likelihood of all facts alike", "minimize", "nats"),
    },
    settings={
        "batch_size": batch_size(),
        "facts": Setting(128, "number of facts", whole(2)),
        "width": Setting(32, "numbers of an embedding", whole()),
        "exponent": Setting(1.0, "a of the frequencies k^-a of facts; 0: all alike", number(0.0)),
        "start_scale": Setting(0.1, "standard deviation of the entries of the start", number(0.0)),
        "train_examples": Setting(1024, "examples of the training split", whole()),
    },
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"W": Role("weight")},
    problem=_problem,
    sample_parameters=_sample_parameters,
    **{**CLASSIFIER.fields, "evaluate": _evaluate},
    start=Start(4.873152086497406, 0.2326345915650378),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
)

WORKLOADS = (ASSOCIATIVE_MEMORY,)
