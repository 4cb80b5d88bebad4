"""Update rules as optimizers of PyTorch: parameter groups, schedulers, closures and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.arrays.torch_ops import torch_ops
from curvebench.interop import as_input_errors, check_array, check_kind, chosen, completed, label
from curvebench.optimizers import Rule, rules
from curvebench.spec.errors import InputError, unknown
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update
from curvebench.workloads.workload import Role

Tensors = Sequence[torch.Tensor]
Sees = Callable[[torch.Tensor], torch.Tensor]

# What a group may have besides hyperparameters; schedulers begin again from `initial_lr`.
KEYS = ("params", "param_names", "name", "kind", "initial_lr")
# Larger parameters are updated one by one: stacking them would cost more than it saves.
ENTRIES_WORTH_A_CALL = 1 << 14


@cache
def ops_of(device: str, dtype: torch.dtype) -> Ops:
    """The table of a device and precision."""
    return torch_ops(device, _name_of(dtype))


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Form:
    """How a rule sees a lane: one parameter of a kind and shape, or all of a group.

    Args:
        update: the rule bound to it.
        spec: the structure of its state.
        names, shapes: of the state's arrays, as the rule has them.
        kept: the shapes that they are kept in: the parameter's where there are as many entries.
    """

    update: Update
    spec: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[int, ...], ...]


def _form(rule: Rule, kinds: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Form:
    numbers = [str(number) for number in range(len(shapes))]
    by_number = dict(zip(numbers, shapes, strict=True))
    update = Update(rule, layout(by_number, roles_of(by_number, dict(zip(numbers, kinds, strict=True)))))
    with as_input_errors():
        assert update.groups  # the parameters may be none that the rule takes
    lay = update.layout
    # On the device that holds no numbers: only the structure is wanted.
    (state,) = update.init(ops_of("meta", torch.float32), torch.empty((1, lay.total), device="meta"))
    leaves, spec = pytree.tree_flatten_with_path(state)
    seen = [tuple(leaf.shape[1:]) for _, leaf in leaves]
    stacked = update.groups[0].stack is not None  # then their first axis counts the one parameter

    def kept(shape: tuple[int, ...]) -> tuple[int, ...]:
        alone = shape[1:] if stacked else shape
        same = len(shapes) == 1 and torch.Size(alone).numel() == lay.total
        return shapes[0] if same else alone

    names = tuple(".".join(_key(entry) for entry in path) for path, _ in leaves)
    return Form(update, spec, names, tuple(seen), tuple(map(kept, seen)))


def _key(entry: Any) -> str:
    return str(entry.name if isinstance(entry, pytree.GetAttrKey) else entry.idx)


@dataclass(frozen=True)
class Batch:
    """What one call of the rule updates: lanes of one form, at the same step.

    Args:
        form: how the rule sees each of them.
        lanes: their parameters, in the order of the form; the first of a lane holds its state.
        values: hyperparameters, `step` and `schedule`, each (1, 1), and what the rule needs besides.
        step: the number of the step, from 1.
        ops: the table of their device and precision.
    """

    form: Form
    lanes: Sequence[Tensors]
    values: Mapping[str, Any]
    step: int
    ops: Ops

    @property
    def columns(self) -> Iterator[tuple[str, Tensors]]:
        """The parameters of all lanes by their name in the form."""
        return ((str(number), column) for number, column in enumerate(zip(*self.lanes, strict=True)))

    def flat(self, seen: Sees) -> torch.Tensor:
        """What is seen of each parameter, (lanes, total)."""
        arrays = {name: _stacked([seen(param) for param in column]) for name, column in self.columns}
        return self.form.update.layout.flatten(self.ops, arrays, 1)

    def put(self, flat: torch.Tensor) -> None:
        """Overwrite the parameters."""
        arrays = self.form.update.layout.unflatten(self.ops, flat)
        for name, column in self.columns:
            for param, value in zip(column, arrays[name].unbind(0), strict=True):
                param.copy_(value)


def _stacked(tensors: Tensors) -> torch.Tensor:
    """Side by side; of a single one a view."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


@contextmanager
def in_full_precision(devices: Iterable[str]) -> Iterator[None]:
    """Products of float32 in float32: neither TF32 nor autocast, here only."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for matmul in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
            before = matmul.fp32_precision
            if before not in ("ieee", "none"):
                matmul.fp32_precision = "ieee"
                stack.callback(_set_precision, matmul, before)
        for device in devices:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _set_precision(matmul: Any, before: str) -> None:
    matmul.fp32_precision = "none"  # as the setting above it says
    if matmul.fp32_precision != before:
        matmul.fp32_precision = before


def _recipe(rule: Rule) -> Any:
    """What a rule is pickled as: name and options where it is registered, for functions cannot be."""
    known = rules().get(rule.name)
    rebuilt = known is not None and known.build is not None and known.build is rule.build
    return (rule.name, dict(rule.chosen)) if known is rule or rebuilt else rule


def _biases(group: Mapping[str, Any]) -> dict[str, str]:
    """The kind of parameters that, as modules of PyTorch name them, are biases of the group's weights."""
    names = group.get("param_names", ())
    weights = {name for name, param in zip(names, group["params"], strict=False) if param.ndim > 1}
    owners = {name: name.removesuffix("bias") for name in names if name.endswith("bias")}
    return {name: "bias" for name, owner in owners.items() if f"{owner}weight" in weights}


