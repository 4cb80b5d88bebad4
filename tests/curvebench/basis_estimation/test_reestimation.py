"""Bases that a run estimates again: they equal those of a computation in NumPy, and those of
consecutive runs; their gradients are counted.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.linalg import block_diag

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import GradientSampling
from curvebench.basis_estimation.reestimation import Renewal, RenewalPlan
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.engine.memory import lanes_per_bundle
from curvebench.engine.programs import Programs
from curvebench.optimizers import rules
from curvebench.optimizers.bases import CHANGES, Group, OptionError, bases
from curvebench.paths import basis_file
from curvebench.results.reading import read
from curvebench.seeding import WorkloadRandom
from curvebench.spec.job import job_folder
from curvebench.spec.method import BasisSpec, OptimizerSpec
from curvebench.stages.job import instance, reestimation_of
from curvebench.steps.engine import Engine
from curvebench.steps.program import Carry, Loaded
from curvebench.steps.update import Update
from curvebench.workloads.linear_network import LINEAR_NETWORK
from curvebench.workloads.workload import Problem
from tests.curvebench.engine.test_execution import make_bundle, orthogonal
from tests.curvebench.stages.test_jobs import SWEEP, after, of_stage, run
from tests.curvebench.stages.test_training_keys import NETWORK
from tests.curvebench.toys import TANH, advanced, loss_and_gradient

STEPS, EVERY, SAMPLES, SCALE, RATE = 12, 5, 40, 0.3, 0.05
SETTINGS = {"batch_size": None}
Arrays = dict[str, np.ndarray]


def anew(groups: tuple[Group, ...], points: tuple[int, ...] = (5, 10), **options: Any) -> RenewalPlan:
    egop = bases()["egop"]
    return RenewalPlan(
        points,
        GradientSampling(TANH, SETTINGS, SAMPLES, SCALE, around_start=True),
        groups,
        partial(egop.estimator, egop.complete(options)),
    )


ROTATED = (Group(("first",), 12), Group(("second", "bias"), 12))


def bundle_of(rule: str, what: RenewalPlan | None, **changes: Any) -> Bundle:
    given: dict[str, Any] = {
        "seeds": (3, 4),
        "rates": (RATE,),
        "batch_size": None,
        "schedule": np.ones(STEPS),
        "evaluations": STEPS,
        **changes,
    }
    return make_bundle(TANH, rules()[rule], **given, reestimation=what)


def flat_of(arrays: Arrays) -> np.ndarray:
    return np.concatenate([arrays[name].ravel() for name in ("first", "second", "bias")])


def named_of(flat: np.ndarray) -> Arrays:
    return {"first": flat[:12].reshape(4, 3), "second": flat[12:20].reshape(2, 4), "bias": flat[20:]}


def rotation_at(theta: np.ndarray, train: Arrays, seed: int, step: int) -> np.ndarray:
    """Return the block-diagonal V of the EGOP around theta: leading eigenvectors first, blocks in order."""
    random = WorkloadRandom(TANH.name, seed)(f"egop sampling after step {step}")
    gradients = []
    for _ in range(SAMPLES):
        drawn = {
            name: random.standard_normal(shape)
            for name, shape in (("bias", 4), ("first", (4, 3)), ("second", (2, 4)))
        }
        gradients.append(flat_of(loss_and_gradient(named_of(theta + SCALE * flat_of(drawn)), train)[1]))
    g = np.array(gradients)
    v = np.zeros((24, 24))
    for block in (slice(0, 12), slice(12, 24)):
        v[block, block] = np.linalg.eigh(g[:, block].T @ g[:, block] / SAMPLES)[1][:, ::-1]
    return v


def by_hand(rule: str, problem: Problem, v: np.ndarray, seed: int) -> list[float]:
    """Losses before each step and after the last."""
    train, theta = problem.splits["train"], flat_of(problem.parameters)
    first, second = np.zeros(24), np.zeros(24)
    losses = []
    for step in range(1, STEPS + 1):
        if step - 1 in (5, 10):
            new = rotation_at(theta, train, seed, step - 1)
            first, v = new.T @ (v @ first), new
        loss, grads = loss_and_gradient(named_of(theta), train)
        losses.append(loss)
        g = v.T @ flat_of(grads)
        if rule == "adam":
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            move = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)

        else:
            first = 0.9 * first + g
            move = first
        theta = theta - RATE * (v @ move)
    return [*losses, loss_and_gradient(named_of(theta), train)[0]]


@pytest.mark.parametrize("rule", ["adam", "momentum"])
def test_a_run_is_the_loop_written_out(rule: str) -> None:
    bundle = bundle_of(rule, anew(ROTATED))
    wanted = np.stack(
        [
            by_hand(rule, problem, block_diag(*(held[row] for held in bundle.matrices.values())), seed)
            for row, (problem, seed) in enumerate(zip(bundle.problems, (3, 4), strict=True))
        ],
        axis=1,
    )
    for backend in ("jax", "torch"):
        found = execute(bundle, engine(backend, "float64"))
        np.testing.assert_allclose(found.metrics["train_loss"][:, :, 0], wanted, rtol=1e-10)
        assert (found.reestimation_seconds > 0).all()
    up_front = execute(dataclasses.replace(bundle, reestimation=None), engine("jax", "float64"))
    other = np.abs(up_front.metrics["train_loss"][:, :, 0] / wanted - 1).max(axis=1)
    assert other[:6].max() < 1e-10
    if rule != "momentum":
        assert other[-1] > 1e-4


def renewed(bundle: Bundle, made: Engine, loaded: Loaded, carry: Carry, step: int) -> tuple[Any, Any, Any]:
    """Parameters and matrices after a change of basis, on the host, and its seconds; call in the context."""
    assert bundle.reestimation is not None
    renew = Renewal(bundle.reestimation, made, loaded.program, bundle.problems, bundle.randoms)
    carry, constants, seconds = renew(step, carry, loaded.constants)
    matrices = [np.array(made.ops.to_numpy(matrix)) for matrix in constants.matrices]
    return parameters(made, loaded, carry, constants), matrices, seconds


def parameters(made: Engine, loaded: Any, carry: Any, constants: Any) -> Arrays:
    named = loaded.program.parameters(carry.coordinates, constants.matrices)
    return {name: np.array(made.ops.to_numpy(value)) for name, value in named.items()}


FORMS: dict[str, tuple[dict[str, Any], int, int]] = {
    "rotation": ({}, 12, 12),
    "shared": ({"rows": "shared"}, 3, 3),
    "auxiliary": ({"rank": 5, "complement": "auxiliary"}, 12, 5),
}


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("form", FORMS)
def test_parameters_stay_where_they_are(form: str, backend: str) -> None:
    options, size, rank = FORMS[form]
    group = Group(("first",), size, CHANGES[form])
    bundle = bundle_of(
        "adam",
        anew((group,), **options),
        matrices={("first",): np.stack([orthogonal(size, seed)[:, :rank] for seed in (3, 4)])},
        changes={("first",): CHANGES[form]},
    )
    made = engine(backend, "float64")
    with made.context():
        loaded, carry = advanced(bundle, made, 5)
        before = parameters(made, loaded, carry, loaded.constants)
        (old,) = [np.array(made.ops.to_numpy(matrix)) for matrix in loaded.constants.matrices]
        after, (new,), seconds = renewed(bundle, made, loaded, carry, 5)
    assert new.shape == old.shape == (2, size, rank)
    assert np.abs(new - old).max() > 0.1
    np.testing.assert_allclose(np.einsum("sij,sik->sjk", new, new), np.stack([np.eye(rank)] * 2), atol=1e-12)
    assert (seconds > 0).all()
    for name, value in before.items():
        assert np.abs(value - bundle.problems[0].parameters[name]).max() > 1e-3
        np.testing.assert_allclose(after[name], value, rtol=1e-12, atol=1e-12)


def test_settings_do_not_share_an_iterate() -> None:
    bundle = bundle_of("adam", anew(ROTATED), rates=(0.01, 0.1))
    assert lanes_per_bundle(bundle, 8, 1 << 30) == (2, 1)
    made = engine("torch", "float64")
    with pytest.raises(ValueError, match="belongs to one setting"):
        execute(bundle, made)
    jax = engine("jax", "float64")  # without such bases, rounds on JAX share a tile
    parts = Programs.of_rounds(bundle, [bundle.lanes, (5, 1)], jax, 1 << 30).parts(bundle, jax, 1 << 30)
    assert parts == [(slice(0, 2), slice(number, number + 1)) for number in range(2)]
    second = execute(bundle.subset(*parts[1]), made)
    alone = execute(bundle.subset(slice(1, 2), slice(1, 2)), made)
    np.testing.assert_allclose(
        second.metrics["train_loss"][:, 1, 0], alone.metrics["train_loss"][:, 0, 0], rtol=1e-11
    )
    assert second.reestimation_seconds.shape == (2, 1)


def test_ends_are_counted_in_steps_of_the_run() -> None:
    """SGD moves alike in every rotation: its runs end where those without a basis do."""
    made = engine("torch", "float64")
    norms = execute(bundle_of("sgd", anew(ROTATED)), made).metrics["gradient_norm"]
    given: dict[str, Any]
    for given, field in (
        ({"rates": (2e27,)}, "diverged_at"),
        ({"stop_gradient_norm": float(norms[6:8].mean())}, "stopped_at"),
    ):
        found, plain = (
            getattr(execute(bundle_of("sgd", what, **given), made), field) for what in (anew(ROTATED), None)
        )
        np.testing.assert_allclose(found, plain, atol=1)  # rounding may overflow a step earlier
        assert (found > 5).any()


def test_gradients_that_are_not_finite_leave_the_basis() -> None:
    made = engine("torch", "float64")
    what = dataclasses.replace(
        anew(ROTATED), sampling=GradientSampling(TANH, SETTINGS, SAMPLES, 1e300, around_start=True)
    )
    found = execute(bundle_of("sgd", what), made).metrics["train_loss"]
    plain = execute(bundle_of("sgd", None), made).metrics["train_loss"]
    np.testing.assert_allclose(found, plain, rtol=1e-12)
    assert any("after step 5 a lane keeps its basis: egop: 40 of 40" in note for note in made.notes)


def test_every_gradient_is_counted() -> None:
    """The gradients of an estimate after p steps count from the gradient of step p + 1 on."""
    bundle = bundle_of("adam", anew(ROTATED))
    steps = np.array([0, 1, 5, 6, 10, 11, 12])
    assert bundle.evaluations_of(steps).tolist() == [0, 1, 5, 46, 50, 91, 92]


def test_what_a_study_says() -> None:
    """The workload has 3 minibatches an epoch."""
    egop, one = bases()["egop"], instance(LINEAR_NETWORK, NETWORK.settings, 0)

    def found(steps: int, **options: Any) -> RenewalPlan | None:
        complete = egop.complete({"samples": 7, "blocks": "weights", **options})
        return reestimation_of(BasisSpec("egop", "egop", complete), one, steps)

    assert found(100) is None
    epoch = found(8, every="1 epoch", sampling={"normal": 0.2})
    assert epoch is not None
    assert epoch.points == (3, 6)
    sampling = epoch.sampling
    assert (sampling.count, sampling.normal_scale, sampling.around_start) == (7, 0.2, True)
    assert [group.names for group in epoch.groups] == [("W1",), ("W2",), ("W3",)]
    steps = found(8, every="2 steps")
    assert steps is not None
    assert steps.points == (2, 4, 6)
    assert steps.sampling.normal_scale is None


@pytest.mark.parametrize("rule", ["soap", "shampoo", "adafactor"])
def test_a_state_that_is_no_moments_cannot_be_carried(rule: str) -> None:
    update = Update(rules()[rule], bundle_of(rule, None).layout)
    with pytest.raises(OptionError, match=f"{rule}: its state cannot go on in other coordinates"):
        update.change_basis(numpy_ops("float64"), (), lambda moment: moment)


def test_a_job_charges_what_it_estimates(tmp_path: Path) -> None:
    """Bases job and sweep: every estimate in the run's count, in its curve from there on, and its seconds."""
    options = {"samples": 40, "sampling": {"normal": 1.0}, "every": "120 steps"}
    egop = BasisSpec("egop", "egop", bases()["egop"].complete(options))
    up_front = BasisSpec("up-front", "egop", bases()["egop"].complete({**options, "every": None}))
    sweep = SWEEP.changed(
        optimizers=(OptimizerSpec("adam", {}),),
        tuning_seeds=(0, 1),
        bases=(egop, up_front),
        settings=({"learning_rate": 0.01},),
    )
    basis_job = of_stage("bases", optimizers=sweep.optimizers, bases=sweep.bases)
    run(basis_job, tmp_path)
    sweep = after(sweep, {"bases": basis_job})
    run(sweep, tmp_path)
    folder = job_folder(tmp_path, sweep)
    runs, curves = read(folder, "runs"), read(folder, "curves")
    counts = {"egop": [400 + 3 * 40] * 2, "up-front": [400] * 2}
    by_basis = runs.sort("seed").group_by("basis").agg("gradient_evaluations", "basis_gradient_evaluations")
    for basis, own, before in by_basis.iter_rows():
        assert own == counts[basis]
        assert before == [40, 40]
    anew_runs = runs.filter(pl.col("basis") == "egop")
    curve = curves.filter((pl.col("run") == anew_runs["run"][0]) & (pl.col("metric") == "train_loss")).sort(
        "step"
    )
    assert curve["step"].to_list() == [0, 100, 200, 300, 400]
    assert curve["gradient_evaluations"].to_list() == [0, 100, 240, 380, 520]
    examples = curve["examples"].to_list()
    assert examples[-1] * 100 == examples[1] * 520
    anew = 0.0
    for row in runs.iter_rows(named=True):
        file = basis_file(job_folder(tmp_path, basis_job), "least_squares", row["basis"], row["seed"])
        more = row["basis_seconds"] - float(np.load(file)["seconds"])
        assert more > 0 if row["basis"] == "egop" else more == 0
        anew += more
    (job,) = read(folder, "jobs").to_dicts()
    assert anew <= job["basis_seconds"] <= job["step_seconds"]
    finals = {
        row["basis"]: row["final_metrics"][0]["value"] for row in runs.filter(seed=0).iter_rows(named=True)
    }
    assert finals["egop"] != finals["up-front"]
