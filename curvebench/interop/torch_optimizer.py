"""Update rules as optimizers of PyTorch, with parameter groups, schedulers, closures and checkpoints.

PyTorch stores one state per parameter, and a rule updates a stack of parameters of equal shape. At each step,
`RuleOptimizer` divides the parameters that have gradients into batches (`Batch`). For each batch, it stacks
parameters, gradients and states, calls the rule once, and writes the results back. A unit is the parameters
that share a state: one parameter, or all parameters of a group if the rule updates them as one vector. The
kind of a parameter is its role in the model, such as weight or bias.
"""

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

# Keys that a parameter group may have in addition to hyperparameters. Schedulers add `initial_lr`.
KEYS = ("params", "param_names", "name", "kind", "initial_lr")
# Only parameters with at most this number of entries are stacked.
# Stacking larger parameters would take more time than it saves.
MAX_STACKED_ENTRIES = 1 << 14


@cache
def ops_of(device: str, dtype: torch.dtype) -> Ops:
    """Return the array functions of PyTorch for a device and precision."""
    return torch_ops(device, _name_of(dtype))


def _name_of(dtype: torch.dtype) -> str:
    """Return the name of a precision without its module, such as `float32`."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Form:
    """A rule bound to the layout of a unit, and the structure of the unit's state.

    A unit is one parameter, or all parameters of a group if the rule updates them as one vector. Units whose
    parameters have equal kinds and shapes share a form.

    Args:
        update: the rule bound to the layout.
        spec: structure of the state as a tree.
        names: names of the arrays of the state.
        shapes: shapes of the arrays `names` as the rule uses them, without the axis of units.
        stored: shapes of the arrays `names` in the optimizer's attribute `state`. An array with as many
            entries as the parameter is stored in the shape of the parameter, as in the optimizers of PyTorch.
    """

    update: Update
    spec: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    stored: tuple[tuple[int, ...], ...]


def _form(rule: Rule, kinds: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Form:
    """Bind a rule to the parameters of a unit.

    Args:
        rule: the rule.
        kinds: kinds or roles of the parameters.
        shapes: shapes of the parameters.

    Raises:
        InputError: when the rule cannot update these parameters.
    """
    numbers = [str(number) for number in range(len(shapes))]
    by_number = dict(zip(numbers, shapes, strict=True))
    update = Update(rule, layout(by_number, roles_of(by_number, dict(zip(numbers, kinds, strict=True)))))
    with as_input_errors():
        assert update.groups  # the property raises an error for unsupported parameters
    lay = update.layout
    # Use the device "meta", which stores no numbers, since only the structure of the state is used.
    (state,) = update.init(ops_of("meta", torch.float32), torch.empty((1, lay.total), device="meta"))
    leaves, spec = pytree.tree_flatten_with_path(state)
    state_shapes = [tuple(leaf.shape[1:]) for _, leaf in leaves]
    stacked = update.groups[0].stack is not None  # if true, the first axis of a state has length 1

    def stored(shape: tuple[int, ...]) -> tuple[int, ...]:
        without_stack = shape[1:] if stacked else shape
        same_size = len(shapes) == 1 and torch.Size(without_stack).numel() == lay.total
        return shapes[0] if same_size else without_stack

    names = tuple(".".join(_key(entry) for entry in path) for path, _ in leaves)
    return Form(update, spec, names, tuple(state_shapes), tuple(map(stored, state_shapes)))


def _key(entry: Any) -> str:
    """Return an entry of a path in a tree, which is an attribute or an index, as text."""
    return str(entry.name if isinstance(entry, pytree.GetAttrKey) else entry.idx)


@dataclass(frozen=True)
class Batch:
    """Units that one call of the rule updates: they have the same form, and are at the same step.

    A unit is the parameters that share a state.

    Args:
        form: the form of the units.
        units: the parameters of each unit, in the order of the form. The state of a unit is stored with the
            unit's first parameter.
        values: hyperparameters, number of the step (`step`), multiplier of the learning rate (`schedule`),
            each of shape (1, 1), and the values of the rule's needs.
        step: number of the step, from 1.
        ops: array functions for the device and precision of the units.
    """

    form: Form
    units: Sequence[Tensors]
    values: Mapping[str, Any]
    step: int
    ops: Ops

    @property
    def columns(self) -> Iterator[tuple[str, Tensors]]:
        """Name in the layout, and one tensor per unit, for each parameter of the units."""
        return ((str(number), column) for number, column in enumerate(zip(*self.units, strict=True)))

    def flat(self, read: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return values of all parameters as one flat buffer (units, entries per unit).

        Args:
            read: function that returns the value of a parameter, such as the gradient.
        """
        arrays = {name: _stacked([read(param) for param in column]) for name, column in self.columns}
        return self.form.update.layout.flatten(self.ops, arrays, 1)

    def put(self, flat: torch.Tensor) -> None:
        """Overwrite the parameters with the values of a flat buffer (units, entries per unit)."""
        arrays = self.form.update.layout.unflatten(self.ops, flat)
        for name, column in self.columns:
            for param, value in zip(column, arrays[name].unbind(0), strict=True):
                param.copy_(value)


