"""The bandwidth of a step beside a copy: traffic, shares, the command on a small vector."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.kernels.bandwidth import (
    BandwidthRatio,
    contestants,
    copies,
    entries_of,
    faster,
    in_place,
    line,
    main,
    traffic,
    verdict,
)
from benchmarks.kernels.clock import one_thread
from benchmarks.kernels.interleaving import Ratios
from results.intervals import MedianInterval


def measured(name: str, ratio: float, entries: int = 1000) -> BandwidthRatio:
    interval = MedianInterval(median=ratio, low=0.8 * ratio, high=1.25 * ratio, level=0.95, count=9)
    same = MedianInterval(median=1.0, low=0.9, high=1.1, level=0.95, count=9)
    return BandwidthRatio(name, entries, traffic(entries), Ratios(interval, same, (ratio * 1e-6, 1e-6)))


def test_a_step_of_adamw_must_move_28_bytes_a_parameter():
    assert traffic(1) == 28
    assert traffic(2**24) == 28 * 2**24


def test_one_of_the_copies_is_the_faster():
    with one_thread():
        both = copies(2 * 4096)
        assert set(both) == {"numpy", "torch"}
        name, _ = faster(both, 1)
        assert name in both


def test_the_bound_without_a_copy_changes_its_own_array():
    prepared = in_place(800)
    prepared.run()
    assert prepared.result().tolist() == [-1.0] * 100


def test_every_contestant_takes_a_step():
    shapes = {"vector": (2048,)}
    with one_thread():
        names = []
        for name, prepared in contestants(shapes, traffic(2048)):
            before = prepared.result().copy()
            with prepared.context():
                prepared.run()
                after = prepared.result()
            assert not np.array_equal(before, after), name
            names.append(name)
    assert {"negation in place", "ours, jax", "ours, torch", "optax"} <= set(names)


def test_a_share_is_the_copys_seconds_over_the_steps():
    each = measured("ours, jax", 1.25)
    assert each.share == pytest.approx((0.8, 0.64, 1.0))
    assert "80.0% [64.0%, 100.0%]" in line(each)


def test_the_target_is_met_by_the_least_of_all_sizes():
    told = verdict([measured("ours, jax", 2.0), measured("ours, jax", 1.0), measured("ours, torch", 1.25)])
    assert told.endswith("jax 50% (missed), torch 80% (reached)")


def test_numbers_of_entries_are_read_as_powers_too():
    assert entries_of("2**20") == 2**20
    assert entries_of("5000") == 5000
    for text in ("12", "many", "2**x", "-5"):
        with pytest.raises(argparse.ArgumentTypeError, match="whole number from 1024 on"):
            entries_of(text)


def test_the_command_prints_every_step(capsys: pytest.CaptureFixture):
    assert main(["--entries", "2048", "--repetitions", "1"]) == 0
    printed = capsys.readouterr().out
    assert "ours, jax" in printed
    assert "torch.optim fused" in printed
    assert printed.splitlines()[-1].startswith("Target 70%")
