"""What was found: records of numbers, with their frames, saved and loaded; never torch."""
