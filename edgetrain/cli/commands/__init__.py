"""One module per command: it calls the API with the options and prints the results."""
