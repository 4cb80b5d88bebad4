"""The ops table: every function on three backends, its gradient on two, mapped and compiled."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
import scipy.signal
import torch

from curvebench.arrays.jax_ops import DECOMPOSITIONS, Bases, jax_ops
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.arrays.ops import LARGE, Ops
from curvebench.arrays.torch_ops import SingleRunOps, TorchOps, torch_ops
from tests.conftest import ROOT
from tests.curvebench.operations import CASES, FILTERS, IMAGES, Case

MAKERS: dict[str, Callable[[str], Ops]] = {
    "numpy": numpy_ops,
    "jax": jax_ops,
    "torch": lambda dtype: torch_ops("cpu", dtype),
}
SMOOTH = {name: case for name, case in CASES.items() if case.smooth}
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}  # relative to the largest entry


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    """JAX with float64 allowed, where float32 must stay float32 all the same."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def cases(table: dict[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", table.values(), ids=[re.sub(r"\W+", "_", name) for name in table])


def parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def assert_close(ours: Any, expected: Any, tolerance: float) -> None:
    scale = max(1.0, np.max(np.abs(np.nan_to_num(np.asarray(expected, float))), initial=0.0))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * scale)


def weighted(ops: Ops, case: Case) -> Callable[..., Any]:
    """Return a function of the real inputs: the sum of all entries of the result, with different weights."""

    def value(*inputs: Any) -> Any:
        total = 0.0
        for part in parts(case.call(ops, *inputs)):
            flat = ops.reshape(part, (-1,))
            total = total + ops.sum(flat * ops.cos(ops.arange(flat.shape[0])))
        return total

    return value


def real(case: Case) -> tuple[int, ...]:
    return tuple(index for index, x in enumerate(case.inputs) if x.dtype.kind == "f")


def lanes(case: Case) -> list[np.ndarray]:
    """Return the inputs of two lanes: as they are, and with the reals pulled towards 0 by one per cent."""
    return [np.stack([x, x * 0.99 if x.dtype.kind == "f" else x]) for x in case.inputs]


# --- every function ------------------------------------------------------------------------------


def test_every_function_of_the_table_is_tested():
    methods = {name for name, member in vars(Ops).items() if callable(member) and name[0] != "_"}
    fields = {field.name for field in dataclasses.fields(Ops)} - {"backend", "dtype", "to_numpy"}
    assert {re.split(r"[ ,]", name)[0] for name in CASES} == fields | methods


