"""Names and the objects they mean: networks, machines, modules, presets, budgets."""
