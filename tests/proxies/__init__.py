"""Each proxy as the tests run it: with the files of `deploy/`, unchanged, on the ports that those have."""
