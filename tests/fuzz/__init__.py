"""Fuzzing of everything that reads bytes from outside.

    python -m tests.fuzz [--seconds 60] [--only NAME ...]

`targets` has one entry for each reader: inputs, and what has to hold for whatever they are. `make test` runs
a few hundred inputs of each; the command as many as fit into the time, and prints how many they were.
"""
