"""Rounds of a cell in one tile: the same runs as in their own shapes, by programs compiled once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench import optimizers
from curvebench.backends.engine import engine
from curvebench.engine import execution, inputs, memory
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.checkpoints import Checkpoints
from curvebench.engine.execution import execute
from curvebench.engine.inputs import segment_lengths
from curvebench.engine.memory import tile_of
from curvebench.engine.programs import Programs
from curvebench.engine.tiles import Tile
from curvebench.optimizers.gradient_descent import SGD
from curvebench.registry import find_rule
from curvebench.steps.engine import Engine
from tests.curvebench.engine.test_checkpoints import EVERY_PIECE, Ended, EndingClock, assert_identical
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.networks import SMALL_ATTENTION
from tests.curvebench.steps import test_examples as streamed
from tests.curvebench.toys import TANH_SHARED, steep_loss

RATES = (0.05, 0.1, 0.2)
ROUNDS = [((0, 1), RATES), ((0, 1), (0.07, 0.14)), ((0, 1, 2, 3, 4), (0.1,))]  # seeds and rates of each
LANES = [(len(seeds), len(rates)) for seeds, rates in ROUNDS]
ROOMY = 1 << 30
JAX = engine("jax", "float64")
STEEP = dataclasses.replace(TANH_SHARED, loss=steep_loss)


def noisy(seeds: Sequence[int], rates: Sequence[float]) -> Bundle:
    """Return a bundle on a workload whose minibatches are drawn while they are fetched."""
    bundle = streamed.bundle_of(streamed.Noisy(), "validation_loss", seeds=len(seeds))
    numbers = {name: np.repeat(values, len(rates)) for name, values in bundle.hyperparameters.items()}
    return dataclasses.replace(bundle, hyperparameters={**numbers, "learning_rate": np.array(rates) / 10})


RULES = optimizers.rules()
BUNDLES: dict[str, Callable[..., Bundle]] = {
    "minibatches in a basis": make_bundle,
    "a stop of a full batch": lambda seeds, rates: make_bundle(
        seeds=seeds, rates=rates, batch_size=None, basis=False, stop_gradient_norm=0.4
    ),
    "divergence on shared data": lambda seeds, rates: make_bundle(
        STEEP, SGD, seeds=seeds, rates=(*rates[:-1], 1e3), basis=False
    ),
    "streamed": noisy,
    "noise": lambda seeds, rates: make_bundle(
        SMALL_ATTENTION, seeds=seeds, rates=rates, basis=False, settings=SMALL_ATTENTION.complete({})
    ),
    # not SOAP, whose eigenvectors in the null space of a gradient depend on its rounding
    "a cadence": lambda seeds, rates: make_bundle(
        rule=RULES["shampoo"].choose({"refresh_every": 5}), seeds=seeds, rates=[rate / 1000 for rate in rates]
    ),
}


def same(found: Trajectories, like: Trajectories, tolerance: float = 1e-12) -> None:
    """Compare trajectories: steps equal, metrics to rounding."""
    assert list(found.metrics) == list(like.metrics)
    for name, values in like.metrics.items():
        assert found.metrics[name].shape == values.shape
        np.testing.assert_allclose(found.metrics[name], values, rtol=tolerance, atol=1e-14, err_msg=name)
    for name in ("steps", "diverged_at", "stopped_at", "closure_gradients", "reestimation_seconds"):
        np.testing.assert_array_equal(getattr(found, name), getattr(like, name), err_msg=name)
    assert found.state_bytes == like.state_bytes


@pytest.mark.parametrize(("slots", "width"), [(1, 1), (6, 1), (5, 2), (2, 3), (4, 4)])
def test_parts_cover_the_lanes_once_and_fit(slots: int, width: int):
    tile = Tile(slots, width)
    for lanes in (*LANES, (7, 5), (1, 13)):
        seen = np.zeros(lanes, int)
        for seeds, settings in tile.parts(*lanes):
            seen[seeds, settings] += 1
            shape = (seeds.stop - seeds.start, settings.stop - settings.start)
            placement = tile.placement(*shape)
            slot, column = placement.lanes
            assert slot.max() < slots
            assert column.max() < width
            expected_seeds, expected_settings = np.indices(shape)
            np.testing.assert_array_equal(placement.seeds[slot], expected_seeds)
            np.testing.assert_array_equal(placement.settings[slot, column], expected_settings)
            assert placement.settings.shape == (slots, width)
            assert placement.settings.max() < shape[1]
        assert (seen == 1).all()


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "torch") for name in BUNDLES),
        # the host draws noise for each backend alike
        *(pytest.param(name, "jax", marks=[pytest.mark.long] * (name == "noise")) for name in BUNDLES),
    ],
)
def test_rounds_in_a_tile_are_the_rounds_in_their_own_shapes(name: str, backend: str):
    programs, made = Programs(Tile(5, 2)), engine(backend, "float64")
    tolerance = 1e-10 if name == "a cadence" else 1e-12  # inverse roots amplify rounding
    for seeds, rates in ROUNDS[backend == "jax" :]:  # each round compiles on JAX, in its own shape
        bundle = BUNDLES[name](seeds=seeds, rates=rates)
        for part in programs.parts(bundle, made, ROOMY):
            some = bundle.subset(*part)
            found = execute(some, made, programs=programs)
            same(found, execute(some, engine(backend, "float64")), tolerance)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_tile_of_the_shape_of_a_round_computes_the_same_bits(backend: str):
    bundle = make_bundle()
    found = execute(bundle, engine(backend, "float64"), programs=Programs(Tile(3, 2)))
    assert_identical(execute(bundle, engine(backend, "float64")), found)


def test_the_effort_for_an_evaluation_is_the_same_whichever_round_is_compiled_first(
    monkeypatch: pytest.MonkeyPatch,
):
    """Otherwise a job that resumes in its last round would round the metrics of this round differently."""
    made, last = engine("torch", "float64"), make_bundle()
    first = dataclasses.replace(
        last, evaluations=1, schedule=last.schedule[: len(last.schedule) // last.evaluations]
    )
    work: list[float] = []

    def compiled(function: Any, *arguments: Any, multiplications: float) -> Any:
        if multiplications:  # 0 for the first point of all lanes
            work.append(multiplications)
        return function

    monkeypatch.setattr(made, "compiled", compiled)
    for bundle in (first, last):
        execute(bundle, made, programs=Programs.of_rounds(last, [last.lanes], made, ROOMY))
    assert len(work) == 2
    assert work[0] == work[1]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_all_rounds_use_one_program(backend: str, monkeypatch: pytest.MonkeyPatch):
    made = engine(backend, "float64")
    compiled: list[str] = []

    def counted(name: str) -> None:
        method = getattr(type(made), name)

        def call(self: Engine, *given: Any, **named: Any) -> Any:
            compiled.append(name)
            return method(self, *given, **named)

        monkeypatch.setattr(type(made), name, call)

    counted("segment")
    counted("compiled")
    longest = make_bundle(seeds=range(5), rates=RATES, steps=24)
    programs = Programs.of_rounds(longest, LANES, made, ROOMY)
    assert programs.tile == (Tile(6, 1) if backend == "jax" else None), "PyTorch compiles for no number"
    programs.tile = Tile(6, 1)
    for (seeds, rates), steps in zip(ROUNDS, (12, 12, 24), strict=True):
        execute(make_bundle(seeds=seeds, rates=rates, steps=steps), made, programs=programs)
    assert compiled == ["compiled", "compiled", "segment"], "the first state, the evaluation, the steps"
    execute(make_bundle(seeds=range(5), rates=(0.1,), steps=96), made, programs=programs)
    assert compiled[3:] == ["segment"], "a longer segment than was foreseen"


def test_single_runs_of_torch_keep_their_own_hyperparameters():
    """Kernels of PyTorch and optimizers of other libraries take numbers, not arrays that a program reads."""
    for rule in (RULES["adam"], find_rule("torch:torch.optim.NAdam")):
        programs, made = Programs(Tile(1, 1)), engine("torch", "float64")
        for rate in (0.001, 0.01):
            bundle = make_bundle(rule=rule, seeds=(0,), rates=(rate,), basis=False)
            found = execute(bundle, made, programs=programs)
            assert_identical(execute(bundle, engine("torch", "float64")), found)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_runs_in_tiles_resume_at_checkpoints(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(execution, "SEGMENT_SECONDS", 0.0)
    monkeypatch.setattr(inputs, "MIN_SEGMENT_PRODUCTS", 1)
    monkeypatch.setattr(inputs, "MIN_SEGMENTS", 6)
    bundle = make_bundle(seeds=(0, 1), rates=RATES)
    undisturbed = execute(bundle, engine(backend, "float64"), programs=Programs(Tile(5, 2)))
    run, programs = {"run": "of a tile"}, Programs(Tile(5, 2))
    with pytest.raises(Ended):
        execute(
            bundle,
            engine(backend, "float64"),
            EndingClock(12),
            checkpoints=Checkpoints(tmp_path / "run", run, **EVERY_PIECE),
            programs=programs,
        )
    made = engine(backend, "float64")
    kept = Checkpoints(tmp_path / "run", run, **EVERY_PIECE)
    assert_identical(undisturbed, execute(bundle, made, checkpoints=kept, programs=programs))
    assert any("went on at" in note for note in made.notes)


def test_a_seed_draws_once_however_many_slots_it_has():
    source = streamed.Noisy()
    bundle = streamed.bundle_of(source, "validation_loss", seeds=2)
    execute(bundle, engine("torch", "float64"), programs=Programs(Tile(6, 1)))
    assert source.count(is_training=True) == 2 * streamed.STEPS * streamed.BATCH


def test_the_tile_has_the_fewest_lanes_that_all_rounds_need():
    bundle = make_bundle(seeds=range(10), rates=(0.1,))
    assert tile_of(bundle, [(2, 9), (2, 6), (10, 1)], JAX, ROOMY) == Tile(18, 1)
    assert tile_of(bundle, [(5, 4), (5, 2)], JAX, ROOMY) == Tile(5, 4), "the widest of equals"
    assert tile_of(bundle, [(3, 4), (6, 2)], JAX, ROOMY) == Tile(6, 2)
    assert tile_of(bundle, [(10, 1)], JAX, ROOMY) is None, "one round has its own shape"
    assert tile_of(bundle, [(10, 1), (10, 1)], JAX, ROOMY) is None, "and so have rounds of one shape"


def test_a_tile_fits_the_memory():
    bundle = make_bundle(seeds=range(10), rates=(0.1,))
    seed, lane = memory.bytes_of(bundle, 8)
    rounds = [(2, 9), (2, 6), (10, 1)]
    tile = tile_of(bundle, rounds, JAX, 7 * (seed + lane))
    assert tile == Tile(6, 1), "18 slots in three parts"
    assert len(tile.parts(2, 9)) * 6 >= 18
    assert tile_of(bundle, rounds, JAX, 1) == Tile(1, 1)


def test_much_work_keeps_its_own_shapes(monkeypatch: pytest.MonkeyPatch):
    bundle, rounds = make_bundle(seeds=range(10), rates=(0.1,)), [(2, 9), (2, 6), (10, 1)]
    basis = sum(matrix[0].size for matrix in bundle.matrices.values())
    of_a_step = bundle.batch_size * bundle.layout.total + basis
    products = (18 + 12 + 10) * len(bundle.schedule) * of_a_step
    monkeypatch.setattr(memory, "MAX_TILED_PRODUCTS", products)
    assert tile_of(bundle, rounds, JAX, ROOMY) == Tile(18, 1)
    monkeypatch.setattr(memory, "MAX_TILED_PRODUCTS", products - 1)
    assert tile_of(bundle, rounds, JAX, ROOMY) is None


def test_lanes_that_are_programs_of_their_own_have_tiles_of_one():
    bundle = make_bundle(seeds=range(4), rates=RATES)
    alone = dataclasses.replace(bundle, workload=dataclasses.replace(bundle.workload, mapped=False))
    assert tile_of(alone, LANES, JAX, ROOMY) == Tile(1, 1)
    assert Programs.of_rounds(alone, LANES, JAX, ROOMY).room == max(segment_lengths(alone))
