"""What the network did: its residual steps, and one pass as a trajectory of norms."""
