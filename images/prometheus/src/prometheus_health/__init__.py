"""The health check of the Prometheus container."""
