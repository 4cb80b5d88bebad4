"""`python -m benchmarks.gpu`: steps of whole networks beside plain loops, and what optimizers cost.

It needs torch, JAX, Optax, torchvision and timm, of these or near versions, and none of what plans and
reports need. Without a GPU it times small networks on one thread of the processor, and says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.backends.engine import engine
from curvebench.benchmarks.networks_at_speed import LARGE, NETWORKS, SMALL, TimedNetwork
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.optimizers.rule import Rule
from curvebench.steps.engine import Engine
from curvebench.timing.clocks import one_thread, seconds_of
from curvebench.timing.interleaving import interleaved
from curvebench.timing.step_times import NULL

STEPS = 10  # of a call, a whole turn of a cadence of 10
LOOK = 3  # calls of each plain loop, of which the fastest is the peer
MATRIX = {"gpu": 8192, "cpu": 1024}  # rows of the product that the rate of a precision is measured by
HALF_ITERATION = {"newton_schulz_precision": "bfloat16"}
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any], bool]] = {
    "adamw": ("adamw", {}, False),
    "muon": ("muon", HALF_ITERATION, False),
    "soap": ("soap", {"refresh_every": 10}, False),
    "shampoo": ("shampoo", {"refresh_every": 10}, False),
    "adamw @ egop": ("adamw", {}, True),
}


@dataclass(frozen=True)
class Ready:
    """A loop that is compiled and warm.

    Args:
        run: `STEPS` steps; it returns when they are done.
        compile_seconds: what the compilation and the first steps took.
        alive_bytes: of arrays between steps, without the data.
        peak_bytes: the most of arrays while it ran, without the data, as the backend counts; None where it
            does not.
    """

    run: Callable[[], None]
    compile_seconds: float
    alive_bytes: int
    peak_bytes: int | None


# --- ours ----------------------------------------------------------------------------------------


def alive_bytes(backend: str, device: str = "cpu") -> int:
    """The bytes of all arrays of a backend that are alive on a device."""
    gc.collect()
    if backend == "jax":
        import jax

        return sum(array.nbytes for array in jax.live_arrays())
    import torch

    if device != "cpu":
        return int(torch.cuda.memory_allocated())
    tensors = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def our_loop(
    network: TimedNetwork, made: Engine, rule: Rule, batch_size: int, in_basis: bool = False
) -> Ready:
    """Our steps of a rule; call inside the engine's context."""
    bundle = network.bundle(rule, batch_size, STEPS, in_basis)
    before = alive_bytes(made.ops.backend, made.device)
    loaded = load(bundle, made)
    carry, constants = loaded.carry, loaded.constants
    inputs = segment_inputs(bundle, made, 0, STEPS)
    start = time.perf_counter()
    segment = made.segment(loaded, inputs)
    del loaded
    held = [carry]
    del carry

    def run() -> None:
        held[0] = segment(held[0], constants, inputs)
        made.synchronize(held[0])

    run()
    seconds = time.perf_counter() - start
    data = sum(made.state_bytes(one) for one in (constants.data, inputs.order))
    peak = made.device_peak(segment, run)
    alive = alive_bytes(made.ops.backend, made.device) - before - data
    others = data if made.ops.backend == "jax" else before + data  # XLA lays this loop's arrays out alone
    return Ready(run, seconds, alive, None if peak is None else peak - others)


# --- plain loops ---------------------------------------------------------------------------------


TORCH_FORMS = {  # name of each plain loop on torch: whether it is compiled, and whether channels are last
    "eager": (False, False),
    "channels last": (False, True),
    "compiled": (True, False),
    "compiled channels last": (True, True),
}


def plain_torch(
    network: TimedNetwork, made: Engine, precision: str, batch_size: int, compiled: bool, channels_last: bool
) -> Ready:
    """The steps of AdamW that a user of PyTorch would write."""
    import torch
    from torch.nn import functional

    place = made.device
    before = alive_bytes("torch", place)
    model = network.module().to(place)
    if precision == "bfloat16":
        model = model.bfloat16()
    form = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=form)
    pixels, labels = network.images(2 * batch_size)
    images = torch.tensor(pixels, device=place).to(memory_format=form)
    if precision == "bfloat16":
        images = images.bfloat16()
    targets = torch.tensor(labels, device=place)
    data = images.untyped_storage().nbytes() + targets.untyped_storage().nbytes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    orders = torch.randint(0, len(labels), (STEPS, batch_size), device=place)
    called = torch.compile(model) if compiled else model

    def run() -> None:
        for order in orders:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(place, torch.bfloat16, enabled=precision == "mixed"):
                loss = functional.cross_entropy(called(images[order]), targets[order])
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        made.synchronize(None)

    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    peak, taken = made.device_peak(called, run), before + data
    return Ready(run, seconds, alive_bytes("torch", place) - taken, None if peak is None else peak - taken)


