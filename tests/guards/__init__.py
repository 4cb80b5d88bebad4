"""Guards: frozen descriptions of everything that a refactoring must not change; `make guards` runs them."""
