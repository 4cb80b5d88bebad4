"""Estimation of bases from gradients, before and during runs.

A basis (`curvebench.optimizers.bases`) says how an optimizer changes coordinates. This package computes the
matrices of bases that are estimated, such as the eigenvectors of the EGOP, and applies a basis of a first
layer to the data.
"""
