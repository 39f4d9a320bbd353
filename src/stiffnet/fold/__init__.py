"""What may be folded into a network's weights, and proof that it changed nothing."""
