"""What may happen to a store while a sidecar counts in it, played under load: for tests and for the bench."""
