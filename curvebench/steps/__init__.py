"""One step of a bundle, shared by all backends, and the interface of an engine."""
