"""How constant the values of attention are, over images and over training."""
