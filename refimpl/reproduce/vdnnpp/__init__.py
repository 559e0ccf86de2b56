"""vDNN++: its published figures, ours beside them, their tables and pictures, and its measurement here."""

__all__ = [
    "evaluation", "figures", "fragmentation", "fragmentation_pictures", "measured", "microbenchmark", "pictures",
    "published",
]  # fmt: skip
