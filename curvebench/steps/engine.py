"""What a backend adds to a program: automatic differentiation, lanes, compilation and a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from curvebench.arrays.ops import Array
from curvebench.precision import Policy, policy_of
from curvebench.steps.derivatives import Derivatives
from curvebench.steps.program import Carry, Constants, Inputs, Loaded

NO_GPU = (
    "device: gpu: {library} sees no GPU on this machine; give device: cpu in the study's scale, or install "
    "the CUDA build (README)"
)


Segment = Callable[[Carry, Constants, Inputs], Carry]


def multiplications(loaded: Loaded, inputs: Inputs, steps: int | None) -> float:
    """Return about how many multiplications of a parameter and an example a run's losses take in all lanes.

    It is infinite where the number of steps is not known.
    """
    if steps is None:
        return math.inf
    sent = inputs.order if inputs.batch is None else next(iter(inputs.batch.values()))
    whole = None if sent is not None else next(iter(loaded.constants.data.values()))
    examples = sent.shape[2] if whole is None else max(whole.shape[:2])
    return float(steps) * examples * math.prod(loaded.carry.coordinates.shape)


class Engine(Derivatives, Protocol):
    """A backend with a device and a precision, with defaults for what most backends share."""

    tree: Any  # the library's functions of nested containers with paths
    device: str
    policy: Policy
    notes: list[str]  # named fallbacks, for the provenance
    compiles_lanes: bool = True  # whether steps of several lanes are compiled for their number
    threads: int  # of the processor, that it is held to and that fetch what it is sent

    def __init__(self, precision: str, device: str) -> None:
        self.policy, self.device = policy_of(precision), device
        self.notes, self.threads = [], 1

    @property
    def itemsize(self) -> int:
        """Bytes of a number as it is computed."""
        return np.dtype(self.policy.computed).itemsize

    def note(self, *texts: str) -> None:
        """Keep notes for the provenance, each once."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    def unbatched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def context(self) -> AbstractContextManager[Any]:
        """The settings that everything below must run in; none is changed globally."""

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        """A function that advances all lanes by as many steps as its inputs number, and takes over the carry.

        Args:
            loaded, inputs: what it is compiled for, by shapes. It takes inputs of fewer
                steps too, whose `step` and `schedule`, which may be the host's, are shorter than the others.
            steps: how many steps the run will take, by which compiling may be worth its time; None: many.
        """

    def values_in_segment(self, loaded: Loaded) -> Hashable:
        """The hyperparameters that are part of a segment of this bundle, which others then cannot use.

        A compiled segment reads them where it runs, and has none.
        """
        return ()

    def compiled(
        self, function: Callable[..., Any], *arguments: Any, multiplications: float = math.inf
    ) -> Callable[..., Any]:
        """Compile a function for arguments like these; all its calls do about so many multiplications."""
        return function

    def compile_unbatched(
        self, function: Callable[..., Any], multiplications: float, call: Callable[[], Any], what: str
    ) -> bool:
        """Compile a function of `unbatched` as one graph where so much work is worth its time; whether it is.

        Args:
            function: what `unbatched` or `value_and_grad` gave.
            multiplications: that it will do about, over all its calls.
            call: calls it as it will be called, so that nothing is compiled later.
            what: it is, for the provenance.
        """
        return False  # what calls it is compiled as a whole

    def to_device(self, array: np.ndarray) -> Array:
        """An array of the host on its way to the device, reals in the precision that is computed in."""
        return self.ops.asarray(array)

    def limit_threads(self, threads: int) -> None:
        """Hold the backend to so many processor threads, where that can be said after its import."""
        self.threads = threads

    def synchronize(self, value: Any) -> None:
        """Wait until a result is computed."""

    def state_bytes(self, state: Any) -> int:
        """The bytes of all arrays in a state."""

    def to_bits(self, leaf: Any) -> np.ndarray:
        """A leaf of a carry on the host, bit for bit: files of NumPy have no bfloat16."""

    def from_bits(self, bits: np.ndarray, like: Any) -> Any:
        """The leaf of which `to_bits` gave the bits, on the device; it has the type of another."""

    def carry_to_host(self, carry: Carry) -> dict[str, np.ndarray]:
        """The arrays of a carry on the host, by their paths in it, bit for bit; call inside the context."""
        leaves = self.tree.tree_leaves_with_path(carry)
        return {self.tree.keystr(path): self.to_bits(leaf) for path, leaf in leaves if leaf is not None}

    def carry_from_host(self, carry: Carry, arrays: Mapping[str, np.ndarray]) -> Carry:
        """A carry like this one with the arrays that `kept` gave; call inside the context.

        Raises:
            KeyError, ValueError: where they are not those of such a carry.
        """

        def restore(path: Any, like: Any) -> Any:
            if like is None:
                return None
            name = self.tree.keystr(path)
            bits, found = self.to_bits(like), arrays[name]
            if (bits.shape, bits.dtype) != (found.shape, found.dtype):
                raise ValueError(f"{name} is {found.dtype} of shape {found.shape}")
            return self.from_bits(found, like)

        restored: Carry = self.tree.tree_map_with_path(restore, carry)
        return restored

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """The most bytes of arrays on the device while `run` calls a segment; None where none counts them."""
