"""How a real engine answers over HTTP, recorded once and kept: see README.md beside this."""
