"""The rates of the input pipeline are measured and printed, on a few images."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch

from curvebench.benchmarks import input_rate


@pytest.fixture
def threads_given_back() -> Iterator[None]:
    """PyTorch keeps one thread in the tests that follow: two on a busy processor wait for each other."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("threads_given_back")
def test_every_rate_and_wait_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for name, few in {"IMAGES": 8, "BATCH": 4, "STEPS": 8}.items():
        monkeypatch.setattr(input_rate, name, few)
    assert input_rate.main(["--rounds", "1", "--threads", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rates = [line for line in lines if re.search(r" \d+ a second, \d+\.\d\d times the decoder alone$", line)]
    waits = [
        line
        for line in lines
        if re.match(r"(torch|jax): .* s a step, .*% waiting; .* s before the first", line)
    ]
    assert len(rates) == 5, "the decoder, and two sources on one and two threads"
    assert len(waits) == 2
    assert len(lines) == 7
