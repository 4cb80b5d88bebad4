"""Runs that are ended at any moment and go on from a checkpoint, the same to the last bit; damage."""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench import optimizers
from curvebench.backends.engine import engine
from curvebench.backends.torch_engine import TorchEngine
from curvebench.engine import execution, inputs
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.checkpoints import Checkpoint, Checkpoints, DeferredTermination
from curvebench.engine.clock import Clock
from curvebench.engine.execution import Pace, RunHistory, execute
from curvebench.engine.inputs import split_interval
from curvebench.registry import find_rule
from tests.curvebench.basis_estimation import test_reestimation as renewed
from tests.curvebench.engine import test_minibatch_loss as with_losses
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.networks import SMALL_CONVOLUTION
from tests.curvebench.steps import test_examples as streamed
from tests.curvebench.test_executors import bundle_of

RULES = optimizers.rules()
STEPS = 12
EVERY_PIECE: dict[str, Any] = {"every": 0.0, "worth": 0.0, "share": math.inf}


def basis_anew(rule: str, rate: float, steps: int) -> Bundle:
    plan = renewed.anew(renewed.ROTATED, points=tuple(range(5, steps, 5)))
    return renewed.bundle_of(rule, plan, schedule=np.ones(steps), evaluations=steps // 4, rates=(rate,))


def contestant(locator: str, steps: int) -> Bundle:
    return make_bundle(rule=find_rule(locator), seeds=(0,), rates=(0.01,), basis=False, steps=steps)


def refreshed(rule: str, steps: int) -> Bundle:
    return make_bundle(rule=RULES[rule].choose({"refresh_every": 5}), rates=(0.01,), basis=False, steps=steps)


BUNDLES: dict[str, Callable[[int], Bundle]] = {  # functions of the number of steps
    "lanes in a basis": lambda steps: make_bundle(rule=RULES["adam"], rates=(0.05, 1e30), steps=steps),
    "shampoo": partial(refreshed, "shampoo"),
    "soap": partial(refreshed, "soap"),
    "model state": lambda steps: bundle_of(
        SMALL_CONVOLUTION, RULES["adamw"], seeds=(0,), rates=1, steps=steps
    ),
    "losses": lambda steps: make_bundle(with_losses.WORKLOAD, rule=RULES["sgd"], evaluations=2, steps=steps),
    "a stop": lambda steps: make_bundle(batch_size=None, stop_gradient_norm=0.4, basis=False, steps=steps),
    "basis anew": partial(basis_anew, "adam", 0.05),
    "divergence": partial(basis_anew, "adagrad", 1e200),
    "streamed": lambda steps: streamed.bundle_of(streamed.Noisy(), "validation_loss", steps=steps),
    "wrapped lanes in a basis": lambda steps: make_bundle(rule=find_rule("adam+schedule_free"), steps=steps),
    "an average of soap": lambda steps: make_bundle(
        rule=find_rule("soap+cautious+ema").choose({"refresh_every": 5}), basis=False, steps=steps
    ),
    "nadam of torch": partial(contestant, "torch:torch.optim.NAdam"),
    "nadam of optax": partial(contestant, "optax:optax.nadam"),
}
CASES = [
    ("lanes in a basis", "torch", "float64"),
    ("lanes in a basis", "jax", "bfloat16"),
    ("lanes in a basis", "torch", "bfloat16"),
    pytest.param("shampoo", "jax", "float32", marks=pytest.mark.long),
    ("soap", "torch", "float32"),
    ("model state", "torch", "float32"),
    pytest.param("model state", "jax", "float32", marks=pytest.mark.long),
    ("losses", "torch", "float32"),
    ("losses", "jax", "float32"),
    ("a stop", "torch", "float64"),
    ("basis anew", "torch", "float64"),
    ("basis anew", "jax", "float64"),
    ("divergence", "torch", "float64"),
    ("streamed", "torch", "float64"),
    ("wrapped lanes in a basis", "torch", "float64"),
    ("wrapped lanes in a basis", "jax", "float64"),
    ("an average of soap", "torch", "float32"),
    ("nadam of torch", "torch", "float64"),
    ("nadam of optax", "jax", "float32"),
]


class Ended(BaseException):
    """Raised to end a run; no handler of exceptions catches it."""


class EndingClock(Clock):
    """Clock that ends a run at the start of the phase with a given number."""

    def __init__(self, phases: int) -> None:
        super().__init__()
        self.left = phases

    @contextmanager
    def phase(self, name: str, part: str | None = None) -> Iterator[None]:
        self.left -= 1
        if not self.left:
            raise Ended
        with super().phase(name, part):
            yield


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit segments to two steps, as in long runs, and those of runs with checkpoints to one step."""
    monkeypatch.setattr(execution, "SEGMENT_SECONDS", 0.0)
    monkeypatch.setattr(inputs, "MIN_SEGMENT_PRODUCTS", 1)
    monkeypatch.setattr(inputs, "MIN_SEGMENTS", STEPS // 2)


def assert_identical(one: Trajectories, other: Trajectories) -> None:
    assert list(one.metrics) == list(other.metrics)
    for name, values in one.metrics.items():
        assert values.tobytes() == other.metrics[name].tobytes(), name
    for name in ("steps", "diverged_at", "stopped_at", "closure_gradients"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.state_bytes == other.state_bytes


@pytest.mark.parametrize(("name", "backend", "precision"), CASES)
def test_a_run_ended_often_is_the_undisturbed_one(name: str, backend: str, precision: str, tmp_path: Path):
    bundle = BUNDLES[name](STEPS)
    undisturbed = execute(bundle, engine(backend, precision))
    chance, folder, found = random.Random(0), tmp_path / "run", None
    for _ in range(3):
        made, kept = engine(backend, precision), Checkpoints(folder, {"run": name}, **EVERY_PIECE)
        with pytest.raises(Ended):
            execute(bundle, made, EndingClock(chance.randint(9, 12)), checkpoints=kept)
    made, clock = engine(backend, precision), Clock()
    found = execute(bundle, made, clock, checkpoints=Checkpoints(folder, {"run": name}, **EVERY_PIECE))
    assert_identical(undisturbed, found)
    assert sum("went on at" in note for note in made.notes) >= 2
    assert 0 < clock.earlier < sum(clock.seconds.values())
    assert len(list(folder.glob("*.npz"))) == 2, "the last ones are kept"


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_a_run_whose_loss_and_updates_are_compiled_goes_on(compiler: str, tmp_path: Path):
    """A captured graph continues from a checkpoint; the real compiler changes nothing of that in 25 s."""
    bundle = make_bundle(rule=RULES["adamw"], seeds=(0,), rates=(0.01,), basis=False)

    def compiling() -> TorchEngine:
        return TorchEngine(
            "float32", "cpu", compiler=compiler, worth_compiling=0, loss_worth_compiling=0, fused=False
        )

    undisturbed = execute(bundle, compiling())
    with pytest.raises(Ended):
        execute(bundle, compiling(), EndingClock(14), checkpoints=checkpoints(tmp_path))
    made = compiling()
    assert_identical(undisturbed, execute(bundle, made, checkpoints=checkpoints(tmp_path)))
    assert any("went on at" in note for note in made.notes)
    assert any("compiled as one graph" in note for note in made.notes)


def test_the_record_of_a_run_comes_back():
    lanes = np.arange(6.0).reshape(2, 3)
    rows = [{"loss": sign * lanes, "closure_gradients": np.array(count)} for sign, count in ((1, 0), (-1, 3))]
    record, again = RunHistory(lanes + 0.5, rows=rows), RunHistory(np.zeros_like(lanes))
    again.restore(9, record.arrays())
    assert (again.done, again.columns.keys()) == (9, record.columns.keys())
    np.testing.assert_array_equal(again.seconds, record.seconds)
    for name, values in record.columns.items():
        np.testing.assert_array_equal(again.columns[name], values)


# --- files ---------------------------------------------------------------------------------------


def of(done: int) -> Checkpoint:
    arrays = {"matrix": np.arange(float(done)), "bits": np.arange(done, dtype=np.uint16)}
    return Checkpoint(done, arrays, {"step": 0.1}, [])


def checkpoints(folder: Path, run: str = "one") -> Checkpoints:
    return Checkpoints(folder, {"spec": run, "lanes": (0, 1)}, **EVERY_PIECE)


def newest(kept: Checkpoints) -> int | None:
    def check(found: Checkpoint) -> int:
        for name, values in of(found.done).arrays.items():
            np.testing.assert_array_equal(found.arrays[name], values)
        return found.done

    return kept.newest(check)


def test_the_last_two_are_kept_and_removed_with_their_folder(tmp_path: Path):
    kept = checkpoints(tmp_path / "checkpoints" / "job" / "lanes")
    assert newest(kept) is None
    assert not (tmp_path / "checkpoints").exists(), "looking for one makes no folder"
    for done in (4, 8, 16):
        kept.save(of(done))
        # Temporary file of a process that was killed.
        (kept.folder / ".1-abcd.000000000008.npz").write_bytes(b"half")
    kept.save(of(32))
    assert [path.name for path in sorted(kept.folder.iterdir())] == ["000000000016.npz", "000000000032.npz"]
    assert newest(kept) == 32
    kept.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_noted_on_the_way_goes_from_checkpoint_to_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The notes say how often a run resumed, after which step, and why a later checkpoint was not used."""
    notes = ["compiled"]
    (tmp_path / "000000000008.npz").write_bytes(b"half")
    for second in (60.0, 120.0):
        checkpoints(tmp_path).save(replace(of(4), notes=notes))
        os.utime(tmp_path / "000000000004.npz", (0, 0))
        monkeypatch.setattr("curvebench.engine.checkpoints.time.time", lambda at=second: at)
        kept = checkpoints(tmp_path)
        assert newest(kept) == 4
        notes = kept.notes
    day = "1970-01-01 00:0"
    why, *others = notes
    assert why.startswith("run: cannot go on after step 8")
    assert others == [
        "compiled",
        *(f"run: went on at {day}{n}:00+00:00 after step 4, kept at {day}0:00+00:00" for n in (1, 2)),
    ]
    assert capsys.readouterr().err.splitlines() == [why, *others[1:]], "the terminal shows it too, once"


@given(st.data())
def test_a_damaged_one_is_passed_over(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    """Cut short, or with bytes that are others: what is read is right, or is not read."""
    kept = checkpoints(tmp_path_factory.mktemp("kept"))
    for done in (4, 8):
        kept.save(of(done))
    path = kept.folder / "000000000008.npz"
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:at])
    else:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
    found = newest(kept)
    assert found in (4, 8)
    assert path.exists() == (found == 8), "what cannot be read is removed"
    assert any("cannot go on after step 8" in note for note in kept.notes) == (found == 4)


