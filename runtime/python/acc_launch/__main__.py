"""python -m acc_launch …: acc-launch, with this interpreter for the workers."""
import os
import sys

from .programs import environment_of_programs, find_program

if __name__ == "__main__":
    os.execve(find_program("acc-launch"), ["acc-launch", *sys.argv[1:]], environment_of_programs())