@cases(CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lanes_on_backends_equal_lanes_alone_in_their_precision(case: Case, dtype: str):
    oracle = numpy_ops("float64")
    alone = [parts(case.call(oracle, *inputs)) for inputs in zip(*lanes(case), strict=True)]
    expected = [np.stack(results) for results in zip(*alone, strict=True)]

    def mapped(vmap: Callable[..., Any], ops: Ops) -> list[np.ndarray]:
        results = vmap(lambda *inputs: case.call(ops, *inputs))(*map(ops.asarray, lanes(case)))
        return [ops.to_numpy(part) for part in parts(results)]

    table = numpy_ops(dtype)
    narrow = [
        parts(case.call(table, *map(table.asarray, inputs))) for inputs in zip(*lanes(case), strict=True)
    ]
    for results in (
        [np.stack(part) for part in zip(*narrow, strict=True)],
        mapped(lambda call: jax.jit(jax.vmap(call)), jax_ops(dtype)),
        mapped(torch.func.vmap, torch_ops("cpu", dtype)),
    ):
        assert len(results) == len(expected)
        for ours, right in zip(results, expected, strict=True):
            assert ours.dtype == (dtype if right.dtype.kind == "f" else right.dtype)
            assert ours.shape == right.shape
            assert_close(ours, right, TOLERANCE[dtype])


@cases(SMOOTH)
def test_gradients_agree_alone_and_mapped(case: Case):
    numbers = real(case)
    table = jax_ops("float64")
    on_jax = jax.jit(jax.vmap(jax.grad(weighted(table, case), numbers)))(*map(table.asarray, lanes(case)))
    ops = torch_ops("cpu", "float64")
    gradient, inputs = torch.func.grad(weighted(ops, case), numbers), [*map(ops.asarray, lanes(case))]
    mapped = torch.func.vmap(gradient)(*inputs)
    alone = [gradient(*(x[lane] for x in inputs)) for lane in range(2)]
    assert len(on_jax) == len(mapped) == len(numbers)
    for index, expected in enumerate(on_jax):
        assert_close(mapped[index].numpy(), expected, 1e-12)
        assert_close(torch.stack([found[index] for found in alone]).numpy(), expected, 1e-12)


@cases(CASES)
def test_torch_compiles_it_without_a_break(case: Case):
    ops = torch_ops("cpu", "float64")
    inputs = [ops.asarray(x) for x in case.inputs]
    torch.compiler.reset()
    compiled = torch.compile(lambda *inputs: case.call(ops, *inputs), fullgraph=True, backend="eager")
    for ours, expected in zip(parts(compiled(*inputs)), parts(case.call(ops, *inputs)), strict=True):
        assert_close(ours.numpy(), expected.numpy(), 1e-15)


DECOMPOSITIONS_ON_TWO_THREADS = """
import jax, numpy as np
from curvebench.arrays.jax_ops import jax_ops
jax.config.update("jax_enable_x64", True)
square = np.random.default_rng(0).normal(size=(6, 8, 64, 64))
matrices = list(square @ square.swapaxes(2, 3) / 64 + np.eye(64))
ops = jax_ops("float64")
for decompose in (lambda x: ops.solve(x, x), ops.cholesky, ops.triangular_inverse, ops.qr, ops.eigh):
    program = jax.jit(lambda matrices: [decompose(each) for each in matrices])
    for _ in range(40):
        jax.block_until_ready(program(matrices))
"""


def test_decompositions_do_not_wait_for_each_other_on_two_threads():
    command, there = [sys.executable, "-c", DECOMPOSITIONS_ON_TWO_THREADS], {**os.environ, "NPROC": "2"}
    subprocess.run(command, check=True, env=there, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions_are_the_same_on_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch):
    case = next(case for label, case in CASES.items() if name in label)
    one = jax_ops("float64")
    monkeypatch.setenv("NPROC", "2")
    several = jax_ops("float64")
    assert getattr(one, name) is not getattr(several, name)
    inputs = [one.asarray(x) for x in lanes(case)]
    for mapped in (lambda call: call, jax.vmap):
        found, expected = (jax.jit(mapped(partial(case.call, ops)))(*inputs) for ops in (several, one))
        for ours, right in zip(parts(found), parts(expected), strict=True):
            np.testing.assert_array_equal(ours, right)
    ours, right = (jax.grad(weighted(ops, case), real(case))(*inputs) for ops in (several, one))
    for gradient, expected in zip(ours, right, strict=True):
        np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("shapes", [((3, 1, 5, 5), (4, 5, 2)), ((5, 5), (3, 5, 2)), ((3, 5, 5), (5, 2))])
def test_leading_axes_of_equations_broadcast_on_any_number_of_threads(
    shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NPROC", "2")
    ops, random = jax_ops("float64"), np.random.default_rng(0)
    matrices, right = (random.normal(size=shape) for shape in shapes)
    with jax.enable_x64():
        found = ops.solve(ops.asarray(matrices), ops.asarray(right))
    np.testing.assert_allclose(found, np.linalg.solve(matrices, right), rtol=1e-12)


# --- what the three have in common must be right too -----------------------------------------------


def test_conv2d_is_a_correlation():
    padded = np.pad(IMAGES, ((0, 0), (0, 0), (1, 1), (1, 1)))
    ours = numpy_ops().conv2d(IMAGES, FILTERS, stride=2, padding=1)
    for image in range(2):
        for output in range(4):
            planes = [
                scipy.signal.correlate2d(padded[image, c], FILTERS[output, c], "valid") for c in range(3)
            ]
            np.testing.assert_allclose(ours[image, output], sum(planes)[::2, ::2], atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_a_weighted_mean_of_values(causal: bool):
    query, key, value = np.random.default_rng(1).standard_normal((3, 4, 5))
    ours = numpy_ops().attention(query, key, value, causal=causal)
    for token in range(4):
        seen = token + 1 if causal else 4
        weights = np.exp(key[:seen] @ query[token] / np.sqrt(5))
        np.testing.assert_allclose(ours[token], weights @ value[:seen] / weights.sum(), rtol=1e-12)


def test_norms_are_those_of_pytorch():
    rng, functional = np.random.default_rng(2), torch.nn.functional
    x = rng.normal(3.0, 2.0, (6, 4, 5, 5))
    scale, shift, mean = rng.normal(size=(3, 5))
    ops, tensor = numpy_ops(), torch.tensor
    of_rows = functional.layer_norm(tensor(x), (5,), tensor(scale), tensor(shift), 1e-2)
    np.testing.assert_allclose(ops.layer_norm(x, scale, shift, 1e-2), of_rows, atol=1e-12)
    running = tensor(mean[:4]), tensor(np.exp(scale[1:]))
    given = tensor(scale[:4]), tensor(shift[:4])
    known = functional.batch_norm(tensor(x), *running, *given, False, 0.1, 1e-2)
    found = ops.batch_norm(x, mean[:4], np.exp(scale[1:]), scale[:4], shift[:4], 1e-2)
    np.testing.assert_allclose(found, known, atol=1e-12)
    of_batch = functional.batch_norm(tensor(x), None, None, *given, True, 0.1, 1e-2)
    normal, batch_mean, variance = ops.batch_norm_in_training(x, scale[:4], shift[:4], 1e-2)
    np.testing.assert_allclose(normal, of_batch, atol=1e-12)
    np.testing.assert_allclose(batch_mean, x.mean((0, 2, 3)))
    np.testing.assert_allclose(variance, x.var((0, 2, 3)))


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_batch_without_variance_has_variance_zero(backend: str):
    ops = MAKERS[backend]("float32")
    x = ops.asarray(np.full((4, 3), 7.0))
    normal, _, variance = ops.batch_norm_in_training(x, ops.asarray(np.ones(3)), ops.zeros((3,)), 1e-5)
    np.testing.assert_allclose(ops.to_numpy(normal), 0, atol=1e-3)  # the mean's rounding over sqrt(epsilon)
    assert (ops.to_numpy(variance) >= 0).all()
    np.testing.assert_allclose(ops.to_numpy(variance), 0, atol=1e-10)


@pytest.mark.parametrize("backend", MAKERS)
def test_decompositions_decompose(backend: str):
    ops = MAKERS[backend]("float64")
    x = np.random.default_rng(3).standard_normal((2, 5, 3))
    square = x @ x.swapaxes(-1, -2) + np.eye(5)

    def host(*values: Any) -> list[np.ndarray]:
        return [ops.to_numpy(value) for value in values]

    values, vectors = host(*ops.eigh(ops.asarray(square)))
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(square @ vectors, vectors * values[..., None, :], atol=1e-12)
    q, r = host(*ops.qr(ops.asarray(x)))
    assert q.shape == (2, 5, 3)
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(np.tril(r, -1), 0)
    u, s, vh = host(*ops.svd(ops.asarray(x)))
    assert (u.shape, s.shape, vh.shape) == ((2, 5, 3), (2, 3), (2, 3, 3))
    assert (np.diff(s) <= 0).all()
    np.testing.assert_allclose(u * s[..., None, :] @ vh, x, atol=1e-12)
    (lower,) = host(ops.cholesky(ops.asarray(square)))
    np.testing.assert_allclose(lower @ lower.swapaxes(-1, -2), square, atol=1e-12)
    (inverse,) = host(ops.cholesky_inverse(ops.asarray(lower)))
    np.testing.assert_allclose(
        square @ inverse, np.broadcast_to(np.eye(square.shape[-1]), square.shape), atol=1e-12
    )
    (solution,) = host(ops.solve(ops.asarray(square), ops.asarray(x)))
    np.testing.assert_allclose(square @ solution, x, atol=1e-12)


# --- matrices without a result ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", MAKERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["eigh", "svd", "cholesky"])
def test_one_lane_that_is_not_finite_leaves_the_others_alone(backend: str, bad: float, name: str):
    ops = MAKERS[backend]("float64")
    x = np.stack([np.diag([3.0, 2.0, 1.0]), np.full((3, 3), bad), np.eye(3)])
    found = getattr(ops, name)(ops.asarray(x))
    for part in found if isinstance(found, tuple) else (found,):
        finite = np.isfinite(ops.to_numpy(part)).reshape(3, -1)
        assert [bool(lane.all()) for lane in finite] == [True, False, True]
        assert not finite[1].any()


@pytest.mark.parametrize("backend", MAKERS)
def test_a_singular_or_indefinite_matrix_gives_no_finite_result(backend: str):
    ops = MAKERS[backend]("float64")
    x = ops.asarray(np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones((2, 2))]))
    factors = np.isfinite(ops.to_numpy(ops.cholesky(x))).all(axis=(1, 2))
    assert factors[0]
    assert not factors[1]
    inverses = np.isfinite(ops.to_numpy(ops.cholesky_inverse(ops.cholesky(x)))).all(axis=(1, 2))
    assert inverses.tolist() == factors.tolist()
    solutions = np.isfinite(ops.to_numpy(ops.solve(x, ops.asarray(np.ones((3, 2, 1)))))).all(axis=(1, 2))
    assert solutions.tolist() == [True, True, False]


@pytest.mark.parametrize("backend", MAKERS)
def test_the_inverse_of_a_triangular_matrix_reads_the_lower_part(backend: str):
    ops = MAKERS[backend]("float64")
    singular, full = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 5.0], [2.0, 1.0]])
    inverses = ops.to_numpy(ops.triangular_inverse(ops.asarray(np.stack([singular, full]))))
    assert not np.isfinite(inverses[0]).all()
    np.testing.assert_allclose(inverses[1], [[1.0, 0.0], [-2.0, 1.0]])


