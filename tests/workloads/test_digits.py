"""The digits network: the data it reads."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.workloads.data import OPTDIGITS_ROWS
from curvebench.workloads.digits import DIGITS_MLP
from curvebench.workloads.workload import DataMissing
from tests.workloads.cases import random_of


@pytest.fixture(scope="module")
def reduced():
    return DIGITS_MLP.problem(DIGITS_MLP.complete({}), random_of(0))


@pytest.fixture
def full_digits(tmp_path, monkeypatch):
    """Return a folder of made-up digits in the UCI format and size: each image tells which line it is."""
    generator = np.random.default_rng(1)
    first = 0
    for name, rows in OPTDIGITS_ROWS.items():
        values = generator.integers(0, 17, size=(rows, 65))
        lines = np.arange(first, first + rows)
        values[:, :4] = np.stack(np.unravel_index(lines, (17,) * 4), axis=1)
        values[:, 64] = lines % 10
        np.savetxt(tmp_path / name, values, fmt="%d", delimiter=",")
        first += rows
    monkeypatch.setenv("CURVEBENCH_DATA", str(tmp_path))
    return tmp_path


def _line(pixels):
    """Return the number of the line that an image of `full_digits` came from, counted over both files."""
    return np.ravel_multi_index(tuple(pixels[:, :4].astype(int).T), (17,) * 4)


def test_the_default_is_scikit_learns_copy_split_in_the_papers_proportions(reduced):
    from sklearn.datasets import load_digits

    counts = {split: len(fields["labels"]) for split, fields in reduced.splits.items()}
    assert counts == {"train": 1222, "validation": 191, "test": 384}
    assert reduced.facts["examples"] == 1797
    for split, share in {"train": 3823, "validation": 598, "test": 1199}.items():
        assert abs(counts[split] - 1797 * share / 5620) < 1
    pixels, labels = load_digits(return_X_y=True)
    whole = np.column_stack([pixels / 16, labels])
    found = np.concatenate(
        [np.column_stack([fields["features"], fields["labels"]]) for fields in reduced.splits.values()]
    )
    assert np.array_equal(whole[np.lexsort(whole.T)], found[np.lexsort(found.T)])


def test_pixels_are_divided_by_the_chosen_scale(reduced):
    raw = DIGITS_MLP.problem(DIGITS_MLP.complete({"pixel_scale": 1}), random_of(0))
    assert reduced.splits["train"]["features"].max() == 1.0
    assert np.array_equal(raw.splits["train"]["features"], 16 * reduced.splits["train"]["features"])


def test_the_full_digits_are_read_from_the_named_folder(full_digits):
    settings = DIGITS_MLP.complete({"source": "full", "pixel_scale": 1.0})
    assert DIGITS_MLP.missing(settings) is None
    problem = DIGITS_MLP.problem(settings, random_of(0))
    counts = {split: len(fields["labels"]) for split, fields in problem.splits.items()}
    assert counts == {"train": 3823, "validation": 598, "test": 1199}
    assert problem.facts["examples"] == 5620
    lines = np.concatenate([_line(fields["features"]) for fields in problem.splits.values()])
    labels = np.concatenate([fields["labels"] for fields in problem.splits.values()])
    assert np.array_equal(np.sort(lines), np.arange(5620))
    assert np.array_equal(labels, lines % 10)
    assert not np.array_equal(lines, np.sort(lines))


def test_missing_full_digits_say_how_to_get_them(tmp_path, monkeypatch):
    settings = DIGITS_MLP.complete({"source": "full"})
    monkeypatch.delenv("CURVEBENCH_DATA", raising=False)
    unset = DIGITS_MLP.missing(settings)
    monkeypatch.setenv("CURVEBENCH_DATA", str(tmp_path))
    (tmp_path / "optdigits.tes").touch()
    half = DIGITS_MLP.missing(settings)
    assert unset is not None
    assert half is not None
    assert "optdigits.tra, optdigits.tes" in unset
    assert "CURVEBENCH_DATA is not set" in unset
    for text in ("needs optdigits.tra (", str(tmp_path), "https://archive.ics.uci.edu", "source: reduced"):
        assert text in half
    assert DIGITS_MLP.missing(DIGITS_MLP.complete({})) is None
    with pytest.raises(DataMissing, match=r"needs optdigits\.tra \("):
        DIGITS_MLP.problem(settings, random_of(0))
