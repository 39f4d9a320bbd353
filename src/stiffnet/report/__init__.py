"""Results in; tables, plots and one self-contained page out. Never a model, never torch."""
