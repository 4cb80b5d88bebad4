"""Tests of the kernel cases, the gate, synthetic images, and the errors that checks of claims detect."""
