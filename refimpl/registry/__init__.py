"""Names and what they stand for: networks, machines, modules, presets, budgets; planning by name, and what fits."""
