"""How large the pool must be, for every heuristic, order and policy, and where its holes are."""
