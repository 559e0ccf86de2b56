"""Transformers: the papers' rules on networks that the papers did not know, beside checkpoints that users know."""
