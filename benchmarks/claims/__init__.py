"""Property claims, which are decided by checks on random instances.

Each module covers one subject and defines `CLAIMS`. Modules whose name starts with an underscore have code
that several modules share. The hash of a claim's functions seeds its instances
(`curvebench.property_checks.check_rules`): a renamed local variable changes the instances, and a changed
docstring or comment does not.

An instance is one random draw of a problem. A check computes the measures of each instance; a measure is a
number with a limit that it must satisfy. If a source misprints a statement, the statement is checked twice:
as printed (`printed` is true) and as corrected (`printed` is false).

In all modules, d is the number of parameters, T the number of steps, p the root of a preconditioner S^(-1/p)
unless a docstring says otherwise, eta the learning rate, and A (x) B a Kronecker product.
"""
