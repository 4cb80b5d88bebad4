"""Programs on PyTorch: lanes by torch.func, steps in a host loop, updates fused or compiled, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors as flatten
from torch.utils import _pytree as pytree

from harness.backends.engine import NO_GPU
from harness.backends.ops import Array, Ops
from harness.backends.torch_compiled import (
    NoCompiler,
    Stepper,
    compiling,
    never_eager,
    require_compiler,
    stepper,
)
from harness.backends.torch_native import NATIVE, Native
from harness.backends.torch_ops import torch_ops
from harness.errors import InputError
from harness.foreign import TorchRule
from harness.layout import Layout, by_name
from harness.program import (
    Carry,
    Constants,
    Inputs,
    LaneGradient,
    LaneHessian,
    Piece,
    Program,
    pick,
    step_of,
    where_lanes,
)
from optimizers.rule import Rule

# On a CPU an eager update costs some 14 ns an entry more than a compiled one, and compiling some 15 s once.
ENTRIES_WORTH_COMPILING = 1 << 30


class TorchEngine:
    """The engine of PyTorch (harness.backends.engine.Engine).

    Args:
        dtype, device: precision and device.
        compiler: what torch.compile compiles updates with.
        worth_compiling: how many entries a run's updates must touch over all steps to be compiled.
        fused: whether PyTorch's own kernels update single runs where there is one.
    """

    def __init__(
        self,
        dtype: str,
        device: str,
        compiler: str = "inductor",
        worth_compiling: int | None = None,
        fused: bool = True,
    ) -> None:
        self.ops = torch_ops(device, dtype)
        self.device = device
        self.notes: list[str] = []
        self.compiler, self.fused = compiler, fused
        on_cpu = ENTRIES_WORTH_COMPILING if device == "cpu" else 0
        self.worth_compiling = on_cpu if worth_compiling is None else worth_compiling

    @contextmanager
    def context(self) -> Iterator[None]:
        """Full float32 products on a GPU (TF32 has 10 bits), here only."""
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = False
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before

    def lane_gradient(self, loss: Callable[..., Any], per_seed: bool) -> LaneGradient:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            def value(params: Any) -> Any:
                loss_value, new_model, _ = loss(ops, params, model, batch, noise)
                return loss_value, new_model

            grads, (loss_value, new_model) = torch.func.grad_and_value(value, has_aux=True)(params)
            return loss_value, grads, new_model

        over_settings = torch.func.vmap(one, in_dims=(0, 0, None, None))
        mapped: LaneGradient = torch.func.vmap(over_settings, in_dims=(0, 0, 0 if per_seed else None, 0))

        def gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            if next(iter(params.values())).shape[:2] != (1, 1):
                return mapped(params, model, batch, noise)
            # Plain autograd: a single run need not pay for mapping.
            batch = {name: value[0] for name, value in batch.items()} if per_seed else batch
            return _alone(ops, loss, params, model, batch, {name: value[0] for name, value in noise.items()})

        return gradient

    def lane_hessian(self, loss: Callable[..., Any], lay: Layout, per_seed: bool) -> LaneHessian:
        ops = self.ops

        def one(flat: Any, model: Any, batch: Any, noise: Any) -> Any:
            def value(vector: Any) -> Any:
                return loss(ops, by_name(ops, lay.parameters, vector), model, batch, noise)[0]

            # Reverse over reverse: forward mode has no rule for some functions, and warns about others.
            return torch.func.jacrev(torch.func.jacrev(value))(flat)

        over_settings = torch.func.vmap(one, in_dims=(0, 0, None, None))
        mapped: LaneHessian = torch.func.vmap(over_settings, in_dims=(0, 0, 0 if per_seed else None, 0))
        return mapped

    def lane_evaluation(self, evaluate: Callable[..., Any], per_seed: bool) -> Callable[..., Any]:
        ops = self.ops

        def one(params: Any, model: Any, split: Any) -> Any:
            return evaluate(ops, params, model, split)

        over_settings = torch.func.vmap(one, in_dims=(0, 0, None))
        mapped: Callable[..., Any] = torch.func.vmap(over_settings, in_dims=(0, 0, 0 if per_seed else None))
        return mapped

    def segment(
        self, program: Program, carry: Carry, constants: Constants, inputs: Inputs, steps: int | None = None
    ) -> Callable[[Carry, Constants, Inputs], Carry]:
        entries = carry.coordinates.numel() * (steps or self.worth_compiling)
        compiler = None
        single = tuple(carry.coordinates.shape[:2]) == (1, 1) and program.stop_gradient_norm is None
        hyper = {name: float(values.flatten()[0]) for name, values in constants.hyper.items()}
        updates: list[_Fused | _Foreign | _Written] = []
        steppers: dict[int, Mapping[int, Stepper]] = {}  # one for all pieces that are updated alike
        for piece in program.update.pieces:
            native = NATIVE.get(piece.rule.name) if self.fused and single and _plain(piece.rule) else None
            own = piece.values(hyper)
            values = {name: own[piece.part.names.get(name, name)] for name in piece.rule.hyperparameters}
            if isinstance(piece.rule, TorchRule):
                updates.append(_Foreign(piece.rule, values))
            elif native is not None and native.applies(values):
                self.note(f"{piece.rule.name}: {native.kernel} updates single runs")
                updates.append(_Fused(piece, native, values))
            else:
                compiler = self._compiler_for(piece.rule.name, entries)
                if id(piece.part) not in steppers:
                    steppers[id(piece.part)] = self._steppers(program, piece, compiler)
                try:
                    if compiler is not None:
                        _warm(
                            program, piece, carry, constants, inputs, steppers[id(piece.part)], len(updates)
                        )
                except NoCompiler as failed:
                    self.note(f"{piece.rule.name}: eager updates; {failed}")
                    steppers[id(piece.part)] = self._steppers(program, piece, None)
                updates.append(_Written(piece, steppers[id(piece.part)]))
        return _segment(program, updates, compiler is not None)

    def _steppers(self, program: Program, piece: Piece, compiler: str | None) -> Mapping[int, Stepper]:
        """A piece's update, with each kind of amortized work and without."""
        cadence = program.update.cadence
        return {refresh: stepper(self.ops, piece.part, refresh, compiler) for refresh in cadence}

    def _compiler_for(self, rule: str, entries: int) -> str | None:
        """What a rule's updates are compiled with; None, and a note, where they are eager."""
        if entries < self.worth_compiling:
            self.note(f"{rule}: eager updates; there are too few entries to compile for")
            return None
        try:
            require_compiler(self.compiler, self.device)
        except NoCompiler as missing:
            self.note(f"{rule}: eager updates; {missing}")
            return None
        return self.compiler

    def note(self, text: str) -> None:
        """Keep a note for the provenance, once."""
        if text not in self.notes:
            self.notes.append(text)

    def compiled(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        return function

    def gradients(self, loss: Callable[..., Any], per_sample: bool) -> Callable[..., Mapping[str, Array]]:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            return torch.func.grad(lambda p: loss(ops, p, model, batch, noise)[0])(params)

        mapped: Callable[..., Mapping[str, Array]] = torch.func.vmap(
            one, in_dims=(0, None, 0 if per_sample else None, 0)
        )
        return mapped

    def limit_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def finish(self, value: Any) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def state_bytes(self, state: Any) -> int:
        leaves = pytree.tree_leaves(state)
        for optimizer in [leaf for leaf in leaves if isinstance(leaf, torch.optim.Optimizer)]:
            leaves += pytree.tree_leaves(list(optimizer.state.values()))
        return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))

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