@pytest.mark.parametrize("backend", MAKERS)
def test_eigh_and_cholesky_read_the_symmetric_part(backend: str):
    ops = MAKERS[backend]("float64")
    skew = np.array([[0.0, 1.0], [-1.0, 0.0]])
    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
    for function in (lambda x: ops.eigh(x)[0], ops.cholesky):
        np.testing.assert_allclose(
            ops.to_numpy(function(ops.asarray(matrix + skew))), ops.to_numpy(function(ops.asarray(matrix)))
        )


# --- ties ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda ops, x: ops.relu(x - 1), [0, 0]),
        (lambda ops, x: ops.abs(x - 1), [0, 0]),
        (lambda ops, x: ops.maximum(x, ops.ones_like(x)), [0.5, 0.5]),
        (lambda ops, x: ops.minimum(x, ops.ones_like(x)), [0.5, 0.5]),
        (lambda ops, x: ops.max(x), [0.5, 0.5]),
    ],
    ids=["relu", "abs", "maximum", "minimum", "max"],
)
def test_gradients_at_ties(call: Callable[..., Any], expected: list[float]):
    tables = jax_ops("float64"), torch_ops("cpu", "float64")
    for ops, grad in zip(tables, (jax.grad, torch.func.grad), strict=True):
        found = grad(lambda x, ops=ops: ops.sum(call(ops, x)))(ops.asarray(np.ones(2)))
        assert ops.to_numpy(found).tolist() == expected


