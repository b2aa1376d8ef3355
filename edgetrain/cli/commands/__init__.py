"""A module for each command: options to calls of the api, results to the screen."""
