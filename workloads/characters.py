"""A transformer that predicts the next character of Jane Austen's novels.

An example is a piece of text of n + 1 characters: the network reads the first n, and predicts each character
after them from all characters before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from curvebench.spec.values import whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.austen import AUSTEN, NOVELS, read_austen
from curvebench.workloads.classification import Parameter, log_likelihoods
from curvebench.workloads.data import DataDamaged
from curvebench.workloads.networks.transformer import QKV_MATRICES, Transformer, TransformerLayers
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

# All characters of the novels; a character's number is its place here.
SYMBOLS = "\n !\"&'()*,-.0123456789:;?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz£"
# The last novel is the validation split, and all others are the training split.
TITLES = {"train": [*NOVELS][:-1], "validation": [*NOVELS][-1:]}
HEAD_WIDTH = 16  # units of an attention head


@dataclass(frozen=True, kw_only=True)
class CharacterTransformer(Transformer):
    """Sizes of a causal transformer, with an embedding of characters and one of positions.

    Args:
        width: units of a token.
        depth: number of blocks of attention and MLP.
        context: number of characters that the network reads.
    """

    width: int
    depth: int
    context: int

    @property
    def patch(self) -> tuple[int, ...]:
        """Shape of the embedding of a character, as a weight of one-hot vectors."""
        return self.width, self.classes

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Numbers of units of a token before and after each block, which are all equal."""
        return ((self.width, self.width),) * self.depth

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters: embeddings with entries N(0, 1 / width), then those of blocks, last norm and head."""
        others = {name: value for name, value in super().parameters.items() if not name.startswith("patch_")}
        return {
            "characters": self._embedding(self.classes),
            "positions": self._embedding(self.context),
            **others,
        }

    def _embedding(self, rows: int) -> Parameter:
        """Return an embedding (rows, width)."""
        shape = rows, self.width

        def draw(generator: np.random.Generator) -> np.ndarray:
            return generator.normal(scale=self.width**-0.5, size=shape)

        return Parameter(shape, Role("embedding"), draw)


def _network(settings: Settings) -> CharacterTransformer:
    """Return the network that the settings describe."""
    return CharacterTransformer(
        classes=len(SYMBOLS),
        qkv_matrices=settings["qkv_matrices"],
        width=settings["width"],
        depth=settings["depth"],
        context=settings["context"],
    )


@lru_cache(maxsize=2)  # the novels of both splits are converted once, and shared by the seeds of a job
def _numbers(split: str, paths: tuple[Path, ...]) -> np.ndarray:
    """Return the numbers of all characters of a split, (characters,).

    Args:
        split: name of the split.
        paths: paths of the files of novels, by which results are cached.

    Raises:
        DataDamaged: if the novels have other characters than `SYMBOLS`.
    """
    novels = read_austen()
    text = "\n".join("\n".join(novels[title]) for title in TITLES[split])
    if unknown := set(text) - set(SYMBOLS):
        raise DataDamaged(f"{paths[-1]}: the novels have {min(unknown)!r}, which Jane Austen's do not have")
    return np.array([*map(SYMBOLS.index, text)], np.int64)


def _problem(settings: Settings, random: Random) -> Problem:
    """Return pieces of the novels that start at random characters, the same for all seeds."""
    paths, splits = tuple(AUSTEN.required().values()), {}
    for split in TITLES:
        numbers, generator = _numbers(split, paths), random(split, shared=True)
        starts = generator.integers(len(numbers) - settings["context"], size=settings[f"{split}_examples"])
        pieces = numbers[starts[:, None] + np.arange(settings["context"] + 1)]
        splits[split] = {"tokens": pieces[:, :-1], "labels": pieces[:, 1:]}
    return Problem(_network(settings).sample(random("parameters")), splits)


def _logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays, noise: Arrays) -> Array:
    """Return the outputs for each character, (examples, context, symbols)."""
    layers = TransformerLayers(ops, params, HEAD_WIDTH)
    x = ops.take(params["characters"], split["tokens"], 0) + params["positions"]
    block = 1
    while f"block{block}_mixed_weight" in params:
        x = layers.block(x, block, causal=True)
        block += 1
    return layers.linear(layers.norm(x, "last"), "head")


def _cross_entropy(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return the mean negative log-likelihood of a character."""
    log_probabilities = ops.log_softmax(_logits(ops, params, {}, split, {}), axis=-1)
    return -ops.mean(log_likelihoods(ops, log_probabilities, split["labels"]))


def _check(settings: Settings) -> None:
    """Check that a token divides into heads, and that a minibatch is not larger than the training split."""
    if settings["width"] % HEAD_WIDTH:
        raise ValueError(f"width = {settings['width']} is not a multiple of {HEAD_WIDTH}, an attention head")
    require_batch(settings, settings["train_examples"])


def _with_likelihood(workload: Workload, settings: Settings) -> Workload:
    """Return the workload with the likelihood of an example, whose characters the loss averages."""
    return replace(workload, likelihood=Likelihood(_logits, "categorical", 1.0 / settings["context"]))


_UNBOUND = Workload(
    name="austen_transformer",
    description="transformer that predicts characters of Jane Austen, 2 blocks of width 64 (d = 111569)",
    source="Vaswani et al. 2017; Radford et al. 2019 (norms before attention and MLP)",
    metrics={
        f"{split}_loss": Metric(
            f"mean negative log-likelihood of a character on the {split} split", "minimize", "nats"
        )
        for split in TITLES
    },
    settings={
        "batch_size": batch_size(16),
        "context": Setting(16, "characters that the network reads", whole()),
        "width": Setting(64, f"of a token; with a head for every {HEAD_WIDTH} units", whole(HEAD_WIDTH)),
        "depth": Setting(2, "blocks of attention and MLP", whole(1)),
        "qkv_matrices": QKV_MATRICES,
        "train_examples": Setting(1_000, "pieces of five novels, drawn alike for all seeds", whole()),
        "validation_examples": Setting(200, "pieces of the sixth novel", whole()),
    },
    dtype="float32",
    shared_data=True,
    roles=lambda settings: _network(settings).roles,
    shapes=lambda settings: _network(settings).shapes,
    problem=_problem,
    sample_parameters=lambda settings, generator: _network(settings).sample(generator),
    loss=loss_of(_cross_entropy),
    evaluate=lambda ops, params, state, split: {"loss": _cross_entropy(ops, params, split)},
    evaluation_batch=200,
    missing=lambda settings: AUSTEN.missing(),
    files=lambda settings: AUSTEN.paths(),
    start=Start(5.123524627806282, 3.388189879947314),
    check=_check,
)
AUSTEN_TRANSFORMER = replace(_UNBOUND, bind=partial(_with_likelihood, _UNBOUND))

WORKLOADS = (AUSTEN_TRANSFORMER,)
