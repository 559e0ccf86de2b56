"""Each paper's published figures beside ours: what shows them, and what measures them on this computer."""

__all__ = ["evaluation", "measured", "published", "superneurons", "vdnn", "vdnnpp"]