class _Moment:
    """What an update must know of its step; what few updates ask for is made when it is asked for.

    Args:
        program, constants, inputs: of the stretch.
        index: of the step in the stretch.
        number: of the step in the run, from 1.
        schedule: the learning rate's multiplier.
        grads: the gradient by name, (S, K, *shape).
        held: lanes (S, K) that stay as they are, or None.
        hessian: (S, K, d, d), or None.
    """

    __slots__ = (
        "_flat", "_values", "_vector", "constants", "grads", "held", "hessian", "index", "inputs", "number",
        "program", "schedule",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        constants: Constants,
        inputs: Inputs,
        index: int,
        number: int,
        schedule: float,
        grads: Mapping[str, torch.Tensor],
        held: torch.Tensor | None,
        hessian: torch.Tensor | None,
    ) -> None:
        self.program, self.constants, self.inputs, self.index = program, constants, inputs, index
        self.hessian = hessian
        self.number, self.schedule, self.grads, self.held = number, schedule, grads, held
        self._flat: torch.Tensor | None = None
        self._vector: torch.Tensor | None = None
        self._values: Mapping[str, torch.Tensor] | None = None

    def flat(self) -> torch.Tensor:
        """The gradient in the basis, (S, K, d)."""
        if self._flat is None:
            self._flat = self.program.coordinates(self.grads, self.constants.matrices)
        return self._flat

    def vector(self) -> torch.Tensor:
        """The gradient of a single run in the basis, (d,): less work than `flat` for many leaves."""
        if self._vector is None:
            if self.constants.matrices:
                self._vector = self.flat().view(-1)
            else:
                self._vector = flatten([self.grads[name] for name in self.program.update.layout.shapes])
        return self._vector

    def values(self) -> Mapping[str, torch.Tensor]:
        """Hyperparameters, `step` and `schedule` as tensors, and the Hessian where there is one."""
        if self._values is None:
            self._values = _values(self.program, self.constants, self.inputs, self.index)
            if self.hessian is not None:
                hessian = self.program.rotated(self.hessian, self.constants.matrices)
                self._values = {**self._values, "hessian": hessian}
        return self._values


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
                grads = [moment.grads[name].contiguous() for name in lay.shapes]
            else:
                vector = moment.vector()
                grads = [vector if stack is None else vector[low:high]]
            rate = self.values["learning_rate"] * moment.schedule
            self.native.step(
                param, grads, state, {**self.values, "learning_rate": rate, "step": float(moment.number)}
            )

        return update


