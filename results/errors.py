"""The error that a table, or the folder it lies in, causes."""


class TableError(RuntimeError):
    """A table that cannot be written, read or merged; the message names the file and the remedy."""
