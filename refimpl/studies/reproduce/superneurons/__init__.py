"""SuperNeurons: its published figures, ours beside them, their tables and pictures, and its measurement here."""
