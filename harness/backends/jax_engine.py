"""Programs on JAX: one jitted scan over steps, or a loop over the jitted step; buffers are donated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params

from harness.backends.engine import NO_GPU
from harness.backends.jax_ops import jax_ops
from harness.backends.ops import Array
from harness.errors import InputError
from harness.layout import Layout, by_name
from harness.program import Carry, Constants, Inputs, LaneGradient, LaneHessian, Program, step_of


class JaxEngine:
    """The engine of JAX (harness.backends.engine.Engine)."""

    def __init__(self, dtype: str, device: str) -> None:
        self.ops = jax_ops(dtype, device)
        self.device = device
        self.notes: list[str] = []

    def context(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(jax.enable_x64(self.ops.dtype == "float64"))
        stack.enter_context(jax.default_matmul_precision("highest"))
        stack.enter_context(jax.default_device(jax.devices(self.device)[0]))
        return stack

    def lane_gradient(self, loss: Callable[..., Any], per_seed: bool) -> LaneGradient:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            def value(params: Any) -> Any:
                loss_value, new_model, _ = loss(ops, params, model, batch, noise)
                return loss_value, new_model

            (loss_value, new_model), grads = jax.value_and_grad(value, has_aux=True)(params)
            return loss_value, grads, new_model

        over_settings = jax.vmap(one, in_axes=(0, 0, None, None))
        mapped = jax.vmap(over_settings, in_axes=(0, 0, 0 if per_seed else None, 0))

        def gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            lanes = next(iter(params.values())).shape[:2]
            if lanes != (1, 1):
                return mapped(params, model, batch, noise)
            # A mapped convolution is a grouped one, which is slower even for one lane.
            batch = _first(batch) if per_seed else batch
            outputs = one(_first(_first(params)), _first(_first(model)), batch, _first(noise))
            return jax.tree.map(lambda value: value[None, None], outputs)

        return gradient

    def lane_hessian(self, loss: Callable[..., Any], lay: Layout, per_seed: bool) -> LaneHessian:
        ops = self.ops

        def one(flat: Any, model: Any, batch: Any, noise: Any) -> Any:
            def value(vector: Any) -> Any:
                return loss(ops, by_name(ops, lay.parameters, vector), model, batch, noise)[0]

            return jax.hessian(value)(flat)

        over_settings = jax.vmap(one, in_axes=(0, 0, None, None))
        mapped: LaneHessian = jax.vmap(over_settings, in_axes=(0, 0, 0 if per_seed else None, 0))
        return mapped

    def lane_evaluation(self, evaluate: Callable[..., Any], per_seed: bool) -> Callable[..., Any]:
        ops = self.ops

        def one(params: Any, model: Any, split: Any) -> Any:
            return evaluate(ops, params, model, split)

        over_settings = jax.vmap(one, in_axes=(0, 0, None))
        mapped: Callable[..., Any] = jax.vmap(over_settings, in_axes=(0, 0, 0 if per_seed else None))
        return mapped

    def segment(
        self, program: Program, carry: Carry, constants: Constants, inputs: Inputs, steps: int | None = None
    ) -> Callable[[Carry, Constants, Inputs], Carry]:
        if program.update.amortizes:
            return _Loop(program, carry, constants, inputs)

        def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
            return jax.lax.scan(lambda c, x: (program.step(c, constants, x), None), carry, inputs)[0]

        traced = jax.jit(advance, donate_argnums=0).trace(carry, constants, inputs)
        if self.device == "cpu" and _has_convolution(traced.jaxpr.jaxpr):
            return _Loop(program, carry, constants, inputs)
        compiled: Callable[[Carry, Constants, Inputs], Carry] = traced.lower().compile()
        return compiled

    def compiled(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = jax.jit(function).lower(*arguments).compile()
        return compiled

    def gradients(self, loss: Callable[..., Any], per_sample: bool) -> Callable[..., Mapping[str, Array]]:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            return jax.grad(lambda p: loss(ops, p, model, batch, noise)[0])(params)

        mapped: Callable[..., Mapping[str, Array]] = jax.vmap(
            one, in_axes=(0, None, 0 if per_sample else None, 0)
        )
        return mapped

    def limit_threads(self, threads: int) -> None:
        pass  # JAX reads the environment variable NPROC when it is imported

    def finish(self, value: Any) -> None:
        jax.block_until_ready(value)

    def state_bytes(self, state: Any) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(state))

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """What the compiler laid out for the largest program: exact, and the same on every run and device."""
        run()
        programs: list[Any] = [*segment.programs.values()] if isinstance(segment, _Loop) else [segment]
        return max(_laid_out(program.memory_analysis()) for program in programs)


def _laid_out(analysis: Any) -> int:
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda value: value[0], tree)


class _Loop:
    """One compiled step, called by the host: a scan cannot choose, and slows convolutions on a CPU."""

    def __init__(self, program: Program, carry: Carry, constants: Constants, inputs: Inputs) -> None:
        self.update = program.update

        def compiled(refresh: int) -> Any:
            def step(carry: Carry, constants: Constants, inputs: Inputs, index: Array) -> Carry:
                return program.step(carry, constants, step_of(inputs, index), refresh)

            return jax.jit(step, donate_argnums=0).lower(carry, constants, inputs, np.int32(0)).compile()

        self.programs = {refresh: compiled(refresh) for refresh in program.update.cadence}

    def __call__(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        for index, number in enumerate(np.asarray(inputs.step).tolist()):
            step = self.programs[self.update.refreshes(round(number))]
            carry = step(carry, constants, inputs, np.int32(index))
        return carry


def _has_convolution(jaxpr: Any) -> bool:
    """Whether a program convolves, inside its inner programs too."""
    return any(
        equation.primitive.name == "conv_general_dilated"
        or any(_has_convolution(inner) for inner in jaxprs_in_params(equation.params))
        for equation in jaxpr.eqns
    )


def make(dtype: str, device: str) -> JaxEngine:
    """The engine for a precision and a device.

    Raises:
        InputError: for `gpu` where JAX sees none.
    """
    try:
        jax.devices(device)
    except RuntimeError as error:
        raise InputError(NO_GPU.format(library="JAX")) from error
    return JaxEngine(dtype, device)
