"""Conditions of claims, with a class for each quantity by which methods are compared."""
