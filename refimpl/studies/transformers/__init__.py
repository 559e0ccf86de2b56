"""What the papers' policies do to transformers, beside what people do without them."""
