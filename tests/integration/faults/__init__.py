"""Things break while requests come: every one is answered, nothing is counted twice, and it ends."""
