"""Many plans at once: networks, setups, machines and budgets, a flat row for each."""
