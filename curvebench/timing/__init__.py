"""Measurement of step times and memory."""
