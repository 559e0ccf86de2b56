"""What evaluates: the library never imports it.  A study's command is `command.py` beside what it shows.

grid            the engine for many points: rows on disk, tables, pictures; a network's setups over the budget
optimum         how far a plan is from the best that any policy could do
neighbours      four policies of others, as modules in the papers' slots
transformers    the policies on transformers, beside the checkpoints that users know
challenge       a setup on a fixed set of points, beside the best that is known of each
fragmentation   how large the pool must be, for every heuristic, order and policy
bench           kernels, planning and training, timed, beside NumPy, PyTorch and MPI
reproduce       each paper's published figures beside ours
"""