def plain_jax(network: TimedNetwork, made: Engine, batch_size: int, optimizer: Any = None) -> Ready:
    """The jitted steps of Optax on our loss, AdamW's if not given; call inside the engine's context."""
    import jax
    import optax

    from curvebench.backends.jax_engine import laid_out_bytes

    before = alive_bytes("jax")
    problem = network.problem(batch_size)
    params = {
        name: made.ops.cast(made.ops.asarray(value), made.policy.parameters)
        for name, value in problem.parameters.items()
    }
    state = {name: made.ops.asarray(value) for name, value in problem.state.items()}
    data = {name: made.ops.asarray(value) for name, value in problem.splits["train"].items()}
    orders = np.random.default_rng(1).integers(0, 2 * batch_size, (STEPS, batch_size))
    optimizer = optimizer or optax.adamw(1e-4, weight_decay=0.0)

    @partial(jax.jit, donate_argnums=0)
    def step(carry: Any, order: Any, data: Any) -> Any:
        params, state, moments = carry
        batch = {name: values[order] for name, values in data.items()}

        def value(params: Any) -> Any:
            loss, new_state, _ = network.classifier.loss(made.model_ops, params, state, batch, {})
            return loss, new_state

        with made.products():
            (_, state), grads = jax.value_and_grad(value, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), state, moments

    held = [(params, state, optimizer.init(params))]
    del params, state
    given = [made.ops.asarray(order) for order in orders]

    def run() -> None:
        for order in given:
            held[0] = step(held[0], order, data)
        made.synchronize(held[0])

    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    taken = sum(array.nbytes for array in data.values())
    peak = laid_out_bytes(step.lower(held[0], given[0], data).compile())
    return Ready(run, seconds, alive_bytes("jax") - before - taken, peak - taken)


def plain_loops(
    network: TimedNetwork, made: Engine, precision: str, batch_size: int
) -> Iterator[tuple[str, Callable[[], Ready]]]:
    """Each plain loop by name."""
    if made.ops.backend == "jax":
        yield "jitted optax", partial(plain_jax, network, made, batch_size)
        return
    for name, (compiled, channels_last) in TORCH_FORMS.items():
        if channels_last and network.field != "images":
            continue
        yield name, partial(plain_torch, network, made, precision, batch_size, compiled, channels_last)


# --- counting ------------------------------------------------------------------------------------


def operations(network: TimedNetwork, batch_size: int) -> int:
    """Floating point operations of a step's gradient, counted by torch on the plain module without data."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        images = torch.empty(batch_size, network.channels, network.side, network.side)
    model = network.module().to("meta")
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    return int(counter.get_total_flops())


def matrix_rate(precision: str, device: str) -> float:
    """Floating point operations a second of torch's product of large square matrices."""
    import torch

    made = engine("torch", "tf32" if precision == "tf32" else "float32", device)
    kind = torch.bfloat16 if precision in ("mixed", "bfloat16") else torch.float32
    rows = MATRIX[device]
    one = torch.randn(rows, rows, device=made.device, dtype=kind)

    def run() -> None:
        torch.matmul(one, one)
        made.synchronize(None)

    with made.context(), made.products():
        run()
        return 2 * rows**3 / min(seconds_of(run, 3) for _ in range(5))


# --- the table -----------------------------------------------------------------------------------


