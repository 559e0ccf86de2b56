"""Packaging of the two rooms, `kernels` and `refimpl`, and of the command `refimpl`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "refimpl" / "__init__.py").read_text(encoding="utf-8"), re.M)[1]

# macOS has no wheels of CUDA's packages: what needs them runs in the container.
NOT_MACOS = "sys_platform != 'darwin'"
NVDISASM = f"nvidia-cuda-nvdisasm; {NOT_MACOS}"

# A GPU wants the CUDA 13 or the CUDA 12 wheels; pinned to 13.0: newer ones write PTX that a driver 580 cannot read.
CU13 = [f"{name}; {NOT_MACOS}" for name in ("numba-cuda[cu13]", "cuda-toolkit==13.0.*", "nvidia-nvjitlink==13.0.*")]
CU12 = [f"numba-cuda[cu12]; {NOT_MACOS}"]

# Ranks that are processes; on a cluster mpi4py is built for the MPI that is there, and mpich stays away.  Windows has
# no wheel of an MPI: there, ranks run in WSL 2.
MPI = ["mpi4py>=4.1; sys_platform != 'win32'", "mpich; sys_platform != 'win32'"]
# The solver of the lower bound (compare --bound, study --bound).
HIGHS = "highspy>=1.11"
# Reading and writing ONNX files.
ONNX = "onnx>=1.16"

# What the tests and the linters need, whatever the CUDA version.
TOOLS = [
    "pytest>=9", "pytest-xdist>=3.6.1", "hypothesis", "nbclient", "nbformat", "ipykernel",
    "ruff", "mypy", NVDISASM, HIGHS, ONNX,
    "playwright==1.58.*",  # for the browsers that are installed; later ones cannot drive Firefox ESR
]  # fmt: skip

NOTEBOOKS = ["jupyterlab", "ipykernel", "pytest>=9", NVDISASM, HIGHS, ONNX, *MPI]

setup(
    name="refimpl",
    version=VERSION,
    description="Training networks that do not fit the GPU's memory: a reference implementation of papers",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="the refimpl authors",
    license="MIT",
    packages=find_packages(include=["kernels", "kernels.*", "refimpl", "refimpl.*"]),
    package_data={
        "kernels": ["py.typed"],
        "kernels.targets.emulated": ["*.c", "*.h"],  # compiled on first use
        "refimpl": ["py.typed"],
        "refimpl.machine": ["*.json", "*.csv"],  # what kernels cost on one CPU, cards of today
        "refimpl.studies.challenge": ["*.json"],  # the printed points
        "refimpl.report.page": ["*.html", "*.css", "*.js"],
        "refimpl.studies.reproduce": ["*/*.json", "*/*.csv"],  # what the papers published
    },
    # scikit-learn for its digits alone, which the demo and `refimpl run` train on; nothing else imports it.
    install_requires=[
        "numpy",
        "numba>=0.63",
        f"numba-cuda>=0.30.3,<1; {NOT_MACOS}",
        "rich",
        "argcomplete>=3.1",
        "matplotlib",
        "scikit-learn",
    ],
    extras_require={
        "cu13": CU13,
        "cu12": CU12,
        # The machine-code tests compile for GPUs, on any machine, hence the CUDA wheels.
        "test": [*TOOLS, *MPI, *CU13],
        "test12": [*TOOLS, *MPI, *CU12],
        "mpi": MPI,
        "optimum": [HIGHS],
        "onnx": [ONNX],
        "torch": ["torch"],  # refimpl/torch/private.py has the versions that the tests were run with
        "docs": ["sphinx>=8.1,<10", "myst-nb>=1.4", "furo", "ipykernel"],
        # All that the notebooks use but PyTorch: the emulated GPU's compiler, ranks, the bound, machine code to read.
        "tutorials": [*NOTEBOOKS, *CU13],
        "tutorials12": [*NOTEBOOKS, *CU12],
    },
    entry_points={"console_scripts": ["refimpl = refimpl.__main__:main"]},
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
    ],
)
