"""Programs on JAX: jitted loops over any number of steps between amortized work; donated buffers."""

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
from curvebench.steps.engine import NO_GPU, Engine, Segment, multiplications
from curvebench.steps.program import Carry, Constants, Inputs, Loaded, step_of
from curvebench.steps.update import Work

Options = dict[str, bool | int]  # of XLA's compiler
# XLA's own default on a CPU is to copy the parameters at each step where the loss too is read from them.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
# On a CPU, programs with less work than this are compiled with less effort, which takes half of the time.
# With more work, steps that may be slower cost more than that saves: docs/performance.md has the times.
MULTIPLICATIONS_WORTH_OPTIMIZING = 5e9
QUICK: Options = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
# Programs with still less work are not optimized, which halves the time again. Steps of a run are, however
# short it is: without optimization they round differently, and chaotic runs would leave their curves.
MULTIPLICATIONS_WORTH_MORE = 3e8
UNOPTIMIZED: Options = QUICK | {"xla_backend_optimization_level": 0}
# On a CPU, from how many on lanes are sooner evaluated in turn: docs/performance.md has the times.
MANY_EXAMPLES = 1_000


class JaxEngine(Engine):
    """The engine of JAX (curvebench.steps.engine.Engine)."""

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
        return jax.default_matmul_precision("tensorfloat32")  # of what is traced inside, gradients too

    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        return jax.vmap(function, in_axes=axes)

    def sequential_map(
        self, function: Callable[..., Any], axes: tuple[int | None, ...]
    ) -> Callable[..., Any]:
        def mapped(*arguments: Any) -> Any:
            places = dict(enumerate(arguments))
            elements = {place: places[place] for place, axis in enumerate(axes) if axis is not None}
            return jax.lax.map(lambda each: function(*{**places, **each}.values()), elements)

        return mapped

    def value_and_grad(self, function: Callable[..., Any], single: bool) -> Callable[..., Any]:
        return jax.value_and_grad(function, has_aux=True)

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(function)

    def hessian(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.hessian(function)

    def vjp(
        self, function: Callable[..., Any], point: Any, single: bool
    ) -> tuple[Any, Callable[..., Any], Any]:
        value, pullback, others = jax.vjp(function, point, has_aux=True)
        return value, lambda cotangent: pullback(cotangent)[0], others

    def accumulate(self, function: Callable[..., Any], carry: Any, parts: Any) -> tuple[Any, Any]:
        first = jax.tree.map(lambda array: array[0], parts)
        summand = jax.eval_shape(function, carry, first)[1]
        start = (carry, jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), summand))

        def add(so_far: tuple[Any, Any], part: Any) -> tuple[tuple[Any, Any], None]:
            carry, summand = function(so_far[0], part)
            return (carry, jax.tree.map(jnp.add, so_far[1], summand)), None

        if self.device == "cpu" and _has_convolution(jax.make_jaxpr(add)(start, first).jaxpr):
            so_far = start
            for number in range(len(jax.tree.leaves(parts)[0])):  # inside a loop convolutions are slow there
                index = number + _zero_after(so_far[1])
                so_far, _ = add(so_far, jax.tree.map(lambda array, i=index: array[i], parts))
            return so_far
        return jax.lax.scan(add, start, parts)[0]

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        return _Loop(loaded, inputs, self._options(multiplications(loaded, inputs, steps), 1), self.device)

    def compiled(
        self, function: Callable[..., Any], *arguments: Any, multiplications: float = math.inf
    ) -> Callable[..., Any]:
        options = self._options(multiplications, MULTIPLICATIONS_WORTH_MORE)
        return jax.jit(function).lower(*arguments).compile(options)

    def _options(self, multiplications: float, unoptimized_below: float) -> Options | None:
        """Return the compiler's options for a program.

        Args:
            multiplications: the estimated work of all its calls.
            unoptimized_below: the work below which the program is not optimized.
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
        found = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        return found.view(np.uint16) if found.dtype == jnp.bfloat16 else found

    def from_bits(self, bits: np.ndarray, like: Array) -> Array:
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.array(bits), impl=jax.random.key_impl(like))
        return jnp.array(bits.view(like.dtype))

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """What the compiler laid out for the largest program: exact, and the same on every run and device."""
        run()
        assert isinstance(segment, _Loop)
        return max(laid_out_bytes(program) for program in segment.programs.values())


def laid_out_bytes(program: Any) -> int:
    """What a compiled program takes on the device: its arguments, results and what lies between."""
    analysis = program.memory_analysis()
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


class _Loop:
    """Compiled steps for each kind of amortized work, of which the host calls the one that is due.

    Steps in a row with the same work are one call, of any number. Where the body has a convolution on a CPU,
    each is a call: inside a compiled loop, XLA slows convolutions.

    Args:
        program, carry, constants, inputs: what is compiled, and what for, by shapes.
        options: of the compiler.
        device: on which.
    """

    def __init__(self, loaded: Loaded, inputs: Inputs, options: Options | None, device: str) -> None:
        program = loaded.program
        self.update, self.length = program.update, len(inputs.step)

        def compiled(work: Work) -> tuple[Any, bool]:
            def step(carry: Carry, constants: Constants, inputs: Inputs, index: Array) -> Carry:
                return program.step(carry, constants, step_of(inputs, index), work)

            def steps(carry: Carry, constants: Constants, inputs: Inputs, start: Array, stop: Array) -> Carry:
                return jax.lax.fori_loop(start, stop, lambda i, c: step(c, constants, inputs, i), carry)

            given = loaded.carry, loaded.constants, inputs, np.int32(0)
            traced = jax.jit(steps, donate_argnums=0).trace(*given, np.int32(1))
            if device == "cpu" and _has_convolution(traced.jaxpr.jaxpr):
                return jax.jit(step, donate_argnums=0).lower(*given).compile(options), False
            return traced.lower().compile(options), True

        found = {work: compiled(work) for work in program.update.cadence}
        self.programs = {work: program for work, (program, _) in found.items()}
        self.together = all(together for _, together in found.values())

    def __call__(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        works = self._works(inputs.step)
        inputs = inputs._replace(step=self._filled(inputs.step), schedule=self._filled(inputs.schedule))
        start = 0
        for work, alike in itertools.groupby(works):
            stop = start + sum(1 for _ in alike)
            program = self.programs[work]
            if self.together:
                carry = program(carry, constants, inputs, np.int32(start), np.int32(stop))
            else:
                for index in range(start, stop):
                    carry = program(carry, constants, inputs, np.int32(index))
            start = stop
        return carry

    def _works(self, steps: Array) -> list[Work]:
        """The amortized work of each step; that of a short one takes long to ask for."""
        if len(self.programs) == 1:
            return list(self.programs) * len(steps)
        return [self.update.work_of(round(number)) for number in np.asarray(steps).tolist()]

    def _filled(self, values: Array) -> Array:
        """Values of the steps, and zeros to the length that was compiled for."""
        missing = self.length - len(values)
        return np.pad(np.asarray(values), (0, missing)) if missing else values


def _zero_after(arrays: Any) -> Array:
    """0, which the compiler only knows when all of the arrays are computed: what uses it is not begun before.

    XLA takes barriers out before it orders operations on a CPU, and would hold the activations of all parts.
    """
    firsts = [leaf.reshape(-1)[0] for leaf in jax.tree.leaves(arrays)]
    return (jnp.stack(firsts).max() > jnp.inf).astype(jnp.int32)


def _has_convolution(jaxpr: Any) -> bool:
    """Whether a program convolves, inside its inner programs too."""
    return any(
        equation.primitive.name == "conv_general_dilated"
        or any(_has_convolution(inner) for inner in jaxprs_in_params(equation.params))
        for equation in jaxpr.eqns
    )


def make(precision: str, device: str) -> JaxEngine:
    """The engine for a precision and a device.

    Raises:
        InputError: for `gpu` where JAX sees none.
    """
    try:
        jax.devices(device)
    except RuntimeError as error:
        raise InputError(NO_GPU.format(library="JAX")) from error
    return JaxEngine(precision, device)
