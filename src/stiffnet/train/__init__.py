"""Training on one page."""
