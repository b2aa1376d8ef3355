"""The command line's grammar: options, their types and the values they take."""
