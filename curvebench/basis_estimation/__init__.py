"""Estimation of bases from gradients, before and during runs.

A basis (`curvebench.optimizers.bases`) is a change of coordinates in which an optimizer works, computed from
a matrix V. This package estimates V, for example as the eigenvectors of the EGOP (expected gradient outer
product), and can apply a basis of the first layer to the data instead of the parameters.
"""
