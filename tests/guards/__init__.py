"""Guards: frozen descriptions of what a refactoring must leave as it is; `make guards` runs them."""
