"""The engine of JAX, in which a segment is a compiled loop over steps.

A segment is a number of consecutive steps that one call computes. The loop reuses the buffers of the carry
that it receives. Lanes are the runs that are computed together. The amortized work of a step consists of
expensive computations of an update rule that only some steps do, such as an eigendecomposition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from curvebench.arrays.jax_ops import jax_ops
from curvebench.arrays.ops import Array
from curvebench.precision import table_of_model
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import Function
from curvebench.steps.engine import NO_GPU, Engine, Segment, multiplications
from curvebench.steps.program import Carry, Constants, Inputs, Loaded, step_of
from curvebench.steps.update import Work

Options = dict[str, bool | int]  # options of the XLA compiler
# This option keeps XLA on a CPU from copying the parameters at each step.
# XLA would copy the parameters because both the loss and the update read them.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
# A program with fewer multiplications than this number is compiled with less effort (QUICK) on a CPU.
# The smaller effort halves the compilation time (docs/performance.md).
# The slower steps of a larger program would cost more time than the faster compilation saves.
MULTIPLICATIONS_WORTH_OPTIMIZING = 5e9
QUICK: Options = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
# A program with fewer multiplications than this number is not optimized at all.
# The compilation time is then halved again.
# Programs of steps are always optimized.
# Otherwise the steps would round differently, which changes chaotic runs.
MULTIPLICATIONS_WORTH_MORE = 3e8
UNOPTIMIZED: Options = QUICK | {"xla_backend_optimization_level": 0}
# Lanes are evaluated one after another on a CPU if a batch has at least this number of examples.
# A program that evaluates all lanes at once would then take longer (docs/performance.md).
MANY_EXAMPLES = 1_000


class JaxEngine(Engine):
    """The engine of JAX; its methods are explained in the interface `curvebench.steps.engine.Engine`."""

    tree = jax.tree_util

    def __init__(self, precision: str, device: str) -> None:
        super().__init__(precision, device)
        self.ops = jax_ops(self.policy.computed, device)
        self.model_ops = self.single_run_ops = table_of_model(self.ops, self.policy)
        self.many_examples = MANY_EXAMPLES if device == "cpu" else math.inf

    def context(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(jax.enable_x64(self.ops.dtype == "float64"))
        stack.enter_context(jax.default_matmul_precision("highest"))
        stack.enter_context(jax.default_device(jax.devices(self.device)[0]))
        return stack

    def products(self) -> AbstractContextManager[Any]:
        if self.policy.products != "tf32":
            return nullcontext()
        # The context changes the precision of the operations that are traced in it.
        # The context also changes the precision of the gradients of these operations.
        return jax.default_matmul_precision("tensorfloat32")

    def vmap(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        return jax.vmap(function, in_axes=axes)

    def sequential_map(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        def mapped(*arguments: Any) -> Any:
            by_index = dict(enumerate(arguments))
            mapped_over = {index: by_index[index] for index, axis in enumerate(axes) if axis is not None}
            return jax.lax.map(lambda element: function(*{**by_index, **element}.values()), mapped_over)

        return mapped

    def value_and_grad(self, function: Function, single: bool) -> Function:
        return jax.value_and_grad(function, has_aux=True)

    def grad(self, function: Function) -> Function:
        return jax.grad(function)

    def hessian(self, function: Function) -> Function:
        return jax.hessian(function)

    def vjp(self, function: Function, point: Any, single: bool) -> tuple[Any, Function, Any]:
        value, pullback, others = jax.vjp(function, point, has_aux=True)
        return value, lambda cotangent: pullback(cotangent)[0], others

    def accumulate(self, function: Function, carry: Any, parts: Any) -> tuple[Any, Any]:
        first = jax.tree.map(lambda array: array[0], parts)
        summand = jax.eval_shape(function, carry, first)[1]
        start = (carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), summand))

        def add(carry_and_sum: tuple[Any, Any], part: Any) -> tuple[tuple[Any, Any], None]:
            carry, summand = function(carry_and_sum[0], part)
            return (carry, jax.tree.map(jnp.add, carry_and_sum[1], summand)), None

        # Convolutions are slow inside a compiled loop on a CPU.
        # Unroll a loop that contains a convolution.
        if self.device == "cpu" and has_convolution(jax.make_jaxpr(add)(start, first).jaxpr):
            total = start
            for number in range(len(jax.tree.leaves(parts)[0])):
                index = number + _zero_after(total[1])
                total, _ = add(total, jax.tree.map(lambda array, i=index: array[i], parts))
            return total
        return jax.lax.scan(add, start, parts)[0]

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        return _Loop(loaded, inputs, self._options(multiplications(loaded, inputs, steps), 1), self.device)

    def compiled(self, function: Function, *arguments: Any, multiplications: float = math.inf) -> Function:
        options = self._options(multiplications, MULTIPLICATIONS_WORTH_MORE)
        return jax.jit(function).lower(*arguments).compile(options)

    def _options(self, multiplications: float, unoptimized_below: float) -> Options | None:
        """Return the compiler's options for a program, depending on how much the program computes.

        Args:
            multiplications: estimated number of multiplications in all calls of the program together.
            unoptimized_below: the program is not optimized if it has fewer multiplications than this number.
        """
        if self.device != "cpu":
            return None
        if multiplications < unoptimized_below:
            return IN_PLACE | UNOPTIMIZED
        return IN_PLACE | (QUICK if multiplications < MULTIPLICATIONS_WORTH_OPTIMIZING else {})

    def synchronize(self, value: Any) -> None:
        jax.block_until_ready(value)

    def state_bytes(self, state: Any) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(state))

    def to_bits(self, leaf: Array) -> np.ndarray:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array

    def from_bits(self, bits: np.ndarray, like: Array) -> Array:
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.array(bits), impl=jax.random.key_impl(like))
        return jnp.array(bits.view(like.dtype))

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """Return the memory that the compiler reserves for the largest program of the segment.

        The compiler knows this number exactly, and all runs of the same program on a device have the same
        number.
        """
        run()
        assert isinstance(segment, _Loop)
        return max(program_bytes(program) for program in segment.programs.values())


def program_bytes(program: Any) -> int:
    """Return the bytes that a compiled program uses: arguments, results and temporary arrays."""
    analysis = program.memory_analysis()
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


class _Loop:
    """A segment: one compiled program for each combination of amortized work.

    For consecutive steps with the same amortized work, the host calls the program of this work once. The
    range of steps is an argument of the program. On a CPU, if the steps contain a convolution, the host calls
    the program once per step, because XLA compiles convolutions inside a loop to slow code.

    Args:
        loaded: the bundle's program, and examples of its carry and constants.
        inputs: examples of the inputs of a segment.
        options: options of the compiler.
        device: the device, `cpu` or `gpu`.
    """

    def __init__(self, loaded: Loaded, inputs: Inputs, options: Options | None, device: str) -> None:
        program = loaded.program
        self.update, self.length = program.update, len(inputs.step)

        def compiled(work: Work) -> tuple[Any, bool]:
            def step(carry: Carry, constants: Constants, inputs: Inputs, index: Array) -> Carry:
                return program.step(carry, constants, step_of(inputs, index), work)

            def steps(carry: Carry, constants: Constants, inputs: Inputs, start: Array, stop: Array) -> Carry:
                return jax.lax.fori_loop(start, stop, lambda i, c: step(c, constants, inputs, i), carry)

            arguments = loaded.carry, loaded.constants, inputs, np.int32(0)
            traced = jax.jit(steps, donate_argnums=0).trace(*arguments, np.int32(1))
            if device == "cpu" and has_convolution(traced.jaxpr.jaxpr):
                return jax.jit(step, donate_argnums=0).lower(*arguments).compile(options), False
            return traced.lower().compile(options), True

        programs_and_kinds = {work: compiled(work) for work in program.update.cadence}
        self.programs = {work: program for work, (program, _) in programs_and_kinds.items()}
        self.are_loops = all(is_loop for _, is_loop in programs_and_kinds.values())

    def __call__(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        works = self._works(inputs.step)
        inputs = inputs._replace(step=self._filled(inputs.step), schedule=self._filled(inputs.schedule))
        start = 0
        for work, same_work in itertools.groupby(works):
            stop = start + sum(1 for _ in same_work)
            program = self.programs[work]
            if self.are_loops:
                carry = program(carry, constants, inputs, np.int32(start), np.int32(stop))
            else:
                for index in range(start, stop):
                    carry = program(carry, constants, inputs, np.int32(index))
            start = stop
        return carry

    def _works(self, steps: Array) -> list[Work]:
        """Return the amortized work of each step."""
        # If all steps do the same amortized work, the numbers of the steps are not needed.
        # Reading the numbers would take longer than a short step.
        if len(self.programs) == 1:
            return list(self.programs) * len(steps)
        return [self.update.work_of(round(number)) for number in np.asarray(steps).tolist()]

    def _filled(self, values: Array) -> Array:
        """Append zeros to an array with one entry per step, up to the length of a compiled segment."""
        missing = self.length - len(values)
        return np.pad(np.asarray(values), (0, missing)) if missing else values


def _zero_after(arrays: Any) -> Array:
    """Return a 0 that is computed from all arrays, so that operations that use it come after the arrays.

    On a CPU, XLA removes optimization barriers before it orders operations. Without this dependency, XLA
    would evaluate all microbatches at once, and need memory for the activations of all microbatches.
    """
    firsts = [leaf.reshape(-1)[0] for leaf in jax.tree.leaves(arrays)]
    return (jnp.stack(firsts).max() > jnp.inf).astype(jnp.int32)


def has_convolution(jaxpr: Any) -> bool:
    """Return whether a program or one of its inner programs contains a convolution."""
    return any(
        equation.primitive.name == "conv_general_dilated"
        or any(has_convolution(inner) for inner in jaxprs_in_params(equation.params))
        for equation in jaxpr.eqns
    )


def make(precision: str, device: str) -> JaxEngine:
    """Return the engine for a precision policy and a device, `cpu` or `gpu`.

    Raises:
        InputError: when the device is `gpu` and JAX finds no GPU.
    """
    try:
        jax.devices(device)
    except RuntimeError as error:
        raise InputError(NO_GPU.format(library="JAX")) from error
    return JaxEngine(precision, device)
