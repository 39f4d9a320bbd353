"""Where things are plugged in: networks by name, their weights and folders."""
