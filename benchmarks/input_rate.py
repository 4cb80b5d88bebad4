"""`python -m benchmarks.input_rate`: images that are fetched a second, and what a run waits for them.

JPEG files of 500 x 375 pixels are made from scikit-learn's two photographs. Rates are of random resized crops
to 224 x 224: of the decoder alone in a plain loop, and as runs fetch them. Nothing is pinned (`taskset`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from curvebench.backends.engine import engine
from curvebench.engine.examples import gathered, generators_of
from curvebench.engine.execution import Bundle, Clock, execute
from curvebench.optimizers import rules
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.workloads.classification import MINIBATCH_METRICS
from curvebench.workloads.images.augmentation import Augmentation
from curvebench.workloads.images.classifier import ImageClassifier
from curvebench.workloads.images.decoded import decoded_file, write_decoded
from curvebench.workloads.images.decoding import decode, random_box, resized_crop
from curvebench.workloads.images.folders import examined, index_file, index_text, listed
from curvebench.workloads.images.source import ImageSource, image_sources
from curvebench.workloads.networks.residual_network import ResidualNetwork, residual_logits
from curvebench.workloads.workload import Array, Arrays, Ops, Problem, Settings, Workload

IMAGES, WIDTH, HEIGHT, QUALITY = 192, 500, 375, 90
SIDE, SHORTER = 224, 256
SMALL = 32  # the side of images of the run that is timed
BATCH, STEPS = 32, 24
FIRST = 4  # steps of a piece, and of a stretch between evaluations
NETWORK = ResidualNetwork(3, (1, 1, 1), 16, 2, stem=3)


def write_images(folder: Path) -> None:
    """Pieces of the two photographs, each a class, with their index."""
    from sklearn.datasets import load_sample_images

    draws = np.random.default_rng(0)
    photographs = [Image.fromarray(one) for one in load_sample_images()["images"]]
    for number in range(IMAGES):
        photograph = photographs[number % 2]
        left, top = (
            int(draws.integers(most)) for most in (photograph.width - WIDTH, photograph.height - HEIGHT)
        )
        path = folder / "train" / f"n{number % 2}" / f"{number:04d}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph.crop((left, top, left + WIDTH, top + HEIGHT)).save(path, quality=QUALITY)
    lines = examined(folder, listed(folder))
    index_file(folder).write_text(index_text(lines))


def source_of(folder: Path, side: int = SIDE) -> ImageSource:
    """The images of the folder."""
    return image_sources(folder, side=side, shorter=side * SHORTER // SIDE)["train"]


# --- rates ---------------------------------------------------------------------------------------


def decoder_alone(contents: Sequence[bytes]) -> None:
    """What a thread does for each image, in a plain loop with the same boxes."""
    drawn = generators_of([WorkloadRandom("images", 0)], "examples of step", 1)
    for place, content in enumerate(contents):
        image = decode(content)
        resized_crop(image, random_box(image.height, image.width, drawn((0, 0, place))), SIDE)


def fetched(source: ImageSource, threads: int) -> None:
    """All images once, as a run fetches them."""
    drawn = generators_of([WorkloadRandom("images", 0)], "examples of step", 1)
    gathered(source, np.arange(len(source)).reshape(1, 1, -1), threads, drawn)


def rates(calls: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Images a second of each call, one after the other in each round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            found[name].append(IMAGES / (time.perf_counter() - begun))
    return found


# --- waiting -------------------------------------------------------------------------------------


def waiting(source: ImageSource, backend: str, threads: int) -> tuple[float, float, float]:
    """Seconds of a small residual network on images of 32 x 32, with MixUp and CutMix.

    Returns:
        Waiting for the first piece of the run, which nothing hides; waiting for all others, and their steps.
    """
    augmentation = Augmentation(mixup=0.2, cutmix=1.0)

    def network(
        ops: Ops, params: Arrays, state: Arrays, split: Arrays, training: bool
    ) -> tuple[Array, Arrays]:
        return residual_logits(ops, params, state, split["images"], training)

    classifier = ImageClassifier(network, augmentation)

    def noise(settings: Settings, draws: np.random.Generator, batch_size: int) -> dict[str, np.ndarray]:
        return augmentation.draw(draws, batch_size, SMALL)

    random = WorkloadRandom("images", 0)
    workload = Workload(
        name="images",
        description="two photographs",
        source="none",
        metrics=MINIBATCH_METRICS,
        settings={},
        dtype="float32",
        shared_data=True,
        roles=lambda settings: NETWORK.roles,
        problem=lambda settings, random: Problem(
            NETWORK.sample(random("parameters")), {"train": source}, NETWORK.state
        ),
        sample_parameters=lambda settings, draws: NETWORK.sample(draws),
        loss=classifier.loss,
        evaluate=classifier.evaluate,
        likelihood=classifier.likelihood,
        noise=noise,
        mapped=False,
        streamed=True,
        evaluation_batch=BATCH,
    )
    rule = rules()["adamw"]
    made, clock = engine(backend, "float32"), Clock()
    made.limit_threads(threads)
    bundle = Bundle(
        workload=workload,
        rule=rule,
        problems=[workload.problem({}, random)],
        orders=batch_order(random, len(source), BATCH, STEPS)[:, None],
        hyperparameters={n: np.array([v]) for n, v in rule.complete({"learning_rate": 1e-3}).items()},
        schedule=np.ones(STEPS),
        evaluations=STEPS // FIRST,
        randoms=[random],
    )
    marks: list[Mapping[str, float]] = []
    execute(bundle, made, clock, lambda done: marks.append(dict(clock.seconds)))
    first, last = marks[0], marks[-1]
    return first["data"], last["data"] - first["data"], last["step"] - first["step"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_rate", description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="at most (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median counts")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "images")
        write_images(folder)
        contents = [path.read_bytes() for path in sorted((folder / "train").rglob("*.JPEG"))]
        plain = source_of(folder)
        small = source_of(folder, SMALL)
        with decoded_file(folder).open("wb") as file:
            write_decoded(file, folder, examined(folder, listed(folder)))
        cached = source_of(folder)
        calls: dict[str, Callable[[], None]] = {"decoder alone": partial(decoder_alone, contents)}
        for threads in range(1, given.threads + 1):
            calls[f"fetched, {threads} threads"] = partial(fetched, plain, threads)
            calls[f"from decoded images, {threads} threads"] = partial(fetched, cached, threads)
        found = rates(calls, given.rounds)
        alone = found["decoder alone"]
        for name, own in found.items():
            ratio = statistics.median(one / other for one, other in zip(own, alone, strict=True))
            print(f"{name:36} {statistics.median(own):6.0f} a second, {ratio:.2f} times the decoder alone")
        for backend in ("torch", "jax"):
            first, data, steps = waiting(small, backend, given.threads)
            share, each = data / (data + steps), steps / (STEPS - FIRST)
            print(f"{backend}: {each:.3f} s a step, {share:.1%} waiting; {first:.2f} s before the first")
    return 0


if __name__ == "__main__":
    sys.exit(main())
