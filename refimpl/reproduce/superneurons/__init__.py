"""SuperNeurons: its published figures, ours beside them, their tables and pictures, and its measurement here."""

__all__ = [
    "by_type", "capacity", "evaluation", "figures", "measured", "pictures", "pool_study", "published", "pytorch",
    "speed", "traffic",
]  # fmt: skip
