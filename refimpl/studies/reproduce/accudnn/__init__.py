"""AccUDNN's evaluation: what its abstract claims, in every reading, and what our reconstruction of it does."""
