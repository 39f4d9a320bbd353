"""What the network did: its residual steps, one recorder of a pass, a step as a function."""
