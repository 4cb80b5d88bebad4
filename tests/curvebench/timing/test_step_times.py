"""Timing of single runs: what is measured, how often, in which order, and that the null optimizer stays."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.optimizers.gradient_descent import MOMENTUM, SGD
from curvebench.optimizers.rule import Rule
from curvebench.seeding import WorkloadRandom
from curvebench.steps.program import Loaded, Program
from curvebench.timing.step_times import (
    MAX_CALLS,
    NULL,
    measure_methods,
    peak_resident_bytes,
    resident_bytes,
    stretch,
)
from curvebench.workloads import workloads
from tests.curvebench.alone import alone
from tests.curvebench.engine.test_execution import STEPS, make_bundle
from tests.curvebench.toys import TANH

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets the peak")


def single(rule: Rule = SGD, **changes: Any) -> Bundle:
    workload = changes.pop("workload", TANH)
    bundle = make_bundle(rule=rule, seeds=(0,), rates=(0.1,), **changes)
    return dataclasses.replace(bundle, workload=workload)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_every_method_is_measured_equally_often(backend: str):
    bundles = {"sgd": single(), "momentum": single(MOMENTUM)}
    measured = measure_methods(bundles, engine(backend, "float64"), steps=4, repetitions=3)
    counted: dict[tuple[str, str], int] = {}
    for timing in measured.timings:
        assert timing.seconds > 0
        assert (timing.steps > 0) == (timing.phase in ("warm_up", "step", "null_step"))
        assert timing.steps % 4 == 0
        key = (timing.method, timing.phase)
        counted[key] = counted.get(key, 0) + 1
    methods = {"null": "null_step", "sgd": "step", "momentum": "step"}
    once = {(method, phase): 1 for method in methods for phase in ("data", "compile", "warm_up")}
    thrice = dict.fromkeys([*methods.items(), *((method, "evaluation") for method in methods)], 3)
    assert counted == once | thrice
    assert [memory.method for memory in measured.memory] == ["null", "sgd", "momentum"]
    if backend == "jax":  # memory that the compiler allocates: the arrays, and one buffer more than SGD
        sgd, momentum = (memory.device_peak_bytes for memory in measured.memory[1:])
        assert sgd is not None
        assert momentum is not None
        train = sum(array.nbytes for array in bundles["sgd"].problems[0].splits["train"].values())
        buffer = bundles["sgd"].layout.total * 8
        assert sgd >= train + buffer
        assert buffer <= momentum - sgd <= 3 * buffer


def test_a_method_that_raises_leaves_the_others_their_times():
    def raising(*_: Any) -> Any:
        raise ArithmeticError("broken")

    broken = dataclasses.replace(SGD, name="broken", update=raising)
    bundles = {"broken": single(broken), "sgd": single()}
    failed: list[tuple[str, str]] = []
    measured = measure_methods(
        bundles,
        engine("torch", "float64"),
        steps=2,
        repetitions=2,
        fail=lambda method, error: failed.append((method, str(error))),
    )
    assert failed == [("broken", "broken")]
    assert {timing.method for timing in measured.timings} == {"null", "sgd"}
    assert [memory.method for memory in measured.memory] == ["null", "sgd"]
    with pytest.raises(ArithmeticError):
        measure_methods(bundles, engine("torch", "float64"), steps=2, repetitions=1)


def test_methods_take_turns_and_none_is_always_first():
    bundles = {"sgd": single(), "momentum": single(MOMENTUM)}
    measured = measure_methods(bundles, engine("torch", "float64"), steps=2, repetitions=4)
    order = [timing.method for timing in measured.timings if timing.phase in ("step", "null_step")]
    assert order == [
        *("null", "sgd", "momentum"),
        *("momentum", "sgd", "null"),
        *("sgd", "momentum", "null"),
        *("null", "momentum", "sgd"),
    ]


@pytest.mark.parametrize(
    ("every", "wanted", "expected"),
    [(1, 5, (5, 1)), (3, 5, (6, 1)), (4, 8, (8, 1)), (100, 5, (STEPS - 1, 1)), (None, 5, (5, 1))],
)
def test_a_stretch_has_whole_rounds_of_work(every: int | None, wanted: int, expected: tuple[int, int]):
    bundle = single(dataclasses.replace(SGD, refresh_every=every))
    assert stretch(bundle, wanted) == expected


def test_a_run_of_one_step_is_measured():
    bundle = single(steps=1)
    assert stretch(bundle, 50) == (1, 0)
    measured = measure_methods({"sgd": bundle}, engine("torch", "float64"), steps=50, repetitions=1)
    [steps] = [timing.steps for timing in measured.timings if timing.phase == "step"]
    assert 1 <= steps <= MAX_CALLS


@linux
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.long)])
def test_a_method_with_a_large_basis_needs_that_much_more(backend: str):
    """Each method is measured from its own baseline, whatever was measured before."""
    growth, size = alone(growth_by_method, backend)
    for name in ("rotated", "again"):
        # a copy on its way to the device may or may not be gone before the next is made
        assert 0.8 * size < growth[name] - growth["after"] < 1.8 * size
    assert abs(growth["before"] - growth["after"]) < 0.3 * size


def growth_by_method(backend: str) -> tuple[dict[str, int], int]:
    """By how much each method's steps raised the peak, and the bytes of a large basis."""
    workload = workloads()["least_squares"]
    settings = workload.complete({"n": 4, "d": 1500})
    problem = workload.problem(settings, WorkloadRandom(workload.name, 0))
    wide = single(basis=False, batch_size=None, workload=workload, problems=[problem], settings=settings)
    basis = np.eye(wide.layout.total)[None]
    rotated = dataclasses.replace(wide, matrices={tuple(problem.parameters): basis})
    bundles = {"before": wide, "rotated": rotated, "again": rotated, "after": wide}
    measured = measure_methods(bundles, engine(backend, workload.dtype), steps=2, repetitions=1)
    growth = {one.method: one.host_peak_bytes - one.host_baseline_bytes for one in measured.memory}  # type: ignore[operator]
    copies = 2 if backend == "jax" else 1  # V^T lies beside a large V there
    return growth, copies * basis.size * np.dtype(workload.dtype).itemsize


