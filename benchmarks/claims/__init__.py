"""Property claims, which checks on random instances decide. Each module covers one subject and defines
`CLAIMS`.

Modules whose name starts with an underscore have code that several of them share. The hash of a claim's
functions seeds its instances (`curvebench.property_checks.check_rules`): a renamed local variable changes
them, and a changed docstring or comment does not.

An instance is one random draw of a problem; a check computes measures of an instance, numbers with a limit
that they must satisfy. Where a source misprints a statement, it is checked twice, as printed and as corrected
(`printed` is true or false).

In all modules, d is the number of parameters, T the number of steps, p the root of a preconditioner S^(-1/p)
unless a docstring says otherwise, eta the learning rate, and A (x) B a Kronecker product.
"""
