"""The sets of parameter shapes that a step of each optimizer is timed on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

Shapes = Mapping[str, tuple[int, ...]]

MODEL, FEED_FORWARD, VOCABULARY, LAYERS = 128, 512, 512, 2
CHANNELS = (3, 16, 32, 64, 128)


def _many_tiny() -> dict[str, tuple[int, ...]]:
    """200 leaves of 1 to 64 entries, vectors and matrices in turn."""
    forms: tuple[tuple[int, ...], ...] = ((1,), (8,), (4, 4), (32,), (8, 8), (3, 5), (64,), (2, 16))
    return {f"leaf_{number}": forms[number % len(forms)] for number in range(200)}


def _transformer_like() -> dict[str, tuple[int, ...]]:
    """Embedding and two layers of attention, feed-forward network and norms: 459,264 entries."""
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, MODEL)}
    for layer in range(LAYERS):
        shapes |= {f"layer_{layer}.{name}": (MODEL, MODEL) for name in ("query", "key", "value", "output")}
        shapes |= {
            f"layer_{layer}.expand": (FEED_FORWARD, MODEL),
            f"layer_{layer}.contract": (MODEL, FEED_FORWARD),
        }
        shapes |= {f"layer_{layer}.norm_{number}": (MODEL,) for number in range(2)}
    return shapes


def _convolution_like() -> dict[str, tuple[int, ...]]:
    """Four 3 x 3 convolutions with bias and norm, and a linear layer: 99,210 entries."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(CHANNELS)):
        shapes[f"convolution_{number}"] = (outputs, inputs, 3, 3)
        shapes |= {f"{name}_{number}": (outputs,) for name in ("bias", "scale", "shift")}
    shapes |= {"linear": (10, CHANNELS[-1]), "linear_bias": (10,)}
    return shapes


# The weights of 004 Sec. 4, for rules that take the layers of a network.
NETWORK = "network_100_70_40"
NETWORKS: Mapping[str, Shapes] = {NETWORK: {"W1": (70, 100), "W2": (40, 70)}}

SHAPE_SETS: Mapping[str, Shapes] = {
    "many_tiny": _many_tiny(),
    "transformer_like": _transformer_like(),
    "convolution_like": _convolution_like(),
    "one_large": {"matrix": (1024, 1024)},
}
