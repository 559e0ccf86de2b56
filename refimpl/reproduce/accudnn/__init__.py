"""AccUDNN's evaluation: what its abstract claims, in every reading, and what our reconstruction of it does."""

__all__ = ["evaluation", "figures", "pictures", "published", "tuned"]
