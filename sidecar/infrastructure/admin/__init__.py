"""The admin port: people and Prometheus ask here."""
