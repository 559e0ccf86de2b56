"""Many points planned side by side: networks, setups and budgets in processes, and their rows."""