def _stacked(tensors: Tensors) -> torch.Tensor:
    """Stack tensors along a new first axis; a single tensor is not copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


@contextmanager
def in_full_precision(devices: Iterable[str]) -> Iterator[None]:
    """Return a context for updates: products have full float32 precision, and no gradients are recorded.

    TF32 is switched off, and autocast is disabled on the given types of devices. At the end of the context,
    TF32 and autocast are set as before.
    """
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
    """Restore a precision setting of PyTorch.

    The value "none" means that a setting is inherited. If the inherited value equals `before`, the setting
    stays inherited.
    """
    matmul.fp32_precision = "none"
    if matmul.fp32_precision != before:
        matmul.fp32_precision = before


def _recipe(rule: Rule) -> Any:
    """Return an object that represents a rule in a pickle.

    A registered rule is represented by a tuple of name and options, because the functions of most rules
    cannot be pickled. Any other rule represents itself.
    """
    registered = rules().get(rule.name)
    rebuilt = registered is not None and registered.build is not None and registered.build is rule.build
    return (rule.name, dict(rule.chosen)) if registered is rule or rebuilt else rule


def _biases(group: Mapping[str, Any]) -> dict[str, str]:
    """Find the biases of a parameter group by the names of parameters.

    `NAME.bias` is a bias if the group has a `NAME.weight` with two axes or more.

    Returns:
        The kind `bias` by the name of each bias.
    """
    names = group.get("param_names", ())
    weights = {name for name, param in zip(names, group["params"], strict=False) if param.ndim > 1}
    owners = {name: name.removesuffix("bias") for name in names if name.endswith("bias")}
    return {name: "bias" for name, owner in owners.items() if f"{owner}weight" in weights}


class RuleOptimizer(torch.optim.Optimizer):  # type: ignore[misc]  # torch has no types here
    """An update rule as an optimizer of PyTorch; made by `as_torch`, which explains its behaviour.

    Args:
        rule: the rule.
        params: tensors, (name, tensor) pairs, or parameter groups.
        kinds: a mapping from names of parameters to kinds.
        hyper: hyperparameters by full name.
    """

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
        defaults = {"lr" if name == "learning_rate" else name: value for name, value in values.items()}
        super().__init__(params, defaults)
        names = [name for group in self.param_groups for name in group.get("param_names", ())]
        for name in kinds:
            if name not in names:
                hint = "" if names else "; give pairs, such as model.named_parameters()"
                raise InputError(unknown("the optimizer", "parameter", name, names) + hint)

    def add_param_group(self, param_group: Any) -> None:
        """Add a parameter group.

        Args:
            param_group: a mapping with the key `params`. It may also have hyperparameters of the group, and
                the `kind` of the group's parameters. Other hyperparameters have the values of the optimizer.

        Raises:
            InputError: when a name or value is wrong, or when the rule cannot update a parameter. In these
                cases the group is not added.
        """
        if not isinstance(param_group, Mapping):
            raise TypeError(f"a parameter group is a dict, and not {type(param_group).__name__}")
        extra = {name: value for name, value in param_group.items() if name in KEYS}
        hyper = {name: value for name, value in param_group.items() if name not in KEYS}
        if "lr" in hyper:
            if "learning_rate" in hyper:
                raise InputError("a parameter group has both lr and learning_rate; give one of them")
            hyper["learning_rate"] = hyper.pop("lr")
        defaults = {"learning_rate" if name == "lr" else name: value for name, value in self.defaults.items()}
        inherited = {name: defaults[name] for name in self.rule.hyperparameters if name in defaults}
        values = completed(self.rule, {**inherited, **hyper})
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
            closure: function that clears the gradients, computes the loss and its gradients, and returns the
                loss. Rules that take the gradient at another point than the parameters require a closure.

        Returns:
            The loss that the closure returns; None without a closure.

        Raises:
            InputError: when a hyperparameter or gradient is invalid, or a required closure is missing. All
                checks precede the update, so that an error leaves all parameters unchanged.
        """
        loss = None
        if closure is not None:
            with self._at_gradient_points(), torch.enable_grad():
                loss = closure()
        elif self._looks_ahead:
            raise InputError(
                f"{self.rule.name} takes its gradient at another point than the parameters: give step a "
                "closure that clears the gradients, computes the loss and its gradients, and returns the loss"
            )
        batches = self._batches(lambda param: param.grad is not None)
        with self._full_precision_for(batches):
            for batch in batches:
                self._advance(batch)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state and the parameter groups of an optimizer with the same rule and options.

        Raises:
            InputError: when the state belongs to another rule or other options.
        """
        rule = label(self.rule)
        for group in state_dict["param_groups"]:
            saved_rule = group.get("rule", "another optimizer")
            if saved_rule != rule:
                raise InputError(f"the state belongs to {saved_rule}, and this optimizer is {rule}")
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
        """Check that the rule can update a parameter, given the parameter's gradient.

        Args:
            group: the parameter group.
            number: index of the parameter in the group.
            param: the parameter.

        Raises:
            InputError: when the parameter's shape or precision is not supported, or its gradient is sparse.
        """
        name = self._name(group, number)
        remedy = "keep the parameters in float32, and compute the loss under torch.autocast"
        check_array(name, tuple(param.shape), _name_of(param.dtype), remedy)
        with as_input_errors():
            self.rule.check_dtype(_name_of(param.dtype))
        if param.grad is not None and param.grad.layout != torch.strided:
            raise InputError(f"{name} has a sparse gradient; make it dense, as Embedding(sparse=False) does")

    def _name(self, group: Mapping[str, Any], number: int) -> str:
        """Return the words by which messages refer to a parameter, such as `the parameter 'w'`."""
        names = group.get("param_names")
        return f"the parameter {names[number]!r}" if names else f"the parameter {number} of its group"

    def _declared_kind(self, group: Mapping[str, Any], number: int) -> Any:
        """Return a parameter's kind, such as weight or bias: declared by the user or inferred from the name.

        If the user has not declared the kind, and the name does not show it, the result is None.
        """
        names = group.get("param_names")
        return group["kind"] or (self.kinds.get(names[number]) if names else None)

    def _kind(self, group: Mapping[str, Any], number: int, shape: tuple[int, ...]) -> Any:
        """Return the kind of a parameter, or a `Role` with kind and layer if the layer is known as well."""
        return self._declared_kind(group, number) or roles_of({"": shape})[""].kind

    def _form_of(self, kinds: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> Form:
        """Return the form (bound rule) of units whose parameters have the given kinds and shapes."""
        if (kinds, shapes) not in self._forms:
            self._forms[kinds, shapes] = _form(self.rule, kinds, shapes)
        return self._forms[kinds, shapes]

    @property
    def _looks_ahead(self) -> bool:
        """Whether the rule takes any gradient at another point than the current parameters."""
        part = self.rule.part
        if part is None:
            return self.rule.gradient_at is not None
        kinds_and_shapes = {
            (self._kind(group, number, tuple(param.shape)), tuple(param.shape))
            for group in self.param_groups
            for number, param in enumerate(group["params"])
        }
        return any(part(Role(kind), shape).rule.gradient_at is not None for kind, shape in kinds_and_shapes)

    def _batches(self, takes_part: Callable[[torch.Tensor], bool]) -> list[Batch]:
        """Return the batches of the parameters for which `takes_part` returns True."""
        return [
            batch
            for group in self.param_groups
            for batch in self._batches_of(
                group, [number for number, param in enumerate(group["params"]) if takes_part(param)]
            )
        ]

    def _batches_of(self, group: Mapping[str, Any], numbers: Sequence[int]) -> Iterator[Batch]:
        """Divide some parameters of a group, given by their indices, into batches; yield the batches.

        Raises:
            InputError: when a hyperparameter or a parameter is invalid.
        """
        values, params = self._values(group), group["params"]
        for number in numbers:
            self._check(group, number, params[number])
        if self.rule.sees_model:
            batches = [list(numbers)] if numbers else []
            self._check_members(group, numbers)
        else:
            by_key: dict[Any, list[int]] = {}
            for number in numbers:
                by_key.setdefault(self._batch_key(group, number), []).append(number)
            batches = list(by_key.values())
        for members in batches:
            first_unit = members if self.rule.sees_model else members[:1]
            shapes = tuple(tuple(params[number].shape) for number in first_unit)
            kinds = tuple(
                self._kind(group, number, shape) for number, shape in zip(first_unit, shapes, strict=True)
            )
            form = self._form_of(kinds, shapes)
            tensors = [params[number] for number in members]
            units = [tensors] if self.rule.sees_model else [[tensor] for tensor in tensors]
            first, step = tensors[0], self._steps(tensors[0]) + 1
            arrays = {
                name: torch.full((1, 1), value, dtype=first.dtype, device=first.device)
                for name, value in {**values, "step": float(step)}.items()
            } | self._needed(form, step)
            yield Batch(form, units, arrays, step, ops_of(str(first.device), first.dtype))

    def _needed(self, form: Form, step: int) -> dict[str, Any]:
        """Return a mapping from the rule's needs to their values (1, ...) at a step, for one unit.

        This class is for rules without needs; `LayerRuleOptimizer` overrides the method.
        """
        return {}

    def _batch_key(self, group: Mapping[str, Any], number: int) -> Any:
        """Return the key of a parameter's batch: the properties that all parameters of the batch share.

        A large parameter has a unique key, so that its batch contains no other parameters.
        """
        param = group["params"][number]
        shape = tuple(param.shape)
        unique = number if param.numel() > MAX_STACKED_ENTRIES else None
        return self._kind(group, number, shape), shape, param.dtype, param.device, self._steps(param), unique

    def _steps(self, param: torch.Tensor) -> int:
        """Return how often a parameter has been updated."""
        state = self.state.get(param)
        return int(state["step"]) if state else 0

    def _check_members(self, group: Mapping[str, Any], numbers: Sequence[int]) -> None:
        """Check that a rule that updates a group as one vector gets the same parameters at each step.

        Raises:
            InputError: when the rule would get other parameters than at the first step, or parameters with
                several devices or precisions.
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
        storages = {f"{_name_of(params[number].dtype)} on {params[number].device}" for number in numbers}
        if len(storages) > 1:
            raise InputError(
                f"{self.rule.name} sees the parameters of a group as one vector, and these are "
                f"{', '.join(sorted(storages))}; give each kind a group of its own"
            )

    def _values(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the hyperparameters of a parameter group, and the multiplier of its learning rate.

        The keys are the names that the rule uses. `learning_rate` is the initial learning rate of the group.
        The multiplier `schedule` is the current `lr` of the group divided by the initial learning rate. All
        other hyperparameters have their current values.

        Raises:
            InputError: when a value is invalid.
        """
        if "learning_rate" in group:
            raise InputError("a parameter group's learning rate is its key 'lr', and not 'learning_rate'")
        rate, base = group["lr"], group["base_learning_rate"]
        hyper = {name: group[name] for name in self.rule.hyperparameters if name != "learning_rate"}
        # A user may not set the learning rate 0, but a scheduler may decrease the rate to 0.
        # If the rate is 0, check the initial learning rate instead.
        values = completed(self.rule, {**hyper, "learning_rate": base if rate == 0 else rate})
        return {**values, "learning_rate": base, "schedule": rate / base}

    # --- updates -------------------------------------------------------------------------------------

    def _full_precision_for(self, batches: Sequence[Batch]) -> Any:
        return in_full_precision({batch.units[0][0].device.type for batch in batches})

    def _stacked_state(self, batch: Batch) -> list[torch.Tensor]:
        """Return the arrays of the state of a batch, each (units, ...).

        Units without a state are initialized.

        Raises:
            InputError: when the stored state of a unit has other arrays than the rule requires.
        """
        form = batch.form
        for unit in batch.units:
            if not self.state.get(unit[0]):
                self._init_state(batch, unit)
            names, required = set(self.state[unit[0]]), {"step", *form.names}
            if names != required:
                raise InputError(
                    f"the state of a parameter of shape {tuple(unit[0].shape)} has {sorted(names)}, and "
                    f"{label(self.rule)} needs {sorted(required)}; was it of another kind?"
                )
        return [
            _stacked([self.state[unit[0]][name].reshape(shape) for unit in batch.units])
            for name, shape in zip(form.names, form.shapes, strict=True)
        ]

    def _init_state(self, batch: Batch, unit: Tensors) -> None:
        """Compute and store the initial state of a unit."""
        form = batch.form
        single = Batch(form, [unit], batch.values, batch.step, batch.ops)
        state = form.update.init(batch.ops, single.flat(torch.Tensor.detach))
        for param in unit:
            self.state[param]["step"] = torch.tensor(0.0, dtype=torch.float32, device="cpu")
        for name, leaf, shape in zip(form.names, pytree.tree_leaves(state), form.stored, strict=True):
            self.state[unit[0]][name] = leaf.reshape(shape).clone(memory_format=torch.contiguous_format)

    def _advance(self, batch: Batch) -> None:
        """Update the parameters and the state of a batch.

        Arrays of the state are replaced by new arrays and not overwritten, because a checkpoint that is being
        written may refer to the old arrays.
        """
        form, update = batch.form, batch.form.update
        olds = self._stacked_state(batch)
        flat, grad = batch.flat(torch.Tensor.detach), batch.flat(_gradient)
        new, state = update.apply(
            batch.ops,
            grad,
            (pytree.tree_unflatten(olds, form.spec),),
            flat,
            batch.values,
            update.work_of(batch.step),
        )
        # Copy a new state that is a view of the parameters or the gradients, which are overwritten later.
        # Also copy a state that is a view of a larger array.
        # The view would keep the larger array in memory and in checkpoints.
        overwritten = {tensor.untyped_storage().data_ptr() for tensor in (flat, grad)}
        leaves = pytree.tree_leaves(state)
        for name, old, leaf, shape in zip(form.names, olds, leaves, form.stored, strict=True):
            if leaf is old:
                continue
            for unit, value in zip(batch.units, leaf.broadcast_to(old.shape).unbind(0), strict=True):
                memory = value.untyped_storage()
                owns_memory = memory.nbytes() == value.nbytes and memory.data_ptr() not in overwritten
                self.state[unit[0]][name] = (value if owns_memory else value.clone()).reshape(shape)
        batch.put(new)
        for unit in batch.units:
            for param in unit:
                self.state[param]["step"] = self.state[param]["step"] + 1

    @contextmanager
    def _at_gradient_points(self) -> Iterator[None]:
        """Return a context in which the parameters have the values at which the rule takes the gradient."""
        if not self._looks_ahead:
            yield
            return
        batches = self._batches(lambda param: param.requires_grad)
        originals = []
        with self._full_precision_for(batches):
            for batch in batches:
                state = (pytree.tree_unflatten(self._stacked_state(batch), batch.form.spec),)
                flat = batch.flat(torch.Tensor.detach)
                originals.append(flat.clone())
                batch.put(batch.form.update.point(batch.ops, state, flat, batch.values))
        try:
            yield
        finally:
            with torch.no_grad():
                for batch, flat in zip(batches, originals, strict=True):
                    batch.put(flat)


def _gradient(param: torch.Tensor) -> torch.Tensor:
    return param.grad.detach().to(param.dtype)
