"""Random generators: equal by axes, different between them, and whole permutations as batches."""

from __future__ import annotations

import numpy as np

from curvebench.seeding import WorkloadRandom, batch_order, generator


def test_equal_axes_give_equal_streams_and_no_others_do() -> None:
    points: list[tuple[str | int, ...]] = [
        ("a", 1, "order"),
        ("a", 2, "order"),
        ("a", 1, "data"),
        ("b", 1, "order"),
        ("a", "1", "order"),
    ]
    streams = [tuple(generator(*point).integers(0, 2**62, 4)) for point in points]
    assert len(set(streams)) == len(points)
    assert tuple(generator("a", 1, "order").integers(0, 2**62, 4)) == streams[0]


def test_a_stream_is_the_same_on_every_machine() -> None:
    assert generator("golden", 7, "order").integers(0, 1000, 5).tolist() == GOLDEN


GOLDEN = [861, 915, 761, 830, 467]


def test_shared_streams_ignore_the_seed() -> None:
    one, other = WorkloadRandom("a", 1), WorkloadRandom("a", 2)
    assert one("split", shared=True).random() == other("split", shared=True).random()
    assert one("split").random() != other("split").random()


def test_epochs_are_permutations_cut_into_whole_batches() -> None:
    order = batch_order(WorkloadRandom("a", 0), examples=10, batch_size=3, steps=7)
    assert order.shape == (7, 3)
    assert order.dtype == np.int32
    for epoch in (order[:3], order[3:6]):
        assert len(set(epoch.ravel().tolist())) == 9
    assert not np.array_equal(order[:3], order[3:6])


def test_more_steps_begin_with_the_same_batches() -> None:
    random = WorkloadRandom("a", 0)
    assert np.array_equal(batch_order(random, 10, 3, 20)[:7], batch_order(random, 10, 3, 7))
