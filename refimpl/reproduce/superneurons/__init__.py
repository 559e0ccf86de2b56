"""SuperNeurons: its published figures, ours beside them, their tables and pictures, and its measurement here."""

__all__ = ["capacity", "evaluation", "figures", "measured", "pictures", "pool_study", "published", "traffic"]