def test_one_of_another_run_is_refused(tmp_path: Path):
    checkpoints(tmp_path).save(of(8))
    other = checkpoints(tmp_path, "two")
    assert newest(other) is None
    assert "another run" in other.notes[0]


def test_a_disk_that_takes_none_is_noted_and_the_run_goes_on(tmp_path: Path):
    (tmp_path / "file").write_text("")
    made, kept = engine("torch", "float64"), checkpoints(tmp_path / "file" / "run")
    bundle = make_bundle()
    assert_identical(execute(bundle, engine("torch", "float64")), execute(bundle, made, checkpoints=kept))
    assert any("no checkpoint after step 2" in note for note in made.notes)


def test_saving_takes_a_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a clock that goes on by 3 seconds a look: the next is due after 100 times what the last one took."""
    now = iter(range(0, 10**6, 3))
    monkeypatch.setattr("curvebench.engine.checkpoints.time.monotonic", lambda: float(next(now)))
    kept = Checkpoints(tmp_path, {}, every=10.0, share=0.01)
    kept.save(of(4))
    assert kept.pause == 300.0


# --- when ----------------------------------------------------------------------------------------


class Asked(KeyboardInterrupt):
    """Raised by the handler of SIGTERM of a job."""


@pytest.fixture
def asked() -> Iterator[list[int]]:
    """Set a handler of SIGTERM that raises `Asked`, and yield the list of the signals that arrived."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise Asked

    before = signal.signal(signal.SIGTERM, handle)
    yield came
    assert signal.getsignal(signal.SIGTERM) is handle, "it is handled as before"
    signal.signal(signal.SIGTERM, before)


