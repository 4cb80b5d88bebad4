"""Programs on JAX: one jitted scan over steps, with donated buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import jax

from harness.backends.engine import NO_GPU
from harness.backends.jax_ops import jax_ops
from harness.backends.ops import Array
from harness.errors import InputError
from harness.program import Carry, Constants, Inputs, LaneGradient, Program


class JaxEngine:
    """The engine of JAX (harness.backends.engine.Engine)."""

    def __init__(self, dtype: str, device: str) -> None:
        self.ops = jax_ops(dtype)
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

        def one(params: Any, model: Any, batch: Any) -> Any:
            def value(params: Any) -> Any:
                loss_value, new_model, _ = loss(ops, params, model, batch, {})
                return loss_value, new_model

            (loss_value, new_model), grads = jax.value_and_grad(value, has_aux=True)(params)
            return loss_value, grads, new_model

        over_settings = jax.vmap(one, in_axes=(0, 0, None))
        mapped: LaneGradient = jax.vmap(over_settings, in_axes=(0, 0, 0 if per_seed else None))
        return mapped

    def lane_evaluation(self, evaluate: Callable[..., Any], per_seed: bool) -> Callable[..., Any]:
        ops = self.ops

        def one(params: Any, model: Any, split: Any) -> Any:
            return evaluate(ops, params, model, split)

        over_settings = jax.vmap(one, in_axes=(0, 0, None))
        mapped: Callable[..., Any] = jax.vmap(over_settings, in_axes=(0, 0, 0 if per_seed else None))
        return mapped

    def segment(
        self, program: Program, carry: Carry, constants: Constants, inputs: Inputs
    ) -> Callable[[Carry, Constants, Inputs], Carry]:
        def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
            return jax.lax.scan(lambda c, x: (program.step(c, constants, x), None), carry, inputs)[0]

        jitted = jax.jit(advance, donate_argnums=0)
        compiled: Callable[[Carry, Constants, Inputs], Carry] = jitted.lower(
            carry, constants, inputs
        ).compile()
        return compiled

    def compiled(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = jax.jit(function).lower(*arguments).compile()
        return compiled

    def gradients(self, loss: Callable[..., Any], per_sample: bool) -> Callable[..., Mapping[str, Array]]:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any) -> Any:
            return jax.grad(lambda p: loss(ops, p, model, batch, {})[0])(params)

        mapped: Callable[..., Mapping[str, Array]] = jax.vmap(
            one, in_axes=(0, None, 0 if per_sample else None)
        )
        return mapped

    def limit_threads(self, threads: int) -> None:
        pass  # JAX reads the environment variable NPROC when it is imported

    def finish(self, value: Any) -> None:
        jax.block_until_ready(value)

    def state_bytes(self, state: Any) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(state))


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