class RuleOptimizer(torch.optim.Optimizer):  # type: ignore[misc]  # torch has no types here
    """An update rule as an optimizer of PyTorch; `as_torch` makes it, and says how it behaves."""

    def __init__(
        self, rule: Rule, params: Iterable[Any], kinds: Mapping[str, str], hyper: Mapping[str, float]
    ) -> None:
        for name, kind in kinds.items():
            check_kind(f"the parameter {name!r}", kind)
        self.rule, self.kinds = rule, dict(kinds)
        self._forms: dict[Any, Form] = {}
        specs = rule.hyperparameters.items()
        in_groups = [name for name, spec in specs if spec.default is None and name not in hyper]
        values = completed(rule, hyper, in_groups)
        super().__init__(
            params, {"lr" if name == "learning_rate" else name: value for name, value in values.items()}
        )
        names = [name for group in self.param_groups for name in group.get("param_names", ())]
        for name in kinds:
            if name not in names:
                hint = "" if names else "; give pairs, such as model.named_parameters()"
                raise InputError(unknown("the optimizer", "parameter", name, names) + hint)

    def add_param_group(self, param_group: Any) -> None:
        """Add a group: `params`, its own hyperparameters where they differ, and a `kind`.

        Raises:
            InputError: as in `as_torch`.
        """
        if not isinstance(param_group, Mapping):
            raise TypeError(f"a parameter group is a dict, and not {type(param_group).__name__}")
        extra = {name: value for name, value in param_group.items() if name in KEYS}
        given = {name: value for name, value in param_group.items() if name not in KEYS}
        if "lr" in given:
            if "learning_rate" in given:
                raise InputError("a parameter group has both lr and learning_rate; give one of them")
            given["learning_rate"] = given.pop("lr")
        defaults = {"learning_rate" if name == "lr" else name: value for name, value in self.defaults.items()}
        known = {name: defaults[name] for name in self.rule.hyperparameters if name in defaults}
        values = completed(self.rule, {**known, **given})
        rate = values.pop("learning_rate")
        check_kind("the parameter group", extra.setdefault("kind", None))
        extra |= {"rule": label(self.rule), "base_learning_rate": rate}
        super().add_param_group({**extra, "lr": rate, **values})
        group = self.param_groups[-1]
        self.kinds = _biases(group) | self.kinds
        try:
            for number, param in enumerate(group["params"]):
                self._check(group, number, param)
        except InputError:
            self.param_groups.pop()
            raise

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: clears the gradients, computes the loss and its gradients, and returns the loss.

        Returns:
            What the closure returns; None without one.

        Raises:
            InputError: for a wrong value or gradient, or a missing closure; no parameter has changed then.
        """
        loss = None
        if closure is not None:
            with self._at_its_points(), torch.enable_grad():
                loss = closure()
        elif self._looks_ahead:
            raise InputError(
                f"{self.rule.name} takes its gradient elsewhere than at the parameters: give step a closure "
                "that clears the gradients, computes the loss and its gradients, and returns the loss"
            )
        batches = self._batches(lambda param: param.grad is not None)
        with self._exactly(batches):
            for batch in batches:
                self._advance(batch)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state and groups of an optimizer of the same rule.

        Raises:
            InputError: for those of another.
        """
        ours = label(self.rule)
        for group in state_dict["param_groups"]:
            theirs = group.get("rule", "another optimizer")
            if theirs != ours:
                raise InputError(f"the state is that of {theirs}, and this optimizer is {ours}")
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "rule": _recipe(self.rule), "kinds": self.kinds}

    def __setstate__(self, state: dict[str, Any]) -> None:
        recipe = state.get("rule")
        if isinstance(recipe, tuple):
            name, options = recipe
            state = {**state, "rule": chosen(name, options)}
        super().__setstate__({**state, "_forms": {}})

    # --- which parameters are updated together -------------------------------------------------------

    def _check(self, group: Mapping[str, Any], number: int, param: torch.Tensor) -> None:
        """Whether the rule can update a parameter by its gradient.

        Raises:
            InputError: otherwise.
        """
        name = self._name(group, number)
        remedy = "keep the parameters in float32, and compute the loss under torch.autocast"
        check_array(name, tuple(param.shape), _name_of(param.dtype), remedy)
        with as_input_errors():
            self.rule.check_dtype(_name_of(param.dtype))
        if param.grad is not None and param.grad.layout != torch.strided:
            raise InputError(f"{name} has a sparse gradient; make it dense, as Embedding(sparse=False) does")

    def _name(self, group: Mapping[str, Any], number: int) -> str:
        names = group.get("param_names")
        return f"the parameter {names[number]!r}" if names else f"the parameter {number} of its group"

    def _said(self, group: Mapping[str, Any], number: int) -> Any:
        """The kind that was given for a parameter, or that its name tells; or None."""
        names = group.get("param_names")
        return group["kind"] or (self.kinds.get(names[number]) if names else None)

    def _kind(self, group: Mapping[str, Any], number: int, shape: tuple[int, ...]) -> Any:
        """A parameter's kind, or its whole role where its layer is known too."""
        return self._said(group, number) or roles_of({"": shape})[""].kind

    def _formed(self, kinds: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> Form:
        if (kinds, shapes) not in self._forms:
            self._forms[kinds, shapes] = _form(self.rule, kinds, shapes)
        return self._forms[kinds, shapes]

    @property
    def _looks_ahead(self) -> bool:
        """Whether any parameter is elsewhere when its gradient is taken."""
        part = self.rule.part
        if part is None:
            return self.rule.gradient_at is not None
        seen = {
            (self._kind(group, number, tuple(param.shape)), tuple(param.shape))
            for group in self.param_groups
            for number, param in enumerate(group["params"])
        }
        return any(part(Role(kind), shape).rule.gradient_at is not None for kind, shape in seen)

    def _batches(self, takes_part: Callable[[torch.Tensor], bool]) -> list[Batch]:
        """The parameters that take part, as they are updated together."""
        return [
            batch
            for group in self.param_groups
            for batch in self._batches_of(
                group, [number for number, param in enumerate(group["params"]) if takes_part(param)]
            )
        ]

    def _batches_of(self, group: Mapping[str, Any], numbers: Sequence[int]) -> Iterator[Batch]:
        values, params = self._values(group), group["params"]
        for number in numbers:
            self._check(group, number, params[number])
        if self.rule.sees_model:
            alike = [list(numbers)] if numbers else []
            self._check_members(group, numbers)
        else:
            places: dict[Any, list[int]] = {}
            for number in numbers:
                places.setdefault(self._likeness(group, number), []).append(number)
            alike = list(places.values())
        for members in alike:
            together = members if self.rule.sees_model else members[:1]
            shapes = tuple(tuple(params[number].shape) for number in together)
            kinds = tuple(
                self._kind(group, number, shape) for number, shape in zip(together, shapes, strict=True)
            )
            form = self._formed(kinds, shapes)
            tensors = [params[number] for number in members]
            lanes = [tensors] if self.rule.sees_model else [[tensor] for tensor in tensors]
            first, step = tensors[0], self._steps(tensors[0]) + 1
            arrays = {
                name: torch.full((1, 1), value, dtype=first.dtype, device=first.device)
                for name, value in {**values, "step": float(step)}.items()
            } | self._needed(form, step)
            yield Batch(form, lanes, arrays, step, ops_of(str(first.device), first.dtype))

    def _needed(self, form: Form, step: int) -> dict[str, Any]:
        """What the rule needs at a step besides gradients, by name; of lanes (1, ...)."""
        return {}

    def _likeness(self, group: Mapping[str, Any], number: int) -> Any:
        """What parameters must have in common to be updated by one call."""
        param = group["params"][number]
        shape = tuple(param.shape)
        alone = number if param.numel() > ENTRIES_WORTH_A_CALL else None
        return self._kind(group, number, shape), shape, param.dtype, param.device, self._steps(param), alone

    def _steps(self, param: torch.Tensor) -> int:
        """How often a parameter has been updated."""
        state = self.state.get(param)
        return int(state["step"]) if state else 0

    def _check_members(self, group: Mapping[str, Any], numbers: Sequence[int]) -> None:
        """Whether a rule that sees a group as one vector sees the same one as before.

        Raises:
            InputError: for another set of parameters, or for several devices or precisions.
        """
        params = group["params"]
        members = [number for number, param in enumerate(params) if self.state.get(param)]
        if members and numbers:
            for number in sorted(set(members) ^ set(numbers)):
                has = "has no gradient, and had one" if number in members else "has a gradient, and had none"
                raise InputError(
                    f"{self._name(group, number)} {has} at the group's first step; {self.rule.name} sees the "
                    "parameters of a group as one vector, which stays the same"
                )
        places = {f"{_name_of(params[number].dtype)} on {params[number].device}" for number in numbers}
        if len(places) > 1:
            raise InputError(
                f"{self.rule.name} sees the parameters of a group as one vector, and these are "
                f"{', '.join(sorted(places))}; give each kind a group of its own"
            )

    def _values(self, group: Mapping[str, Any]) -> dict[str, float]:
        """A group's hyperparameters by full name, as given, and the schedule.

        Raises:
            InputError: for a wrong value.
        """
        if "learning_rate" in group:
            raise InputError("a parameter group's learning rate is its key 'lr', and not 'learning_rate'")
        rate, base = group["lr"], group["base_learning_rate"]
        given = {name: group[name] for name in self.rule.hyperparameters if name != "learning_rate"}
        # A schedule may come down to 0, a learning rate that is given may not be.
        values = completed(self.rule, {**given, "learning_rate": base if rate == 0 else rate})
        return {**values, "learning_rate": base, "schedule": rate / base}

    # --- updates -------------------------------------------------------------------------------------

    def _exactly(self, batches: Sequence[Batch]) -> Any:
        return in_full_precision({batch.lanes[0][0].device.type for batch in batches})

    def _held(self, batch: Batch) -> list[torch.Tensor]:
        """The arrays of a batch's state, each (lanes, ...), which begin where there are none yet."""
        form = batch.form
        for lane in batch.lanes:
            if not self.state.get(lane[0]):
                self._begin(batch, lane)
            found, needed = set(self.state[lane[0]]), {"step", *form.names}
            if found != needed:
                raise InputError(
                    f"the state of a parameter of shape {tuple(lane[0].shape)} holds {sorted(found)}, and "
                    f"{label(self.rule)} needs {sorted(needed)}; was it of another kind?"
                )
        return [
            _stacked([self.state[lane[0]][name].reshape(shape) for lane in batch.lanes])
            for name, shape in zip(form.names, form.shapes, strict=True)
        ]

    def _begin(self, batch: Batch, lane: Tensors) -> None:
        form = batch.form
        alone = Batch(form, [lane], batch.values, batch.step, batch.ops)
        state = form.update.init(batch.ops, alone.flat(torch.Tensor.detach))
        for param in lane:
            self.state[param]["step"] = torch.tensor(0.0, dtype=torch.float32, device="cpu")
        for name, leaf, shape in zip(form.names, pytree.tree_leaves(state), form.kept, strict=True):
            self.state[lane[0]][name] = leaf.reshape(shape).clone(memory_format=torch.contiguous_format)

    def _advance(self, batch: Batch) -> None:
        """Update parameters and state; new arrays take the place of old ones, which a checkpoint may hold."""
        form, update = batch.form, batch.form.update
        olds = self._held(batch)
        flat, grad = batch.flat(torch.Tensor.detach), batch.flat(_gradient)
        new, state = update.apply(
            batch.ops,
            grad,
            (pytree.tree_unflatten(olds, form.spec),),
            flat,
            batch.values,
            update.work_of(batch.step),
        )
        # Parameters are overwritten here and gradients by the caller: no state may be a view of them. A view
        # of a stack would keep, and save, all of it.
        fleeting = {tensor.untyped_storage().data_ptr() for tensor in (flat, grad)}
        leaves = pytree.tree_leaves(state)
        for name, old, leaf, kept in zip(form.names, olds, leaves, form.kept, strict=True):
            if leaf is old:
                continue
            for lane, value in zip(batch.lanes, leaf.broadcast_to(old.shape).unbind(0), strict=True):
                memory = value.untyped_storage()
                own = memory.nbytes() == value.nbytes and memory.data_ptr() not in fleeting
                self.state[lane[0]][name] = (value if own else value.clone()).reshape(kept)
        batch.put(new)
        for lane in batch.lanes:
            for param in lane:
                self.state[param]["step"] = self.state[param]["step"] + 1

    @contextmanager
    def _at_its_points(self) -> Iterator[None]:
        """Inside, parameters are where the rule takes its gradient."""
        if not self._looks_ahead:
            yield
            return
        batches = self._batches(lambda param: param.requires_grad)
        begun = []
        with self._exactly(batches):
            for batch in batches:
                state = (pytree.tree_unflatten(self._held(batch), batch.form.spec),)
                flat = batch.flat(torch.Tensor.detach)
                begun.append(flat.clone())
                batch.put(batch.form.update.point(batch.ops, state, flat, batch.values))
        try:
            yield
        finally:
            with torch.no_grad():
                for batch, flat in zip(batches, begun, strict=True):
                    batch.put(flat)


def _gradient(param: torch.Tensor) -> torch.Tensor:
    return param.grad.detach().to(param.dtype)