def test_max_pooling_gives_a_tie_to_one_of_the_greatest():
    tables = jax_ops("float64"), torch_ops("cpu", "float64")
    for ops, grad in zip(tables, (jax.grad, torch.func.grad), strict=True):
        found = grad(lambda x, ops=ops: ops.sum(ops.max_pool2d(x, 2, 2)))(ops.asarray(np.ones((1, 1, 2, 2))))
        assert sorted(ops.to_numpy(found).ravel().tolist()) == [0, 0, 0, 1]


@pytest.mark.parametrize("settings", [1, 3, 5, 8, 11])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "columns", "forms"), [(LARGE + 1, LARGE, 2), (3 * LARGE, LARGE - 1, 1)])
def test_large_bases_give_equal_products(rows: int, columns: int, forms: int, settings: int, dtype: str):
    rng = np.random.default_rng(settings)
    matrices = rng.standard_normal((2, rows, columns)) / np.sqrt(rows)
    coordinates, vectors = (rng.standard_normal((2, settings, size)) for size in (columns, rows))
    table = jax_ops(dtype)
    held = table.bases(matrices)
    assert isinstance(held, Bases)
    assert len(held.transposed) + len(held.matrices) == forms * len(matrices)
    assert held.shape == matrices.shape
    assert np.array_equal(np.array(table.to_numpy(held)), matrices.astype(dtype))
    pairs = (
        (table.from_basis, coordinates, np.einsum("sij,skj->ski", matrices, coordinates)),
        (table.to_basis, vectors, np.einsum("sij,ski->skj", matrices, vectors)),
    )
    for product, given, expected in pairs:
        found = jax.jit(product)(held, table.asarray(given))
        assert found.dtype == dtype
        assert_close(found, expected, TOLERANCE[dtype])


