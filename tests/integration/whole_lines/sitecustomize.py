"""Python in a worker, started with -u as by torchrun, writes each part of a print by itself, so that what two ranks print at once is mixed.
Found by PYTHONPATH, this has it write whole lines, for tests that look for them."""
import sys

for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(line_buffering=True, write_through=False)
