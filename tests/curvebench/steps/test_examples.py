"""Data sources under the executor: equal batches however they are fetched, and nothing fetched in vain."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.clock import Clock
from curvebench.engine.execution import execute
from curvebench.engine.inputs import prefetch_inputs
from curvebench.optimizers import rules
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.steps.examples import gathered, generators_of, prefetched
from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import MINIBATCH_LOSS, Metric, Problem, Role, Workload, batch_size, loss_of

BATCH, EXAMPLES, STEPS, SEEDS, FEATURES = 6, 20, 9, 2, 3


class Noisy:
    """Rows of which training sees a noisy copy, as crops are: a source that counts what it is asked for.

    Args:
        examples: how many rows it has.
        then: called with the source after each row that is asked for.
    """

    def __init__(self, examples: int = EXAMPLES, then: Callable[[Any], object] = lambda source: None) -> None:
        self.rows = np.arange(examples * FEATURES, dtype=np.float64).reshape(-1, FEATURES) / examples
        self.fetched: Counter[tuple[int, bool]] = Counter()
        self.lock, self.then = threading.Lock(), then
        self.notes: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    def placeholder(self, is_training: bool) -> dict[str, np.ndarray]:
        return {"features": np.zeros(FEATURES), "labels": np.zeros((), np.int64)}

    def fetch(self, number: int, generator: np.random.Generator | None) -> dict[str, np.ndarray]:
        with self.lock:
            self.fetched[number, generator is not None] += 1
        self.then(self)
        noise = 0.0 if generator is None else generator.standard_normal(FEATURES)
        return {"features": self.rows[number] + noise, "labels": np.int64(number)}

    def count(self, is_training: bool) -> int:
        return sum(count for (_, training), count in self.fetched.items() if training is is_training)


def _residuals(ops: Any, params: Any, split: Any) -> Any:
    targets = ops.astype_float(split["labels"]) / EXAMPLES
    return ops.mean(ops.square(split["features"] @ params["w"] - targets))


def workload(source: Noisy, *metrics: str) -> Workload:
    """Return a workload of least squares whose examples are the rows of a data source."""
    return Workload(
        name="noisy",
        description="least squares on rows that are fetched",
        source="none",
        metrics={name: Metric("mean square", "minimize") for name in metrics},
        settings={"batch_size": batch_size(BATCH)},
        dtype="float64",
        shared_data=True,
        roles=lambda settings: {"w": Role("vector")},
        problem=lambda settings, random: Problem(
            {"w": np.ones(FEATURES)}, {"train": source, "validation": source}
        ),
        sample_parameters=lambda settings, generator: {"w": generator.standard_normal(FEATURES)},
        loss=loss_of(_residuals),
        evaluate=lambda ops, params, state, split: {"loss": _residuals(ops, params, split)},
        streamed=True,
        evaluation_batch=8,
    )


def bundle_of(source: Noisy, *metrics: str, steps: int = STEPS, seeds: int = SEEDS) -> Bundle:
    """Return a bundle with a run for each seed, whose examples come from a data source."""
    found, rule = workload(source, *metrics), rules()["momentum"]
    randoms = [WorkloadRandom("noisy", seed) for seed in range(seeds)]
    orders = [batch_order(random, len(source), BATCH, steps) for random in randoms]
    return Bundle(
        workload=found,
        rule=rule,
        problems=[found.problem({}, random) for random in randoms],
        orders=np.stack(orders, axis=1),
        hyperparameters={n: np.array([v]) for n, v in rule.complete({"learning_rate": 0.01}).items()},
        schedule=np.ones(steps),
        evaluations=3,
        randoms=randoms,
    )


def run(bundle: Bundle, backend: str = "torch", threads: int = 1, **options: Any) -> Trajectories:
    made = engine(backend, "float64")
    made.threads = threads
    return execute(bundle, made, **options)


def batches(
    bundle: Bundle, backend: str, threads: int, pieces: list[int], start: int = 0
) -> dict[str, np.ndarray]:
    """Return the minibatches that the steps after `start` get on the device, (steps, S, batch, ...) by field.

    Args:
        threads: number of threads that load examples.
        pieces: lengths of the segments.
    """
    made = engine(backend, "float64")
    made.threads = threads
    with made.context(), prefetch_inputs(bundle, made, pieces, start) as inputs:
        sent = [
            {name: np.asarray(made.ops.to_numpy(array)) for name, array in given.batch.items()}
            for given in inputs
        ]
    return {name: np.concatenate([one[name] for one in sent]) for name in sent[0]}


# --- equal batches -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_batches_do_not_depend_on_threads_backend_and_pieces(backend: str, threads: int):
    bundle = bundle_of(Noisy())
    expected = batches(bundle, "torch", 1, [1] * STEPS)
    found = batches(bundle, backend, threads, [4, 3, 2])
    for name, values in expected.items():
        assert values.shape[:3] == (STEPS, SEEDS, BATCH)
        assert np.array_equal(found[name], values), name
    assert bundle.orders is not None
    assert np.array_equal(expected["labels"], bundle.orders)
    noise = expected["features"] - Noisy().rows[bundle.orders]
    assert len(np.unique(noise)) == noise.size, "each place of each step of each seed has its own"


def test_an_examples_draw_is_that_of_seed_step_and_place():
    """It depends neither on other lanes nor on earlier steps."""
    bundle = bundle_of(Noisy())
    whole = batches(bundle, "torch", 1, [STEPS])["features"]
    alone = batches(bundle.subset(slice(1, 2), slice(0, 1)), "torch", 2, [3], start=5)["features"]
    assert np.array_equal(alone[:, 0], whole[5:8, 1])


# --- nothing in vain -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_one_pass_fetches_each_example_once(backend: str):
    source = Noisy(examples=4 * BATCH)
    run(bundle_of(source, MINIBATCH_LOSS, steps=4, seeds=1), backend, threads=2)
    assert source.fetched == {(number, True): 1 for number in range(4 * BATCH)}


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_an_evaluation_fetches_each_example_once(backend: str):
    source = Noisy()
    run(bundle_of(source, "validation_loss"), backend, threads=2)
    assert source.count(is_training=True) == STEPS * SEEDS * BATCH
    assert source.fetched[0, False] == 4, "at the start and after each of three stretches"
    assert source.count(is_training=False) == 4 * EXAMPLES


def test_waiting_for_a_slow_source_is_time_of_data(monkeypatch: pytest.MonkeyPatch):
    """On a clock that only fetching moves, and with all steps in one piece, for which the first waits."""
    slow = Noisy()
    now = "curvebench.engine.clock.time.perf_counter"
    monkeypatch.setattr(now, lambda: float(slow.count(is_training=True)))  # each example takes a second
    clock = Clock()
    run(dataclasses.replace(bundle_of(slow, MINIBATCH_LOSS), evaluations=1), clock=clock)
    assert clock.seconds["data"] == STEPS * SEEDS * BATCH
    assert sum(clock.seconds.values()) == clock.seconds["data"] == clock.parts["waiting"]


def test_a_source_is_fetched_on_so_many_threads():
    barrier = threading.Barrier(3, timeout=30)  # passed by three threads at once, or never
    found = gathered(Noisy(then=lambda _: barrier.wait()), np.arange(6), threads=3)
    assert np.array_equal(found["labels"], np.arange(6))


# --- notes, errors -------------------------------------------------------------------------------


def test_notes_of_a_source_reach_the_provenance():
    def lose(source: Noisy) -> None:
        """Lose its example 0 before the last evaluation."""
        if source.fetched[0, False] == 4 and not source.notes:
            source.notes.append("example 0 is lost")

    made = engine("torch", "float64")
    execute(bundle_of(Noisy(then=lose), "validation_loss"), made)
    assert "validation: example 0 is lost" in made.notes


def test_an_error_of_a_thread_ends_the_run():
    def lose(source: Noisy) -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        run(bundle_of(Noisy(then=lose), MINIBATCH_LOSS), threads=2)


def test_a_source_that_is_not_streamed_is_refused():
    bundle = bundle_of(Noisy())
    held = dataclasses.replace(bundle.workload, streamed=False)
    with pytest.raises(ValueError, match="train, validation is a data source: set streamed"):
        dataclasses.replace(bundle, workload=held)
    with pytest.raises(ValueError, match="needs randoms, a generator a problem"):
        dataclasses.replace(bundle, randoms=())


def test_what_is_made_ahead_comes_in_order_and_one_before_it_is_asked_for():
    made: list[int] = []
    asked = threading.Event()

    def make(number: int) -> int:
        made.append(number)
        if number == 1:
            asked.set()
        return number

    with prefetched(make, range(3)) as given:
        assert next(given) == 0
        assert asked.wait(30), "the second is made though nobody asks"
        assert list(given) == [1, 2]
    assert made == [0, 1, 2]


def test_generators_of_places_are_independent():
    def random(purpose: str, shared: bool = False) -> np.random.Generator:
        return np.random.default_rng(list(purpose.encode()))

    randoms: list[Random] = [random]
    drawn = generators_of(randoms, "examples of step", 3)
    values = np.array([drawn((row, 0, place)).standard_normal(64) for row in range(8) for place in range(8)])
    correlations = np.corrcoef(values) - np.eye(64)
    assert np.abs(correlations).max() < 0.6
    assert np.array_equal(
        drawn((1, 0, 5)).random(3), generators_of(randoms, "examples of step", 4)((0, 0, 5)).random(3)
    )
