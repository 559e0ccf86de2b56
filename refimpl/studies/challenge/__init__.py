"""A fixed set of plans on which policies are compared, and a third that is drawn."""
