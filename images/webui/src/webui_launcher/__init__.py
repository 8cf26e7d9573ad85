"""Starts Open-WebUI as this stack's page: reads the secrets, sets what it needs, becomes it."""
