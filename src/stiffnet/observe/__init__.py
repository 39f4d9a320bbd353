"""A model and data in, a result out."""
