"""Conditions of claims, with a class for each quantity by which methods are compared.

A condition is a comparison that a claim makes, such as: the final loss of one method is lower than the final
loss of another method. A claim (a sentence of a paper) is supported if runs satisfy all conditions of the
claim.
"""
