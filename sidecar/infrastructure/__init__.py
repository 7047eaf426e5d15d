"""The outside: one folder for each thing the sidecar talks to."""