def test_small_bases_and_those_of_a_gpu_stay_one_array():
    rng = np.random.default_rng(0)
    large, small = rng.standard_normal((1, LARGE, LARGE)), rng.standard_normal((1, LARGE, LARGE - 1))
    assert isinstance(jax_ops("float32", "gpu").bases(large), jax.Array)
    assert isinstance(jax_ops("float32").bases(small), jax.Array)


# --- PyTorch's own layers ------------------------------------------------------------------------


@cases({name: case for name, case in SMOOTH.items() if re.match("linear|attention|batch_norm", name)})
def test_layers_of_a_single_run_equal_the_written_ones(case: Case):
    written, own = torch_ops("cpu", "float64"), torch_ops("cpu", "float64", SingleRunOps)

    def value_and_gradient(ops: Ops, constant: slice) -> list[torch.Tensor]:
        inputs = [ops.asarray(x).requires_grad_() for x in case.inputs]
        for one in inputs[constant]:
            one.requires_grad_(False)
        varied = [one for one in inputs if one.requires_grad]
        return [*parts(case.call(ops, *inputs)), *torch.autograd.grad(weighted(ops, case)(*inputs), varied)]

    # statistics of batch norm have a gradient or not
    for constant in (slice(0), slice(1, 3 if len(case.inputs) == 5 else 1)):
        found, due = value_and_gradient(own, constant), value_and_gradient(written, constant)
        for ours, expected in zip(found, due, strict=True):
            assert_close(ours.detach().numpy(), expected.detach().numpy(), 1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_softmax_of_attention_in_half_precision_is_wide(causal: bool):
    """As far from float64 as the written one, in which scores are half and their softmax float32."""
    query, key, value = np.random.default_rng(1).standard_normal((3, 2, 4, 300, 16))
    due = numpy_ops().attention(query, key, value, causal=causal)
    errors = []
    for table in (SingleRunOps, TorchOps):
        ops = torch_ops("cpu", "float32", table)
        q, k, v = (ops.cast(ops.asarray(x), "bfloat16") for x in (query, key, value))
        found = ops.attention(q, k, v, causal=causal)
        assert found.dtype == torch.bfloat16
        errors.append(np.sqrt(np.mean(np.square(ops.to_numpy(found) - due))))
    assert errors[0] < 1.05 * errors[1] < 1e-2
