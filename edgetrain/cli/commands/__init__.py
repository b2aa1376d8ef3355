"""Functions of the commands: each calls the API with the options and prints the results."""
