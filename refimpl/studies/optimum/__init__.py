"""How far a plan is from the optimum: a lower bound, Rotor's optimum for recomputation alone, exhaustive search."""
