"""The UCI handwritten digits, 8 x 8 pixels in 10 classes, and a small ReLU network that classifies them.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from curvebench.spec.values import choice, number
from curvebench.workloads.arguments import Random, Settings
from curvebench.workloads.classification import (
    classification_metrics,
    of_network,
)
from curvebench.workloads.data import (
    CLASSES,
    FULL_DIGITS,
    PIXELS,
    random_parts,
    read_full_digits,
    read_reduced_digits,
    reduced_digits_files,
)
from curvebench.workloads.matrices import uniform_bias, xavier_normal
from curvebench.workloads.networks.perceptron import RELU_CLASSIFIER, FullyConnected
from curvebench.workloads.workload import Problem, Setting, Start, Workload, batch_size, require_batch

# Network of 000 C.2, with Xavier normal weights and uniform biases (000 C.6).
NETWORK = FullyConnected((PIXELS, 32, CLASSES), xavier_normal, uniform_bias)
READERS = {"reduced": read_reduced_digits, "full": read_full_digits}
FILES = {"reduced": reduced_digits_files, "full": FULL_DIGITS.paths}
# Number of examples of each split, by the data set.
# `reduced` is the subset of digits in scikit-learn, and `full` the whole data set of 000 C.1.
SPLITS = {
    "reduced": {"train": 1222, "validation": 191, "test": 384},
    "full": {"train": 3823, "validation": 598, "test": 1199},
}


def _problem(settings: Settings, random: Random) -> Problem:
    """Return the digits with a random partition into splits that is the same for all seeds (000 C.6)."""
    pixels, labels = READERS[settings["source"]]()
    parts = random_parts(SPLITS[settings["source"]], random("split", shared=True))
    return Problem(
        parameters=NETWORK.sample(random("parameters")),
        splits={
            name: {"features": pixels[part] / settings["pixel_scale"], "labels": labels[part]}
            for name, part in parts.items()
        },
        facts={"examples": float(len(labels))},
    )


DIGITS_MLP = Workload(
    name="digits_mlp",
    description="ReLU network 64-32-10 with biases on the UCI digits (d = 2410)",
    source="000 Fig. 1 right, Fig. 15, C.1, C.2, C.6",
    metrics=classification_metrics(SPLITS["full"]),
    settings={
        "batch_size": batch_size(300),
        "source": Setting(
            "reduced",
            "reduced: the 1,797 digits of scikit-learn, the test part of UCI optdigits, split 1222/191/384; "
            "full: all 5,620, split 3823/598/1199 as in the paper, from optdigits.tra and optdigits.tes "
            "in the folder named by CURVEBENCH_DATA",
            read=choice("reduced", "full"),
        ),
        "pixel_scale": Setting(
            16.0,
            "divides the pixels, which are whole numbers from 0 to 16; the paper is silent, 16 gives [0, 1]",
            number(0.0, low_open=True),
        ),
    },
    **of_network(lambda settings: NETWORK, RELU_CLASSIFIER),
    linear_input=("W1", "features"),
    problem=_problem,
    missing=lambda settings: FULL_DIGITS.missing() if settings["source"] == "full" else None,
    files=lambda settings: FILES[settings["source"]](),
    start=Start(2.3915439530003173, 0.5569082068057937),
    check=lambda settings: require_batch(settings, SPLITS[settings["source"]]["train"]),
)

WORKLOADS = (DIGITS_MLP,)
