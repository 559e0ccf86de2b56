"""Slow-down over budget: every setup of the papers, the policy that combines them, and the bound."""
