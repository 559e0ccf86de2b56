"""Ranks of data-parallel training: threads of one process, and processes that MPI starts."""
