"""The commands of the terminal: one module per subject, one function of the parsed arguments per command."""
