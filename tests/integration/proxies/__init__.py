"""What happens behind real proxies with the recipes of `deploy/` unchanged."""