def test_the_null_optimizer_stays_where_it_is():
    metrics = execute(make_bundle(rule=NULL), engine("jax", "float64")).metrics
    assert np.ptp(metrics["train_loss"], axis=0).max() == 0


def test_the_null_optimizer_runs_the_methods_own_program():
    """A stopping rule costs its check in every step; the null step must hold it too."""
    seen: list[Program] = []
    made = engine("torch", "float64")

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(made, name)

        def segment(self, loaded: Loaded, *arguments: Any) -> Any:
            seen.append(loaded.program)
            return made.segment(loaded, *arguments)

    bundle = single(batch_size=None, stop_gradient_norm=1e-9)
    measure_methods({"sgd": bundle}, Watching(), steps=2, repetitions=1)
    assert [program.update.rule.name for program in seen] == ["null", "sgd"]
    assert {program.protocol.stop_gradient_norm for program in seen} == {1e-9}


# --- peak resident memory ------------------------------------------------------------------------

MEGABYTE = 10**6


def touch(megabytes: int) -> None:
    np.ones(megabytes * MEGABYTE, np.uint8)


def measured() -> tuple[int | None, ...]:
    """Resident memory, and the peaks of a small and of a large stretch after a larger one."""
    touch(200)
    # Below 32 MB the C library may keep what is freed (mallopt(3), M_MMAP_THRESHOLD).
    return resident_bytes(), *(peak_resident_bytes(partial(touch, size)) for size in (40, 120))


@linux
def test_the_peak_is_that_of_the_stretch_and_not_of_what_was_before():
    before, small, large = alone(measured)
    assert before is not None
    assert small is not None
    assert large is not None
    assert small - before == pytest.approx(40 * MEGABYTE, abs=5 * MEGABYTE)
    assert large - before == pytest.approx(120 * MEGABYTE, abs=5 * MEGABYTE)


def test_where_the_system_cannot_tell_the_work_is_done_and_nothing_is_guessed(tmp_path: Path):
    done: list[int] = []
    nowhere = tmp_path / "proc"
    assert peak_resident_bytes(lambda: done.append(1), nowhere) is None
    assert resident_bytes(nowhere) is None
    assert done == [1]
