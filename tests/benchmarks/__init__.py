"""Tests of the kernel cases, the gate, made-up images, and what the checks of claims notice."""
