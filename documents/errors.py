"""The error that a user's input causes."""


class InputError(ValueError):
    """Bad input: the message names the file, the key and what would be right."""