def terminating(at: int) -> Callable[[int], None]:
    return lambda done: os.kill(os.getpid(), signal.SIGTERM) if done == at else None


@pytest.mark.parametrize("worth", [0.0, 3600.0])
def test_a_run_asked_to_end_is_kept_where_it_is_worth_it(worth: float, asked: list[int], tmp_path: Path):
    kept = Checkpoints(tmp_path / "run", {}, worth=worth)
    with pytest.raises(Asked), kept.termination:
        execute(make_bundle(), engine("torch", "float64"), None, terminating(6), kept)
    assert asked == [signal.SIGTERM]
    names = [path.name for path in (tmp_path / "run").glob("*")]
    assert names == ([] if worth else ["000000000006.npz"])


def test_a_sigterm_waits_and_is_handled_once(asked: list[int]):
    with DeferredTermination() as deferred:
        deferred.begin()
        for _ in range(2):  # Slurm tells every process, and its parent tells it again
            os.kill(os.getpid(), signal.SIGTERM)
        assert deferred.came
        assert not asked
        with pytest.raises(Asked):
            deferred.pass_on()
    assert len(asked) == 1


def test_pieces_are_cut_by_how_long_steps_took(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(execution, "SEGMENT_SECONDS", 5.0)
    pace, found = Pace(), list[int]()
    then = (1.2, 60.0, 2.0, 0.01, 60.0, 60.0, 60.0, 60.0)  # seconds that a step of each takes
    for length, seconds in zip(pace.divide([7, 7, 3]), then, strict=True):
        found.append(length)
        pace.step_seconds = seconds
    assert found == [*(1, 4, 1, 1), 7, *(1, 1, 1)]


# --- pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("examples", "steps", "evaluations", "longest"),
    [
        (300, 16_000, 80, 200),  # below the least work: as it was
        (300, 400_000, 1, 10_000),  # each step costs its calls
        (4_000_000, 16_000, 1, 104),  # 24 * 4e6 products a step: by the work
        (4_000_000, 500_000, 1, 500),  # a thousandth of the run is longer
        (10**10, 2_000, 2, 2),
    ],
)
def test_pieces_of_long_runs_are_short_and_of_few_lengths(
    examples: int, steps: int, evaluations: int, longest: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.undo()
    monkeypatch.setattr(Bundle, "batch_size", examples)
    bundle = make_bundle(batch_size=None, steps=steps, evaluations=evaluations)
    lengths = inputs.equal_lengths(steps, evaluations)
    pieces = [split_interval(bundle, length) for length in lengths]
    assert [sum(each) for each in pieces] == lengths
    found = {piece for each in pieces for piece in each}
    assert max(found) == longest
    assert len(found) <= 2
