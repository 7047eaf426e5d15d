"""The commands that have more to say than a few lines: check and recipe."""