@dataclass(frozen=True)
class _Foreign:
    """A torch.optim.Optimizer on leaves that are views of a single run's buffer."""

    rule: TorchRule
    values: Mapping[str, float]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the whole buffer; the carry's state becomes the optimizer's own."""
        lay, ops = program.update.layout, program.ops
        leaves = [
            view[0, 0].detach().requires_grad_() for view in lay.unflatten(ops, carry.coordinates).values()
        ]
        optimizer = self.rule.make(leaves, self.values)
        rates = [group["lr"] for group in optimizer.param_groups]
        before: list[Any] = carry.state[number]
        if before:
            optimizer.load_state_dict(before[0].state_dict())
        before[:] = [optimizer]

        def update(moment: _Moment) -> None:
            if moment.held is not None and bool(moment.held):
                return
            grads = lay.unflatten(ops, moment.flat()).values()
            for leaf, grad in zip(leaves, grads, strict=True):
                leaf.grad = grad[0, 0].detach()
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * moment.schedule
            try:
                optimizer.step()
            except Exception as error:  # whatever another library raises
                raise InputError(
                    f"{self.rule.source}: takes no step by one gradient ({type(error).__name__}: {error}); "
                    "optimizers that evaluate the loss themselves cannot be contestants"
                ) from error

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
            taken = self.piece.take(program.ops, moment.flat())
            refresh = program.update.refreshes(moment.number)
            self.steppers[refresh](taken, state, param, self.piece.values(moment.values()), moment.held)

        return update


def _warm(
    program: Program,
    piece: Piece,
    carry: Carry,
    constants: Constants,
    inputs: Inputs,
    steppers: Mapping[int, Stepper],
    number: int,
) -> None:
    """Call a piece's steppers on copies of its buffers, so that they are compiled before the first step."""
    ops = program.ops
    values = piece.values(_values(program, constants, inputs, 0))
    if piece.rule.needs_hessian:
        values = {
            **values,
            "hessian": torch.zeros_like(carry.coordinates[..., None] * carry.coordinates[..., None, :]),
        }
    held = (
        None if program.stop_gradient_norm is None else torch.zeros_like(carry.stopped_at, dtype=torch.bool)
    )
    with compiling(), never_eager(), torch.no_grad():
        for step in steppers.values():
            param, grad = (piece.take(ops, buffer) for buffer in _copies(carry.coordinates))
            step(grad, pytree.tree_map(_own, carry.state[number]), param, values, held)


