"""What the sidecar does with rate limits. Standard library and domain only."""
