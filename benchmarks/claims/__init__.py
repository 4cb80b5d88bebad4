"""Property claims, which checks on random instances decide. Each module covers one subject and defines
`CLAIMS`.

Modules whose name starts with an underscore have code that several of them share. The hash of a claim's
functions seeds its instances (`curvebench.property_checks.check_rules`): a renamed local variable changes
them, and a changed docstring or comment does not.
"""
