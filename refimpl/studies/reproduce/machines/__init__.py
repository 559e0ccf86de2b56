"""The models of GPUs beside figures that others measured: which networks and convolutions, how they were timed, and how
far the model is off.

`networks.csv` has whole networks and `convolutions.csv` single ones, in milliseconds.  `independent` predicts them,
`measured_networks` builds the networks that the zoo does not have.  `memory.csv` has MiB.
"""
