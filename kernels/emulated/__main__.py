"""`python -m kernels.emulated`: print the path of the driver, for LD_PRELOAD on a computer that has another one."""

from kernels.emulated import build

if __name__ == "__main__":
    print(build.driver())
