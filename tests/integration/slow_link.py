"""A slow line: copies Ethernet frames between two TAP devices that it makes, late, and some of them never or twice.

    slow_link.py NEAR FAR delay_ms=100 jitter_ms=5 loss=10 mbit=1 duplicate=1 reorder=1

Prints "ready" when both devices are there. The kernel here has no netem. Ends with its standard output's reader or by a signal.
"""
import fcntl, heapq, os, random, select, struct, sys, time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
QUEUE = 500  # frames a direction; more are dropped, as a router does


def tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class Line:
    """One direction."""

    def __init__(self, to, how):
        self.to, self.how, self.last, self.free = to, how, 0.0, 0.0
        self.waiting, self.number = [], 0

    def take(self, frame, now):
        how = self.how
        for _ in range(2 if random.uniform(0, 100) < how["duplicate"] else 1):
            if random.uniform(0, 100) < how["loss"] or len(self.waiting) >= QUEUE:
                continue
            self.free = max(self.free, now) + (len(frame) * 8e-6 / how["mbit"] if how["mbit"] else 0)
            due = self.free + (how["delay_ms"] + random.uniform(0, how["jitter_ms"])) / 1000
            if random.uniform(0, 100) < how["reorder"]:
                due += how["delay_ms"] / 1000
            else:
                due = self.last = max(due, self.last)  # jitter alone changes no order
            self.number += 1
            heapq.heappush(self.waiting, (due, self.number, frame))

    def deliver(self, now):
        while self.waiting and self.waiting[0][0] <= now:
            try:
                os.write(self.to, heapq.heappop(self.waiting)[2])
            except OSError:  # the device is down or full: the frame is lost
                pass


def main():
    how = dict.fromkeys(("delay_ms", "jitter_ms", "loss", "mbit", "duplicate", "reorder"), 0.0)
    for word in sys.argv[3:]:
        key, value = word.split("=")
        if key not in how:
            sys.exit(f"slow_link: unknown word {word}")
        how[key] = float(value)
    near, far = tap(sys.argv[1]), tap(sys.argv[2])
    lines = {near: Line(far, how), far: Line(near, how)}
    print("ready", flush=True)
    while True:
        due = min((line.waiting[0][0] for line in lines.values() if line.waiting), default=None)
        readable, _, _ = select.select(list(lines), [], [], None if due is None else max(0.0, due - time.monotonic()))
        now = time.monotonic()
        for fd in readable:
            try:
                for _ in range(64):
                    lines[fd].take(os.read(fd, 65536), now)
            except OSError:
                pass
        for line in lines.values():
            line.deliver(time.monotonic())


if __name__ == "__main__":
    main()
