"""Programs on PyTorch: lanes by torch.func, recorded, steps in a host loop, updates fused or compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch._utils import _flatten_dense_tensors as flatten
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.arrays.torch_ops import SingleRunOps, torch_ops
from curvebench.backends.torch_compiled import (
    Compilable,
    NoCompiler,
    Stepper,
    compiling,
    never_eager,
    require_compiler,
    stepper,
)
from curvebench.backends.torch_contestant import KeptContestant, TorchContestant
from curvebench.backends.torch_native import Native, native_of
from curvebench.backends.torch_replay import replayed
from curvebench.optimizers.rule import map_arrays
from curvebench.precision import table_of_model
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import StepEvaluation, StepInfo, model_of
from curvebench.steps.engine import NO_GPU, Engine, Segment
from curvebench.steps.program import (
    Carry,
    Constants,
    Inputs,
    Loaded,
    Piece,
    Program,
    Work,
    pick,
    step_of,
    where_lanes,
)
from curvebench.steps.torch_rule import TorchRule

# On a CPU a loss compiled saves a third of its time or more, and compiling takes a minute.
MULTIPLICATIONS_WORTH_COMPILING = 1e13
# On a CPU an eager update costs some 14 ns an entry more than a compiled one, and compiling some 15 s once.
ENTRIES_WORTH_COMPILING = 1 << 30
# On a GPU starting the kernels of an eager update takes SOAP some 5 ms a step of ResNet-34, by count; its 12
# shapes took an H100's host more than 224 s to compile. Other rules have fewer kernels, and less to compile.
STEPS_WORTH_COMPILING = 50_000


class TorchEngine(Engine):
    """The engine of PyTorch (curvebench.steps.engine.Engine).

    Args:
        precision, device: the word of a policy, and the device.
        compiler: what torch.compile compiles updates with.
        worth_compiling: how many entries a run's updates must touch over all steps to be compiled; None for
            what is worth it on the device.
        loss_worth_compiling: how many multiplications the loss of a single run must take over all steps,
            counting one for each example and entry of a parameter.
        fused: whether PyTorch's own kernels update single runs where there is one.
    """

    tree = pytree

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

    def context(self) -> AbstractContextManager[None]:
        """Full float32 products on a GPU, here only."""
        return _tf32(False)

    def products(self) -> AbstractContextManager[None]:
        return _tf32(True) if self.policy.products == "tf32" else nullcontext()

    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        return torch.func.vmap(function, in_dims=axes)

    in_turn = vmap

    def value_and_grad(self, function: Callable[..., Any], alone: bool) -> Callable[..., Any]:
        if alone:
            return _LossGradient(function)
        differentiated = torch.func.grad_and_value(function, has_aux=True)

        def value_first(params: Any, *given: Any) -> Any:
            return differentiated(params, *given)[::-1]

        return value_first

    def alone(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Compilable(function)

    def compile_alone(
        self, function: Callable[..., Any], multiplications: float, call: Callable[[], Any], what: str
    ) -> bool:
        if multiplications < self.loss_worth_compiling:
            return False
        assert isinstance(function, Compilable)
        try:
            require_compiler(self.compiler, self.device)
            function.compile(self.compiler, call)
        except NoCompiler as failed:
            self.note(f"{what}: eager; {failed}")
            return False
        self.note(f"{what}: compiled as one graph")
        return True

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.func.grad(function)

    def hessian(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # Reverse over reverse: forward mode has no rule for some functions, and warns about others.
        return torch.func.jacrev(torch.func.jacrev(function))

    def vjp(
        self, function: Callable[..., Any], point: Any, alone: bool
    ) -> tuple[Any, Callable[..., Any], Any]:
        if alone:
            return _vjp(function, point)
        value, pullback, others = torch.func.vjp(function, point, has_aux=True)
        return value, lambda cotangent: pullback(cotangent)[0], others

    def accumulate(self, function: Callable[..., Any], carry: Any, parts: Any) -> tuple[Any, Any]:
        total = None
        for number in range(len(pytree.tree_leaves(parts)[0])):
            part = map_arrays(lambda array, number=number: array[number], parts)
            carry, summand = function(carry, part)
            total = summand if total is None else map_arrays(torch.add, total, summand)
        return carry, total

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        inputs, program, carry = _on_device(self.ops, inputs), loaded.program, loaded.carry
        compiled_loss = self._compiled_loss(loaded, inputs, steps)
        # a replay would run outside of `products`
        if not compiled_loss and self.policy.products != "tf32":
            program = replace(program, evaluation=replayed(program.evaluation))
        compiled = compiled_loss
        hyper = _numbers(loaded.constants)
        updates: list[_Fused | _Foreign | _Written] = []
        steppers: dict[int, Mapping[int, Stepper]] = {}  # one for all pieces that are updated alike
        for number, piece in enumerate(program.update.pieces):
            native = self._native(loaded, piece)
            values = {name: hyper[piece.part.names.get(name, name)] for name in piece.rule.hyperparameters}
            if isinstance(piece.rule, TorchRule):
                updates.append(_Foreign(piece.rule, values))
                continue
            if native is not None and native.applies(values):
                self.note(f"{piece.rule.name}: {native.kernel} updates single runs")
                updates.append(_Fused(piece, native, values))
                continue
            part = id(piece.part)
            try:
                if (few := self._too_few(carry.coordinates.numel(), steps)) is not None:
                    raise NoCompiler(f"there are too few {few} to compile for")
                require_compiler(self.compiler, self.device)
                if part not in steppers:
                    steppers[part] = self._steppers(program, piece, self.compiler)
                compiled = True
                _warm(loaded, inputs, number, steppers[part])
            except NoCompiler as failed:
                self.note(f"{piece.rule.name}: eager updates; {failed}")
                steppers[part] = self._steppers(program, piece, None)
            updates.append(_Written(piece, steppers[part]))
        return _Segment(program, updates, compiled)

    def _native(self, loaded: Loaded, piece: Piece) -> Native | None:
        """The fused kernel that may update a piece of a single run."""
        single = tuple(loaded.carry.coordinates.shape[:2]) == (1, 1)
        if not (self.fused and single and loaded.program.stop_gradient_norm is None):
            return None
        return native_of(piece.rule)

    def values_in_segment(self, loaded: Loaded) -> Hashable:
        pieces = loaded.program.update.pieces
        if any(isinstance(piece.rule, TorchRule) or self._native(loaded, piece) for piece in pieces):
            return tuple(_numbers(loaded.constants).items())
        return ()

    def _compiled_loss(self, loaded: Loaded, inputs: Inputs, steps: int | None) -> bool:
        """Whether the loss of a single run is compiled now."""
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        evaluation, lanes = program.evaluation, tuple(carry.coordinates.shape[:2])
        if not isinstance(evaluation, StepEvaluation) or lanes != (1, 1):
            return False
        one = _steps_of(inputs)[0]
        examples = max(next(iter(pick(constants, one).values())).shape[:2])

        def call() -> None:
            with torch.no_grad():
                point = program.point(carry, constants, one)
                program.evaluate(point, carry.model, constants, one, Work.NONE)

        work = math.inf if steps is None else float(steps) * examples * carry.coordinates.numel()
        return self.compile_alone(evaluation.loss_gradient, work, call, "loss")

    def _steppers(self, program: Program, piece: Piece, compiler: str | None) -> Mapping[int, Stepper]:
        """A piece's update, with each kind of amortized work and without; a start is one step, and eager."""
        return {
            work: stepper(self.ops, piece.part, work, None if work & Work.START else compiler)
            for work in program.update.cadence
        }

    def _too_few(self, entries: int, steps: int | None) -> str | None:
        """What a run has too little of for its updates to be compiled; None where they are."""
        if steps is None:
            return None
        if self.worth_compiling is None and self.device != "cpu":
            return "steps" if steps < STEPS_WORTH_COMPILING else None
        worth = ENTRIES_WORTH_COMPILING if self.worth_compiling is None else self.worth_compiling
        return "entries" if entries * steps < worth else None

    def send(self, array: np.ndarray) -> torch.Tensor:
        host = torch.from_numpy(np.array(array))
        host = host.to(getattr(torch, self.ops.dtype)) if host.is_floating_point() else host
        # from memory that stays where it is, the device fetches it while the host goes on
        return (host.pin_memory() if self.device.startswith("cuda") else host).to(
            self.device, non_blocking=True
        )

    def limit_threads(self, threads: int) -> None:
        super().limit_threads(threads)
        torch.set_num_threads(threads)

    def finish(self, value: Any) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def state_bytes(self, state: Any) -> int:
        leaves = pytree.tree_leaves(state)
        for contestant in [leaf for leaf in leaves if isinstance(leaf, TorchContestant)]:
            leaves += pytree.tree_leaves(list(contestant.states()))
        return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))

    def to_bits(self, leaf: torch.Tensor | TorchContestant) -> np.ndarray:
        if isinstance(leaf, TorchContestant):
            return leaf.kept().to_bytes()
        found = leaf.detach().cpu()
        bits: np.ndarray = (found.view(torch.int16) if found.dtype == torch.bfloat16 else found).numpy()
        return bits

    def from_bits(self, bits: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        # into memory that is aligned as PyTorch's own
        return torch.from_numpy(bits).view(like.dtype).to(like.device, copy=True)

    def restored(self, carry: Carry, arrays: Mapping[str, np.ndarray]) -> Carry:
        found = super().restored(carry, arrays)
        for number, held in enumerate(found.state):
            if isinstance(held, list):  # of an optimizer of torch, which is made at the first step
                held[:] = [KeptContestant.from_bytes(arrays[f".state[{number}][0]"])]
        return found

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """The allocator's own count on a GPU; on the CPU arrays are a part of the process' memory."""
        if not self.device.startswith("cuda"):
            run()
            return None
        torch.cuda.reset_peak_memory_stats(self.device)
        run()
        return int(torch.cuda.max_memory_allocated(self.device))


# Kernels take lists; below this mean size an entry of the list costs more than a copy into one buffer.
ENTRIES_WORTH_A_LEAF = 4096


@dataclass
class _Moment:
    """What an update must know of its step; what few updates ask for is made when it is asked for.

    Nothing else holds the gradient by name, which is let go once it is in one array.

    Args:
        program, constants, inputs: of the step.
        number: of the step in the run, from 1.
        schedule: the learning rate's multiplier.
        info: what the loss said.
        model: the model state before the step.
        held: lanes (S, K) that stay as they are, or None.
    """

    program: Program
    constants: Constants
    inputs: Inputs
    number: int
    schedule: float
    info: StepInfo
    model: Mapping[str, torch.Tensor]
    held: torch.Tensor | None

    @cached_property
    def flat(self) -> torch.Tensor:
        """The gradient in the basis, (S, K, d)."""
        program, matrices, gradient = self.program, self.constants.matrices, self.info.gradient
        if matrices or self.info.loss.numel() > 1:
            found = program.coordinates(gradient, matrices)
        else:  # less work for many leaves
            end_to_end = flatten([gradient[name] for name in program.update.layout.shapes])
            found = program.ops.cast(end_to_end.view(1, 1, -1), program.held)
        self.info = self.info._replace(gradient={})
        return found

    @property
    def vector(self) -> torch.Tensor:
        """The gradient of a single run in the basis, (d,)."""
        return self.flat.view(-1)

    @cached_property
    def values(self) -> Mapping[str, torch.Tensor]:
        """Hyperparameters, `step` and `schedule` as tensors, and what the rule needs besides."""
        values = self.program.values(self.constants, self.inputs)
        return {**values, **self.program.needed(self.info, self.constants.matrices)}


Bound = Callable[[_Moment], None]  # the update of one carry's buffers


@dataclass(frozen=True)
class _Fused:
    """A fused kernel of PyTorch for a piece of a single run."""

    piece: Piece
    native: Native
    values: Mapping[str, float]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the piece of this number; `rotated` says whether there is a basis."""
        lay, stack = program.update.layout, self.piece.stack
        leaf_by_leaf = stack is None and not rotated and lay.total >= ENTRIES_WORTH_A_LEAF * len(lay.shapes)
        low, high = (0, lay.total) if stack is None else (stack.start, stack.stop)

        def views(buffer: torch.Tensor) -> list[torch.Tensor]:
            return list(lay.unflatten(program.ops, buffer).values()) if leaf_by_leaf else [buffer.view(-1)]

        param = views(carry.coordinates if leaf_by_leaf else carry.coordinates[0, 0, low:high])
        state = pytree.tree_map(views, carry.state[number])

        def update(moment: _Moment) -> None:
            if leaf_by_leaf:
                # Kernels pair entries by their place in memory, and a gradient may be a transposed view.
                grads = [moment.info.gradient[name].contiguous() for name in lay.shapes]
            else:
                vector = moment.vector
                grads = [vector if stack is None else vector[low:high]]
            rate = self.values["learning_rate"] * moment.schedule
            # kernels read the number of the step where they run, in float32
            step = moment.inputs.step.float()
            self.native.step(param, grads, state, {**self.values, "learning_rate": rate}, step)

        return update


@dataclass(frozen=True)
class _Foreign:
    """A torch.optim.Optimizer on leaves that are views of a single run's buffer."""

    rule: TorchRule
    values: Mapping[str, float]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the whole buffer; the carry's state becomes what steps it."""
        lay, ops = program.update.layout, program.ops
        views = lay.unflatten(ops, carry.coordinates)
        leaves = {name: view[0, 0].detach().requires_grad_() for name, view in views.items()}
        held: list[TorchContestant | KeptContestant] = carry.state[number]
        contestant = held[0] if held else None
        if not (isinstance(contestant, TorchContestant) and contestant.is_on(list(leaves.values()))):
            optimizers = self.rule.make(leaves, lay.roles, self.values)
            made = TorchContestant(
                f"torch:{self.rule.source}", optimizers, list(leaves.values()), self.rule.closure
            )
            if contestant is not None:
                made.take_over(contestant.kept())
            contestant, held[:] = made, [made]

        def by_leaf(flat: torch.Tensor) -> list[torch.Tensor]:
            return [grad[0, 0] for grad in lay.unflatten(ops, flat).values()]

        def update(moment: _Moment) -> None:
            if moment.held is not None and bool(moment.held):
                return

            def evaluate() -> tuple[torch.Tensor, list[torch.Tensor]]:
                with torch.no_grad():
                    point = program.parameters(carry.coordinates, moment.constants.matrices)
                    work = program.update.work_of(moment.number)
                    info = program.evaluate(point, moment.model, moment.constants, moment.inputs, work)
                    info = program.clipped(info)
                    flat = program.coordinates(info.gradient, moment.constants.matrices)
                    return info.loss[0, 0], by_leaf(flat)

            contestant.step(by_leaf(moment.flat), moment.schedule, evaluate)

        return update


@dataclass(frozen=True)
class _Written:
    """A piece's update by the rule itself, written into the carry's buffers.

    Args:
        piece: what is updated.
        steppers: the update, compiled or eager, with amortized work and without.
    """

    piece: Piece
    steppers: Mapping[int, Stepper]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the piece of this number."""
        param, state = self.piece.take(program.ops, carry.coordinates), carry.state[number]

        def update(moment: _Moment) -> None:
            taken = self.piece.take(program.ops, moment.flat)
            work = program.update.work_of(moment.number)
            self.steppers[work](taken, state, param, moment.values, moment.held)

        return update


def _warm(loaded: Loaded, inputs: Inputs, number: int, steppers: Mapping[int, Stepper]) -> None:
    """Call a piece's steppers on copies of its buffers, so that they are compiled before the first step."""
    program, carry = loaded.program, loaded.carry
    ops, piece = program.ops, program.update.pieces[number]
    lanes, model = carry.coordinates.shape[:2], model_of(program.update.layout)

    def on_lanes(value: Any) -> torch.Tensor:
        return ops.broadcast_to(ops.asarray(value), (*lanes, *value.shape))

    needed = {need.name: map_arrays(on_lanes, need.example(model)) for need in piece.rule.needs}
    values = {**program.values(loaded.constants, step_of(inputs, 0)), **needed}
    held = (
        None if program.stop_gradient_norm is None else torch.zeros_like(carry.stopped_at, dtype=torch.bool)
    )
    with compiling(), never_eager(), torch.no_grad():
        for step in steppers.values():
            param = piece.take(ops, carry.coordinates.clone())
            grad = piece.take(ops, torch.zeros_like(carry.coordinates))
            step(grad, pytree.tree_map(_own, carry.state[number]), param, values, held)


def _numbers(constants: Constants) -> dict[str, float]:
    """The hyperparameters of a single run."""
    return {name: float(values.flatten()[0]) for name, values in constants.hyper.items()}


class _Segment:
    """Steps that write into the carry's buffers, which are reused from call to call.

    What sees every update of these buffers is made once, not once a step.
    """

    def __init__(self, program: Program, updates: list[_Fused | _Foreign | _Written], compiled: bool) -> None:
        self.program, self.updates, self.compiled = program, updates, compiled
        self.buffer: torch.Tensor | None = None  # (S, K, d), what the views belong to
        self.state: tuple[Any, ...] = ()
        # for the loss; None where a basis or a look-ahead is in between
        self.params: dict[str, torch.Tensor] | None = None
        self.bound: list[Bound] = []

    def __call__(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        with never_eager() if self.compiled else nullcontext(), torch.no_grad():
            # Another segment may have gone on in the same buffer, with a state of its own.
            if self.buffer is not carry.coordinates or self.state is not carry.state:
                self._hold(carry, constants)
            carry, losses, stopped_at = carry._replace(state=self.state), [], carry.stopped_at
            numbers, multipliers = inputs.step.tolist(), inputs.schedule.tolist()
            inputs = _on_device(self.program.ops, inputs)
            for number, multiplier, one in zip(numbers, multipliers, _steps_of(inputs), strict=True):
                carry, loss = self._step(carry, constants, one, round(number), multiplier)
                losses.append(loss)
            return self.program.with_losses(carry, stopped_at, torch.stack(losses, dim=-1), inputs.step)

    def _hold(self, carry: Carry, constants: Constants) -> None:
        program, rotated = self.program, bool(constants.matrices)
        self.buffer, self.state = carry.coordinates, _writable(carry.state, carry.coordinates)
        carry = carry._replace(state=self.state)
        elsewhere = rotated or program.update.looks_ahead
        self.params = None if elsewhere else program.parameters(carry.coordinates, ())
        self.bound = [one.bind(program, carry, rotated, number) for number, one in enumerate(self.updates)]

    def _step(
        self, carry: Carry, constants: Constants, inputs: Inputs, number: int, schedule: float
    ) -> tuple[Carry, torch.Tensor]:
        program = self.program
        point = program.point(carry, constants, inputs) if self.params is None else self.params
        info = program.evaluate(point, carry.model, constants, inputs, program.update.work_of(number))
        moment = [_Moment(program, constants, inputs, number, schedule, info, carry.model, None)]
        loss = info.loss
        del info  # the gradient belongs to the moment alone
        return self._apply(carry, moment.pop()), loss

    def _apply(self, carry: Carry, moment: _Moment) -> Carry:
        """`Program.apply`, written into the buffers."""
        program = self.program
        stopped_at = program.stopped_at(carry, moment.info, moment.inputs)
        model = moment.info.model
        if program.clip_gradient_norm is not None:
            moment = replace(moment, info=program.clipped(moment.info))
        if program.stop_gradient_norm is not None:
            moment = replace(moment, held=stopped_at > 0)
            model = where_lanes(program.ops, moment.held, carry.model, model)
        # Model state may be parameters, which the update overwrites.
        model = {name: value.clone() for name, value in model.items()}
        for update in self.bound:
            update(moment)
        return carry._replace(state=self.state, model=model, stopped_at=stopped_at)


def _on_device(ops: Ops, inputs: Inputs) -> Inputs:
    """The inputs with what is on the host sent once for all steps, of which none then waits for it."""
    return inputs._replace(step=ops.asarray(inputs.step), schedule=ops.asarray(inputs.schedule))


def _steps_of(inputs: Inputs) -> list[Inputs]:
    """The inputs of each step; unbinding takes a tenth of the time of indexing step by step."""
    count = len(inputs.step)

    def unbound(value: Any) -> Any:
        if isinstance(value, Mapping):
            each = zip(*(array[:count].unbind(0) for array in value.values()), strict=True)
            return [dict(zip(value, arrays, strict=True)) for arrays in each]
        return [None] * count if value is None else value[:count].unbind(0)

    return [Inputs(*fields) for fields in zip(*map(unbound, inputs), strict=True)]


def _writable(state: Any, coordinates: torch.Tensor) -> Any:
    """State that an update can write into: what is taken over, but for copies of some leaves.

    A rule may begin with the parameters, with one array twice, or with one value broadcast.
    """
    seen = {coordinates.untyped_storage().data_ptr()}

    def owned(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.untyped_storage().data_ptr() in seen or not leaf.is_contiguous():
            leaf = _own(leaf)
        seen.add(leaf.untyped_storage().data_ptr())
        return leaf

    return pytree.tree_map(owned, state)


def _own(leaf: Any) -> Any:
    return leaf.clone(memory_format=torch.contiguous_format) if isinstance(leaf, torch.Tensor) else leaf


UNUSED_ARE_ZERO = {"allow_unused": True, "materialize_grads": True}


class _LossGradient(Compilable):
    """Value and gradient of a function that is not mapped, by plain autograd."""

    def __call__(self, params: Mapping[str, torch.Tensor], *given: Any) -> Any:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            value, others = self.called(leaves, *given)
        grads = torch.autograd.grad(value, list(leaves.values()), **UNUSED_ARE_ZERO)
        others = {name: other.detach() for name, other in others.items()}
        return (value.detach(), others), dict(zip(leaves, grads, strict=True))


def _vjp(function: Callable[..., Any], point: Any) -> tuple[Any, Callable[..., Any], Any]:
    """Plain autograd, for a function that is not mapped."""
    leaves, form = pytree.tree_flatten(point)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    with torch.enable_grad():
        value, others = function(pytree.tree_unflatten(leaves, form))

    def pullback(cotangent: torch.Tensor) -> Any:
        grads = torch.autograd.grad(value, leaves, cotangent, retain_graph=True, **UNUSED_ARE_ZERO)
        return pytree.tree_unflatten(grads, form)

    return value.detach(), pullback, pytree.tree_map(torch.Tensor.detach, others)


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Whether products of float32 on a GPU may have TF32's 10 bits."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


def make(precision: str, device: str) -> TorchEngine:
    """The engine for a precision and a device.

    Raises:
        InputError: for `gpu` where PyTorch sees none.
    """
    if device == "gpu" and not torch.cuda.is_available():
        raise InputError(NO_GPU.format(library="PyTorch"))
    return TorchEngine(precision, {"gpu": "cuda"}.get(device, device))
