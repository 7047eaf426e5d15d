"""One module for each way of asking: `read` turns the call into a request, `write` a decision into an answer.

Both are plain functions that know nothing of the web framework.
"""