def measured(
    network: TimedNetwork,
    backend: str,
    precision: str,
    device: str,
    batch_size: int,
    repetitions: int,
    optimizers: Sequence[str],
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """The rows of one network, backend and precision: AdamW beside plain loops, then what optimizers cost."""
    made = engine(backend, precision, device)
    entries = sum(map(math.prod, network.network.shapes.values()))
    named = {"network": network.name, "backend": backend, "precision": precision, "batch_size": batch_size}
    adamw = rules()["adamw"]
    with made.context():
        say("ours, adamw")
        ours = our_loop(network, made, adamw, batch_size)
        times, loops = {}, {}
        for name, make in plain_loops(network, made, precision, batch_size):
            say(f"plain, {name}")
            try:
                loops[name] = make()
            except Exception as error:  # whatever another library or its compiler raises
                say(f"plain, {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            times[name] = min(seconds_of(loops[name].run, 1) for _ in range(LOOK))
        row = {
            **named,
            "measured": "adamw over the fastest plain loop",
            "ours_milliseconds": _milliseconds(min(seconds_of(ours.run, 1) for _ in range(LOOK))),
            "compile_seconds": round(ours.compile_seconds, 1),
            "alive_bytes_a_parameter": round(ours.alive_bytes / entries, 2),
            "peak_bytes": ours.peak_bytes,
            "notes": list(made.notes),
        }
        if times:
            fastest = min(times, key=lambda name: times[name])
            peer = loops.pop(fastest)
            loops.clear()
            found = interleaved(ours.run, peer.run, repetitions)
            rate = matrix_rate(precision, device)
            row |= {
                "peer": fastest,
                "plain_milliseconds": {name: _milliseconds(seconds) for name, seconds in times.items()},
                "ratio": _interval(found.ratio),
                "same": _interval(found.same),
                "images_a_second": round(batch_size * STEPS / found.seconds[0], 1),
                "share_of_matrix_rate": round(
                    operations(network, batch_size) * STEPS / found.seconds[0] / rate, 4
                ),
                "matrix_operations_a_second": float(f"{rate:.3g}"),
                "plain_alive_bytes_a_parameter": round(peer.alive_bytes / entries, 2),
                "plain_peak_bytes": peer.peak_bytes,
            }
            del peer
        yield row
        del ours
        say("the gradient alone")
        null = our_loop(network, made, NULL, batch_size)
        for name in optimizers:
            rule, options, in_basis = OPTIMIZERS[name]
            say(f"cost of {name}")
            loop = our_loop(network, made, rules()[rule].choose(options), batch_size, in_basis)
            found = interleaved(loop.run, null.run, repetitions)
            yield {
                **named,
                "measured": f"cost of {name}",
                "ours_milliseconds": _milliseconds(found.seconds[0]),
                "percent_of_the_gradient": [
                    round(100 * (value - 1), 1)
                    for value in (found.ratio.median, found.ratio.low, found.ratio.high)
                ],
                "compile_seconds": round(loop.compile_seconds, 1),
                "alive_bytes_a_parameter": round(loop.alive_bytes / entries, 2),
                "peak_bytes": loop.peak_bytes,
            }


def _milliseconds(seconds: float) -> float:
    """Of one step, from the seconds of a call."""
    return round(1e3 * seconds / STEPS, 3)


def _interval(found: Any) -> list[float]:
    return [round(value, 3) for value in (found.median, found.low, found.high)]


def machine(device: str) -> dict[str, Any]:
    """What the table was measured on."""
    import torch

    from curvebench.results.provenance import cpu_model

    name = torch.cuda.get_device_name() if device == "gpu" else f"{cpu_model()}, one thread"
    packages = ("torch", "jax", "optax", "torchvision", "timm")
    return {
        "device": name,
        "python": sys.version.split()[0],
        **{package: version(package) for package in packages},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="Time whole steps beside plain loops, on a GPU or a CPU."
    )
    parser.add_argument("--device", choices=("gpu", "cpu"), help="a GPU where there is one")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="large on a GPU, small on a CPU")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    known = list(dict.fromkeys(word for network in NETWORKS.values() for word in network.precisions))
    parser.add_argument(
        "--precisions", nargs="+", choices=known, help="of those that each network is timed in"
    )
    parser.add_argument("--optimizers", nargs="*", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, help="128 on a GPU, 32 on a CPU")
    parser.add_argument("--repetitions", type=int, default=9, help="samples of each (9); from 6 on 95 %%")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="append rows here; a network, backend and precision that it has is not timed again",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each row."""
    parser = _parser()
    given = parser.parse_args(arguments)
    began = time.monotonic()
    import torch

    if given.device == "gpu" and not torch.cuda.is_available():
        parser.error("--device gpu: PyTorch sees no GPU here; leave it out to time small networks on the CPU")
    device = given.device or ("gpu" if torch.cuda.is_available() else "cpu")
    if device == "cpu" and given.device is None:
        print("no GPU is here: small networks on one thread of the processor", file=sys.stderr)
    networks = [NETWORKS[name] for name in given.networks or ()] or list(LARGE if device == "gpu" else SMALL)
    batch_size = given.batch_size or (128 if device == "gpu" else 32)
    stored = given.out.read_text().splitlines() if given.out and given.out.is_file() else []
    done = {(row["network"], row["backend"], row["precision"]) for row in map(json.loads, stored)}
    parts = [
        (network, backend, precision)
        for network in networks
        for precision in network.precisions
        if precision in (given.precisions or network.precisions)
        for backend in given.backends
        if (network.name, backend, precision) not in done
    ]
    sizes = (device, batch_size, given.repetitions, given.optimizers)
    with one_thread() if device == "cpu" else nullcontext():
        for network, backend, precision in parts:
            lines = []
            say = partial(_say, f"{network.name} {backend} {precision}", began)
            for row in measured(network, backend, precision, *sizes, say):
                lines.append(json.dumps({**row, "machine": machine(device)}) + "\n")
                print(lines[-1], end="", flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.writelines(lines)


def _say(part: str, began: float, what: str) -> None:
    print(f"{time.monotonic() - began:6.0f} s  {part}: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
