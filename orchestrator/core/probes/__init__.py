"""What tools and kernel files say about a host: text in, facts out. What a text does not say is None."""
