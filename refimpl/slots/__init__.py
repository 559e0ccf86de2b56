"""What a setup is made of: the questions of each slot, what a module may look at, the baseline's modules."""
