"""What is seen from outside: metrics and logs."""
