"""Conditions of claims: a class for each quantity that methods are compared by."""
