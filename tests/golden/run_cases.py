#!/usr/bin/env python3
"""Runs check_launch.py over the recorded cases, those of several machines too: with --run they start on loopback.

    run_cases.py --acc-launch PATH [--run]

Recorded starts have fixed ports, 29500 above all, and any other job on this host that has one of them would make them
differ: they run in a network namespace of their own. Where none may be made and a port is taken, they are skipped (exit
code 77).
"""
import argparse
import ctypes
import fcntl
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "accelerate")
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1


def enter_own_network():
    """False if this process may not."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    return True


def can_bind(kind, address):
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        if kind != socket.AF_UNIX:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def taken_ports():
    """Ports of workers that another acc-launch has reserved, by a name (common/ports.cpp), and ports of coordinators beside
    them on which something listens."""
    texts = [path.read_text() for path in pathlib.Path(CASES).glob("*.json")]
    ports = sorted({int(port) for text in texts for port in re.findall(r'"MASTER_PORT": "(\d+)"', text)})
    return [port for port in ports if not can_bind(socket.AF_UNIX, f"\0acc-launch/port/{port}")] + \
           [port + 1 for port in ports if not can_bind(socket.AF_INET, ("", port + 1))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    parser.add_argument("--run", action="store_true")
    args = parser.parse_args()
    if args.run and not enter_own_network():
        taken = taken_ports()
        if taken:
            print(f"skipped: no network namespace may be made here, and ports of recorded starts are taken: {taken}")
            return 77
    words = [sys.executable, os.path.join(HERE, "check_launch.py"), "--acc-launch", args.acc_launch, CASES]
    return subprocess.call(words + (["--run"] if args.run else []))


sys.exit(main())
