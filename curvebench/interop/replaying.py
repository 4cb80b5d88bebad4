"""Update rules called from plain Python with gradients that the caller has computed.

Rules can be executed with JAX, PyTorch or NumPy. This module is used by tests with reference implementations,
by property claims, and by the comparison of backends. The update is the code that runs execute
(`Program.apply`). A basis is a change of coordinates in which a rule works, given by an orthogonal matrix V.
The needs of a rule are values that it uses in addition to the gradient. A need is amortized if only some
steps use it. Source 000 is the EGOP paper (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.arrays.ops import Array, Ops
from curvebench.backends import BACKENDS
from curvebench.interop import FLOATS, chosen, completed
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import Rule
from curvebench.spec.errors import InputError, check_known
from curvebench.steps.derivatives import StepInfo, model_of
from curvebench.steps.layout import by_name, end_to_end, layout, roles_of
from curvebench.steps.program import Constants, Inputs, Program
from curvebench.steps.update import Update, Work
from curvebench.workloads.workload import Role

Basis = np.ndarray | Mapping[str, np.ndarray] | None


def _blocks(basis: Basis, params: Mapping[str, np.ndarray]) -> dict[tuple[str, ...], np.ndarray]:
    """Return the matrices V of a basis, by the names of the parameters that each matrix changes together.

    Raises:
        InputError: when a parameter is unknown, or a matrix has a wrong shape or is not orthogonal.
    """
    if basis is None:
        return {}
    blocks: dict[tuple[str, ...], np.ndarray]
    if isinstance(basis, Mapping):
        blocks = {(name,): np.asarray(matrix, np.float64) for name, matrix in basis.items()}
    else:
        blocks = {tuple(params): np.asarray(basis, np.float64)}
    for group, matrix in blocks.items():
        check_known("the basis", "parameter", group, params)
        owner, size = f"basis of {', '.join(group)}", sum(params[name].size for name in group)
        if matrix.shape != (size, size):
            raise InputError(f"{owner}: the matrix has shape {matrix.shape} and needs {(size, size)}")
        error = float(np.abs(matrix.T @ matrix - np.eye(size)).max())
        if not error < 1e-6:
            raise InputError(f"{owner}: the matrix is not orthogonal (|V^T V - I| reaches {error:.1e})")
    return blocks


def _checked(grads: Mapping[str, Any], params: Mapping[str, Any], number: int) -> dict[str, np.ndarray]:
    """Check gradients, and return them as NumPy arrays in the order of the parameters.

    Args:
        grads: gradients by parameter name.
        params: a mapping from parameter names to arrays.
        number: number of the step, for messages.

    Raises:
        InputError: when the name of a parameter is missing or unknown, or a gradient has a wrong shape.
    """
    if set(grads) != set(params):
        raise InputError(
            f"grads of step {number} name {sorted(grads)} where the parameters are {sorted(params)}"
        )
    arrays = {name: np.asarray(grads[name]) for name in params}
    for name, array in arrays.items():
        if array.shape != np.shape(params[name]):
            raise InputError(
                f"grads of step {number}: {name} has shape {array.shape}, "
                f"its parameter has {np.shape(params[name])}"
            )
    return arrays


class Online:
    """An optimizer that receives one gradient at a time. A gradient may depend on the latest parameters.

    The update is the code that runs of studies execute, compiled in the same way.

    Args:
        optimizer: name of an update rule, or a rule.
        params: a mapping from parameter names to initial values.
        hyper: hyperparameters by full name. Hyperparameters with a default may be omitted.
        backend: `jax`, `torch` or `numpy`.
        dtype: precision, `float64` or `float32`.
        basis: orthogonal matrix V for all parameters, or a mapping from names of some parameters to matrices
            V (see `replay`); None for no basis.
        options: options of the optimizer by name. Omitted options have their defaults.
        kinds: a mapping from names of parameters to kinds or roles. For an omitted parameter, the number of
            axes decides the kind.

    Raises:
        InputError: when a name is unknown, an option, value or shape is wrong, or a matrix is not orthogonal.

    Example:
        >>> import numpy as np
        >>> from curvebench import Online
        >>> optimizer = Online("momentum", {"x": np.array([4.0])}, {"learning_rate": 0.5, "momentum": 0.5})
        >>> for _ in range(3):
        ...     gradient = optimizer.params["x"]  # of x^2 / 2
        ...     print(optimizer.step({"x": gradient})["x"])
        [2.]
        [0.]
        [-1.]
    """

    def __init__(
        self,
        optimizer: str | Rule,
        params: Mapping[str, Any],
        hyper: Mapping[str, float],
        backend: str = "numpy",
        dtype: str = "float64",
        basis: Basis = None,
        options: Options | None = None,
        kinds: Mapping[str, str | Role] | None = None,
    ) -> None:
        rule = chosen(optimizer, options)
        values = completed(rule, hyper)
        check_known("curvebench", "backend", [backend], (*BACKENDS, "numpy"))
        if dtype not in FLOATS:
            raise InputError(f"dtype = {dtype!r} is not one of {', '.join(FLOATS)}")
        start = {name: np.asarray(value, dtype) for name, value in params.items()}
        if not start:
            raise InputError("params is empty; give at least one named array")
        blocks = _blocks(basis, start)
        shapes = {name: value.shape for name, value in start.items()}
        try:
            rule.check_dtype(dtype)
            update = Update(rule, layout(shapes, roles_of(shapes, kinds), tuple(blocks)))
            # The property `groups` raises an OptionError if an option is wrong for a shape.
            assert update.groups
        # `layout` raises other kinds of ValueError.
        except ValueError as error:
            raise InputError(str(error)) from error
        self._ops, self._context, self._compile = _tools(backend, dtype)
        self._dtype, self._start, self._steps = dtype, start, 0
        self._program = Program(self._ops, update, _no_evaluation, parameter_dtype=self._ops.dtype)
        self._compiled: dict[int, Any] = {}  # compiled updates by the amortized work of a step
        with self._context():
            self._constants = Constants(
                data={},
                rows=None,
                matrices=tuple(self._ops.asarray(matrix[None]) for matrix in blocks.values()),
                hyper={name: self._ops.asarray(np.full((1, 1, 1), value)) for name, value in values.items()},
            )
            self._carry = self._program.start(self._lane(start), {}, self._constants)

    @property
    def params(self) -> dict[str, np.ndarray]:
        """Mapping from parameter names to current values, in the original coordinates even with a basis."""
        with self._context():
            return self._named(self._program.parameters(self._carry.coordinates, self._constants.matrices))

    def gradient_at(self, schedule: float = 1.0) -> dict[str, np.ndarray]:
        """Return the point at which the optimizer requires its next gradient.

        The point is a mapping from parameter names to arrays.

        For most optimizers, this point is the current parameters. Some optimizers, such as
        `nesterov_lookahead`, require the gradient at another point.

        Args:
            schedule: factor by which the learning rate is multiplied in the next `step`.
        """
        with self._context():
            return self._named(self._program.point(self._carry, self._constants, self._inputs(schedule)))

    @property
    def evaluation_point(self) -> dict[str, np.ndarray]:
        """Point at which the optimizer is judged, by parameter name.

        For most optimizers, this point is `params`. For a rule such as `adamw+ema`, it is an average.
        """
        with self._context():
            return self._named(self._program.evaluation_point(self._carry, self._constants))

    def step(self, grads: Mapping[str, Any], schedule: float = 1.0, **needed: Any) -> dict[str, np.ndarray]:
        """Update the parameters, and return a mapping from their names to the new values.

        Args:
            grads: gradients by parameter name, in the original coordinates.
            schedule: factor by which the learning rate is multiplied in this step.
            needed: a mapping from the names of the rule's needs to values, such as a `hessian` of shape (d,
                d), where d is the number of entries of all parameters. The rows and columns of the Hessian
                are in the order in which the parameters were given, with each parameter flattened in
                row-major order.

        Raises:
            InputError: when a name or shape is wrong, or a need of the rule is missing.
        """
        program, number = self._program, self._steps + 1
        arrays = _checked(grads, self._start, number)
        work = program.update.work_of(number)
        with self._context():
            info = StepInfo(self._ops.zeros((1, 1)), self._lane(arrays), {}, self._needed(needed, work))
            arguments = (self._carry, info, self._constants, self._inputs(schedule))
            if work not in self._compiled:
                self._compiled[work] = self._compile(partial(program.apply, work=work), *arguments)
            self._carry = self._compiled[work](*arguments)
            self._steps = number
            return self.params

    def _inputs(self, schedule: float) -> Inputs:
        asarray = self._ops.asarray
        return Inputs(asarray(np.array(float(self._steps + 1))), asarray(np.array(float(schedule))))

    def _lane(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """Convert named arrays to arrays of the backend with axes of seed and setting, (1, 1, ...)."""
        asarray, dtype = self._ops.asarray, self._dtype
        return {name: asarray(np.asarray(arrays[name], dtype)[None, None]) for name in self._start}

    def _needed(self, values: Mapping[str, Any], work: Work) -> dict[str, Any]:
        """Check the values of the rule's needs, and return them with axes of seed and setting, (1, 1, ...).

        Args:
            values: a mapping from the names of needs to values. Entries of a value are in the order in which
                the parameters were given; in the result, the entries are in the order of the layout.
            work: amortized work of the step. Amortized needs are required only at steps whose work includes
                OBSERVE.

        Raises:
            InputError: when a name is unknown, or a value is missing or has a wrong shape.
        """
        update, asarray = self._program.update, self._ops.asarray
        user_shapes = {name: value.shape for name, value in self._start.items()}
        indices = by_name(numpy_ops(), user_shapes, np.arange(update.layout.entries))
        order = end_to_end(numpy_ops(), update.layout.parameters, indices, 0)
        check_known(update.rule.name, "need", values, {need.name for need in update.bound.needs})
        lanes = {}
        for need in update.bound.needs:
            if need.amortized and not work & Work.OBSERVE:
                continue
            value, example = values.get(need.name), need.example(model_of(update.layout))
            first = 1 if need.is_gaussian else 0
            if value is None or _shapes(value, first) != _shapes(example, first):
                raise InputError(
                    f"{update.rule.name} needs {need.description} of shape {_shapes(example)} at every step"
                    f"{' that observes' if need.amortized else ''}, and got "
                    f"{'none' if value is None else _shapes(value)}"
                )
            lane = map_arrays(lambda array: np.asarray(array, np.float64)[None, None], value)
            if need.change_basis is not None:
                lane = need.change_basis(numpy_ops(), lambda flat: flat[..., order], lane)
            lanes[need.name] = map_arrays(lambda array: asarray(np.asarray(array, self._dtype)), lane)
        return lanes

    def _named(self, params: Mapping[str, Array]) -> dict[str, np.ndarray]:
        return {name: np.array(self._ops.to_numpy(params[name])[0, 0]) for name in self._start}


def _shapes(value: Any, first: int = 0) -> Any:
    """Return the shape of an array, or the shapes of nested mappings of arrays, from the axis `first` on."""
    return map_arrays(lambda array: np.shape(array)[first:], value)


def replay(
    optimizer: str,
    params: Mapping[str, Any],
    grads: Sequence[Mapping[str, Any]],
    hyper: Mapping[str, float],
    backend: str,
    dtype: str = "float64",
    basis: Basis = None,
    options: Options | None = None,
    kinds: Mapping[str, str | Role] | None = None,
    needs: Sequence[Mapping[str, Any] | None] | None = None,
) -> list[dict[str, np.ndarray]]:
    """Feed a sequence of gradients to an optimizer, and return the parameters after each step.

    Args:
        optimizer: name of an update rule; `curvebench list` prints the names.
        params: a mapping from parameter names to initial values, arrays of any shape.
        grads: for each step, the gradients by parameter name, with the shapes of `params`, in the original
            coordinates even if a basis is given.
        hyper: hyperparameters by full name. Hyperparameters with a default may be omitted.
        backend: `jax`, `torch` or `numpy`.
        dtype: precision, `float64` or `float32`.
        basis: orthogonal matrix V whose columns are the basis vectors. The optimizer receives V^T theta
            instead of the parameters theta (000 Alg. 2.1). Give one matrix (d, d) for all parameters
            together, where theta contains the parameters in the order of `params`, each flattened in
            row-major order; or a mapping from names of parameters to matrices, each for one parameter. None
            for no basis.
        options: options of the optimizer by name. Omitted options have their defaults.
        kinds: a mapping from names of parameters to kinds, such as `weight`, `convolution` or `bias`, or to
            roles, which consist of a kind and the number of a layer. For an omitted parameter, the number of
            axes decides the kind, and layers are numbered in the order of `params`
            (curvebench.steps.layout.roles_of).
        needs: for each step, a mapping from the names of the rule's needs to values: a `hessian` (d, d), with
            rows and columns in the order of theta (see `basis`), or, for rules such as K-FAC, statistics of
            the `layers` at the steps that use them; None for a step that uses no such values.

    Returns:
        For each step, a mapping from parameter names to the values after the step, in the original
        coordinates.

    Raises:
        InputError: when a name is unknown, an option, value or shape is wrong, or a matrix is not orthogonal.

    Example:
        >>> import numpy as np
        >>> from curvebench import replay
        >>> grads = [{"x": np.array([1.0, -1.0])}] * 2
        >>> steps = replay("sgd", {"x": np.zeros(2)}, grads, {"learning_rate": 0.1}, "numpy")
        >>> [step["x"].tolist() for step in steps]
        [[-0.1, 0.1], [-0.2, 0.2]]
    """
    if needs is not None and len(needs) != len(grads):
        raise InputError(f"needs: there are {len(needs)} for {len(grads)} steps; give one a step")
    online = Online(optimizer, params, hyper, backend, dtype, basis, options, kinds)
    # Check the gradients of all steps before the first step is computed.
    for number, gradients in enumerate(grads, start=1):
        _checked(gradients, params, number)
    by_step = zip(grads, needs or [None] * len(grads), strict=True)
    return [online.step(gradients, 1.0, **(needed or {})) for gradients, needed in by_step]


def _no_evaluation(*arguments: Any) -> StepInfo:
    raise NotImplementedError("the caller computes the gradients")


def _tools(backend: str, dtype: str) -> tuple[Ops, Callable[[], AbstractContextManager[Any]], Any]:
    """Return the array functions of a backend, the context in which to call them, and its compiler.

    For NumPy, the compiler returns the given function unchanged.
    """
    if backend == "numpy":
        return numpy_ops(dtype), nullcontext, lambda function, *arguments: function
    from curvebench.backends.engine import engine

    backend_engine = engine(backend, dtype)
    return backend_engine.ops, backend_engine.context, backend_engine.compiled
