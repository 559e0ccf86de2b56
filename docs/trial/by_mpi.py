"""A study planned by the ranks of MPI: mpiexec -n 3 python -m mpi4py.futures docs/trial/by_mpi.py"""

from mpi4py.futures import MPIPoolExecutor

import refimpl

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        rows = refimpl.study(
            ["tiny-vgg", "tiny-resnet"], ["vdnn-dyn", "superneurons"], budgets=["least", "least+50%"], batches=[64],
            jobs=executor, out="by_mpi.jsonl",
        )  # fmt: skip
    for row in rows:
        print(f"{row['network']} {row['setup']} {row['budget']}: {row['slow_down']:.3f}")