def _copies(buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return buffer.clone(), torch.zeros_like(buffer)


@dataclass(frozen=True)
class _Held:
    """What sees every update of a carry's buffers; made once, not once a step."""

    buffer: torch.Tensor  # (S, K, d), what the views belong to
    state: tuple[Any, ...]
    params: dict[str, torch.Tensor] | None  # for the loss; None where a basis or a look-ahead is in between
    updates: list[Bound]


def _segment(
    program: Program, updates: list[_Fused | _Foreign | _Written], compiled: bool
) -> Callable[[Carry, Constants, Inputs], Carry]:
    """Steps that write into the carry's buffers, which are reused from call to call."""
    ops = program.ops
    held: _Held | None = None

    def hold(carry: Carry, constants: Constants) -> _Held:
        rotated = bool(constants.matrices)
        # A rule may begin with one value broadcast, or with the parameters: neither can be written to.
        carry = carry._replace(state=pytree.tree_map(_own, carry.state))
        elsewhere = rotated or program.update.looks_ahead
        return _Held(
            buffer=carry.coordinates,
            state=carry.state,
            params=None if elsewhere else program.parameters(carry.coordinates, ()),
            updates=[one.bind(program, carry, rotated, number) for number, one in enumerate(updates)],
        )

    def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        nonlocal held
        # Another segment may have gone on in the same buffer, with a state of its own.
        if held is None or held.buffer is not carry.coordinates or held.state is not carry.state:
            held = hold(carry, constants)
        model, stopped_at, losses = carry.model, carry.stopped_at, []
        first = round(float(inputs.step[0]))
        sent = inputs._replace(step=None, schedule=None)  # what the loss needs of them
        nothing = all(value is None for value in sent)
        for index, multiplier in enumerate(inputs.schedule.tolist()):
            one = sent if nothing else step_of(sent, index)
            params, point = held.params, carry.coordinates
            if params is None:
                if program.update.looks_ahead:
                    values = _values(program, constants, inputs, index)
                    point = program.update.point(ops, held.state, point, values)
                params = program.parameters(point, constants.matrices)
            hessian = program.curvature(point, model, constants, one)
            loss, grads, new_model = program.gradient(params, model, pick(constants, one), one.noise or {})
            losses.append(loss)
            stay = None
            if program.stop_gradient_norm is not None:
                short = (stopped_at == 0) & program.is_short(grads)
                stopped_at = torch.where(short, inputs.step[index], stopped_at)
                stay = stopped_at > 0
                new_model = where_lanes(ops, stay, model, new_model)
            # Model state may be parameters, which the update overwrites.
            model = {name: value.clone() for name, value in new_model.items()}
            moment = _Moment(
                program, constants, inputs, index, first + index, multiplier, grads, stay, hessian
            )
            for update in held.updates:
                update(moment)
        failed = ~torch.isfinite(losses[0] if len(losses) == 1 else torch.stack(losses, dim=-1))
        diverged_at = carry.diverged_at
        if failed.any():
            steps = torch.where(failed.view(*diverged_at.shape, -1), inputs.step, float("inf")).amin(dim=-1)
            diverged_at = torch.where((diverged_at == 0) & torch.isfinite(steps), steps, diverged_at)
        return Carry(carry.coordinates, held.state, model, diverged_at, stopped_at)

    def guarded(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        with never_eager() if compiled else nullcontext(), torch.no_grad():
            return advance(carry, constants, inputs)

    return guarded


def _plain(rule: Rule) -> bool:
    """Whether a rule has the options that its fused kernel is for: its defaults."""
    return all(rule.chosen[name] == option.default for name, option in rule.options.items())


def _own(leaf: Any) -> Any:
    return leaf.clone(memory_format=torch.contiguous_format) if isinstance(leaf, torch.Tensor) else leaf


def _values(program: Program, constants: Constants, inputs: Inputs, index: int) -> Mapping[str, torch.Tensor]:
    return program.values(constants, Inputs(inputs.step[index], inputs.schedule[index]))


def _alone(ops: Ops, loss: Callable[..., Any], params: Any, model: Any, batch: Any, noise: Any) -> Any:
    """Loss, gradient and model state of the only lane, with its two axes of length 1."""
    leaves = {name: value[0, 0].detach().requires_grad_() for name, value in params.items()}
    with torch.enable_grad():
        value, new_model, _ = loss(
            ops, leaves, {name: state[0, 0] for name, state in model.items()}, batch, noise
        )
    grads = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return (
        value.detach()[None, None],
        {name: grad[None, None] for name, grad in zip(leaves, grads, strict=True)},
        {name: state.detach()[None, None] for name, state in new_model.items()},
    )


def make(dtype: str, device: str) -> TorchEngine:
    """The engine for a precision and a device.

    Raises:
        InputError: for `gpu` where PyTorch sees none.
    """
    if device == "gpu" and not torch.cuda.is_available():
        raise InputError(NO_GPU.format(library="PyTorch"))
    return TorchEngine(dtype, {"gpu": "cuda"}.get(device, device))
