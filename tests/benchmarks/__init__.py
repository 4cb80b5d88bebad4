"""Tests of the kernel cases, their clocks, and the gate."""
