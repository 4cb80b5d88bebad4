"""The engine of PyTorch, in which the host loops over the steps of a segment.

A segment is a number of steps that one call computes. The evaluation of a step is mapped by `torch.func` over
lanes, the runs that are computed together. The evaluation is either replayed from a record (`torch_replay`)
or compiled. Each group of parameters is updated in one of three ways (`torch_segment`): by a fused kernel, by
an optimizer of PyTorch, or by the rule itself, compiled or eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from curvebench.arrays.torch_ops import SingleRunOps, torch_ops
from curvebench.backends import torch_compiled, torch_segment
from curvebench.backends.torch_lane_optimizers import LaneOptimizers, SavedOptimizers
from curvebench.backends.torch_native import Native, native_of
from curvebench.backends.torch_replay import replayed
from curvebench.optimizers.arrays import map_arrays
from curvebench.precision import table_of_model
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import Function, StepEvaluation
from curvebench.steps.engine import NO_GPU, Engine, Segment, multiplications
from curvebench.steps.program import Carry, Inputs, Loaded, Program
from curvebench.steps.torch_rule import TorchRule
from curvebench.steps.update import UpdateGroup, Work

# The loss of a single run is compiled on a CPU if the run has at least this number of multiplications.
# Compilation takes a minute, and saves at least a third of the time that the loss takes.
MULTIPLICATIONS_WORTH_COMPILING = 1e13
# Updates are compiled on a CPU if the entries of parameters times the steps are at least this number.
# Compilation takes about 15 s, and an eager update takes about 14 ns per entry longer than a compiled update.
ENTRIES_WORTH_COMPILING = 1 << 30
# Fused kernels update several runs on a CPU if a run has at least this number of entries.
# The kernel is called once for each run.
# These calls would take longer than one eager update of all runs if a run had fewer entries.
MIN_FUSED_ENTRIES = 1 << 10
# Size in bytes of a block of memory that each engine allocates and frees at once.
# The allocator of glibc then learns to keep up to twice this size of freed memory.
# Otherwise glibc would return large intermediate arrays to the system after each operation.
# Eager updates of several runs would then take twice as long.
# The allocator of glibc does not learn from blocks of more than 32 MiB.
FREED_AT_START = 31 << 20
# Updates are compiled on a GPU if the run has at least this number of steps.
# The number is chosen for SOAP, the rule with the most kernels.
# Starting the kernels of SOAP takes about 5 ms per step on ResNet-34.
# Compiling the updates of SOAP for 12 shapes of parameters took the host of an H100 more than 224 s.
STEPS_WORTH_COMPILING = 50_000


class TorchEngine(Engine):
    """The engine of PyTorch; its methods are explained in the interface `curvebench.steps.engine.Engine`.

    Args:
        precision: precision policy.
        device: `cpu` or `cuda`.
        compiler: backend of torch.compile for updates and losses.
        worth_compiling: the updates of a run are compiled if the entries of parameters times the steps are at
            least this number; None for the default of the device.
        loss_worth_compiling: the loss of a single run is compiled if the estimated multiplications of all
            steps are at least this number; None for the default of the device.
        fused: whether fused kernels of PyTorch may update parameters.
    """

    tree = pytree
    # Operations and compiled updates accept any number of lanes.
    compiles_lanes = False

    def __init__(
        self,
        precision: str,
        device: str,
        compiler: str = "inductor",
        worth_compiling: int | None = None,
        loss_worth_compiling: float | None = None,
        fused: bool = True,
    ) -> None:
        super().__init__(precision, device)
        self.ops = torch_ops(device, self.policy.computed)
        self.model_ops = table_of_model(self.ops, self.policy)
        single = torch_ops(device, self.policy.computed, SingleRunOps)
        self.single_run_ops = table_of_model(single, self.policy)
        self.many_examples = math.inf
        self.compiler, self.fused = compiler, fused
        self.worth_compiling = worth_compiling
        usual = MULTIPLICATIONS_WORTH_COMPILING if device == "cpu" else 0.0
        self.loss_worth_compiling = usual if loss_worth_compiling is None else loss_worth_compiling
        torch.empty(FREED_AT_START, dtype=torch.uint8)

    def context(self) -> AbstractContextManager[None]:
        """Return a context in which float32 products on a GPU have full precision."""
        return _tf32(False)

    def products(self) -> AbstractContextManager[None]:
        return _tf32(True) if self.policy.products == "tf32" else nullcontext()

    def vmap(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        return torch.func.vmap(function, in_dims=axes)

    sequential_map = vmap

    def value_and_grad(self, function: Function, single: bool) -> Function:
        if single:
            return torch_compiled.LossGradient(function)
        differentiated = torch.func.grad_and_value(function, has_aux=True)

        def value_first(params: Any, *arguments: Any) -> Any:
            return differentiated(params, *arguments)[::-1]

        return value_first

    def unbatched(self, function: Function) -> Function:
        return torch_compiled.Compilable(function)

    def compile_unbatched(
        self, function: Function, multiplications: float, call: Callable[[], Any], what: str
    ) -> bool:
        if multiplications < self.loss_worth_compiling:
            return False
        assert isinstance(function, torch_compiled.Compilable)
        try:
            torch_compiled.require_compiler(self.compiler, self.device)
            function.compile(self.compiler, call)
        except torch_compiled.NoCompiler as failed:
            self.note(f"{what}: eager; {failed}")
            return False
        self.note(f"{what}: compiled as one graph")
        return True

    def grad(self, function: Function) -> Function:
        return torch.func.grad(function)

    def hessian(self, function: Function) -> Function:
        # Compute the Hessian by reverse mode twice.
        # Forward mode does not support some functions, and warns about others.
        return torch.func.jacrev(torch.func.jacrev(function))

    def vjp(self, function: Function, point: Any, single: bool) -> tuple[Any, Function, Any]:
        if single:
            return torch_compiled.vjp(function, point)
        value, pullback, others = torch.func.vjp(function, point, has_aux=True)
        return value, lambda cotangent: pullback(cotangent)[0], others

    def accumulate(self, function: Function, carry: Any, parts: Any) -> tuple[Any, Any]:
        total = None
        for number in range(len(pytree.tree_leaves(parts)[0])):
            part = map_arrays(lambda array, number=number: array[number], parts)
            carry, summand = function(carry, part)
            total = summand if total is None else map_arrays(torch.add, total, summand)
        return carry, total

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        inputs, program, carry = torch_segment.on_device(self.ops, inputs), loaded.program, loaded.carry
        compiled_loss = self._compiled_loss(loaded, inputs, steps)
        # Do not replay the evaluation with TF32.
        # A replay ignores the context `products`, which allows TF32.
        if not compiled_loss and self.policy.products != "tf32":
            program = replace(program, evaluation=replayed(program.evaluation))
        compiled = compiled_loss
        lanes = _numbers(loaded)
        updates: list[torch_segment.BufferUpdate] = []
        # Functions that update groups, by the identity of the part that a group has.
        # A part is a rule with the names of its hyperparameters in the whole optimizer.
        # Groups that have the same part share the functions.
        steppers: dict[int, Mapping[int, torch_compiled.Stepper]] = {}
        for number, group in enumerate(program.update.groups):
            native = self._native(loaded, group)
            by_lane = [group.part.hyper(hyper) for hyper in lanes]
            if isinstance(group.rule, TorchRule):
                updates.append(torch_segment.TorchOptimUpdate(group.rule, by_lane))
                continue
            if native is not None and all(map(native.applies, by_lane)):
                self.note(f"{group.rule.name}: {native.kernel} updates single runs")
                updates.append(torch_segment.FusedUpdate(group, native, by_lane))
                continue
            part = id(group.part)
            try:
                if (few := self._too_few(carry.coordinates.numel(), steps)) is not None:
                    raise torch_compiled.NoCompiler(f"there are too few {few} to compile for")
                torch_compiled.require_compiler(self.compiler, self.device)
                if part not in steppers:
                    steppers[part] = self._steppers(program, group, self.compiler)
                compiled = True
                torch_segment.warm(loaded, inputs, number, steppers[part])
            except torch_compiled.NoCompiler as failed:
                self.note(f"{group.rule.name}: eager updates; {failed}")
                steppers[part] = self._steppers(program, group, None)
            updates.append(torch_segment.RuleUpdate(group, steppers[part]))
        return torch_segment.TorchSegment(program, updates, compiled)

    def _native(self, loaded: Loaded, group: UpdateGroup) -> Native | None:
        """Return the fused kernel that updates a group run by run.

        The result is None if there is no such kernel, or if the kernel would be slower.
        """
        *lanes, total = loaded.carry.coordinates.shape
        entries = total if group.stack is None else group.stack.stop - group.stack.start
        is_fast = math.prod(lanes) == 1 or (self.device == "cpu" and entries >= MIN_FUSED_ENTRIES)
        if not (self.fused and is_fast and loaded.program.protocol.stop_gradient_norm is None):
            return None
        return native_of(group.rule)

    def values_in_segment(self, loaded: Loaded) -> Hashable:
        groups = loaded.program.update.groups
        if any(isinstance(group.rule, TorchRule) or self._native(loaded, group) for group in groups):
            return tuple(tuple(hyper.items()) for hyper in _numbers(loaded))
        return ()

    def _compiled_loss(self, loaded: Loaded, inputs: Inputs, steps: int | None) -> bool:
        """Compile the loss of a single run if compilation is worth its time.

        Returns:
            Whether the loss was compiled.
        """
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        evaluation, lanes = program.evaluation, tuple(carry.coordinates.shape[:2])
        if not isinstance(evaluation, StepEvaluation) or lanes != (1, 1):
            return False
        first = torch_segment.inputs_by_step(inputs)[0]

        def call() -> None:
            with torch.no_grad():
                point = program.point(carry, constants, first)
                program.evaluate(point, carry.model, constants, first, Work.NONE)

        work = multiplications(loaded, inputs, steps)
        return self.compile_unbatched(evaluation.loss_gradient, work, call, "loss")

    def _steppers(
        self, program: Program, group: UpdateGroup, compiler: str | None
    ) -> Mapping[int, torch_compiled.Stepper]:
        """Return the function that updates a group, for each combination of amortized work.

        The update of the first step (`Work.START`) is never compiled, since it is executed once.
        """
        return {
            work: torch_compiled.stepper(self.ops, group.part, work, None if work & Work.START else compiler)
            for work in program.update.cadence
        }

    def _too_few(self, entries: int, steps: int | None) -> str | None:
        """Return why updates are not compiled: too few "steps" or "entries"; None if they are compiled."""
        if steps is None:
            return None
        if self.worth_compiling is None and self.device != "cpu":
            return "steps" if steps < STEPS_WORTH_COMPILING else None
        worth = ENTRIES_WORTH_COMPILING if self.worth_compiling is None else self.worth_compiling
        return "entries" if entries * steps < worth else None

    def to_device(self, array: np.ndarray) -> torch.Tensor:
        host = torch.from_numpy(np.array(array))
        host = host.to(getattr(torch, self.ops.dtype)) if host.is_floating_point() else host
        # Copies from pinned memory to a GPU are asynchronous.
        host = host.pin_memory() if self.device.startswith("cuda") else host
        return host.to(self.device, non_blocking=True)

    def limit_threads(self, threads: int) -> None:
        super().limit_threads(threads)
        torch.set_num_threads(threads)

    def synchronize(self, value: Any) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def state_bytes(self, state: Any) -> int:
        leaves = pytree.tree_leaves(state)
        for lane in [leaf for leaf in leaves if isinstance(leaf, LaneOptimizers)]:
            leaves += pytree.tree_leaves(list(lane.states()))
        return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))

    def to_bits(self, leaf: torch.Tensor | LaneOptimizers) -> np.ndarray:
        if isinstance(leaf, LaneOptimizers):
            return leaf.saved().to_bytes()
        host = leaf.detach().cpu()
        return (host.view(torch.int16) if host.dtype == torch.bfloat16 else host).numpy()

    def from_bits(self, bits: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        # Copy the array, so that its memory has the alignment of PyTorch's own tensors.
        return torch.from_numpy(bits).view(like.dtype).to(like.device, copy=True)

    def carry_from_host(self, carry: Carry, arrays: Mapping[str, np.ndarray]) -> Carry:
        restored = super().carry_from_host(carry, arrays)
        for number, state in enumerate(restored.state):
            # The carry of an optimizer of PyTorch has a list with a state for each lane.
            # Fill the list with the saved states, from which the first segment constructs the optimizers.
            if isinstance(state, list):
                lanes = math.prod(restored.coordinates.shape[:2])
                saved = [arrays[f".state[{number}][{lane}]"] for lane in range(lanes)]
                state[:] = map(SavedOptimizers.from_bytes, saved)
        return restored

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """Return the peak memory that the GPU's allocator counts; None on a CPU, which has no such count."""
        if not self.device.startswith("cuda"):
            run()
            return None
        torch.cuda.reset_peak_memory_stats(self.device)
        run()
        return int(torch.cuda.max_memory_allocated(self.device))


def _numbers(loaded: Loaded) -> list[dict[str, float]]:
    """Return, for each lane, a mapping from the names of hyperparameters to Python numbers."""
    lanes, hyper = loaded.carry.coordinates.shape[:2], loaded.constants.hyper
    columns = [values.expand(*lanes, 1).flatten().tolist() for values in hyper.values()]
    return [dict(zip(hyper, row, strict=True)) for row in zip(*columns, strict=True)]


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Return a context that allows or forbids TF32 for float32 products on a GPU.

    TF32 rounds the mantissas of factors from 23 to 10 bits.
    """
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


def make(precision: str, device: str) -> TorchEngine:
    """Return the engine for a precision policy and a device, `cpu` or `gpu`.

    Raises:
        InputError: when the device is `gpu` and PyTorch finds no GPU.
    """
    if device == "gpu" and not torch.cuda.is_available():
        raise InputError(NO_GPU.format(library="PyTorch"))
    return TorchEngine(precision, {"gpu": "cuda"}.get(device, device))
