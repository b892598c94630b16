#!/usr/bin/env python3
"""How long N participants take to meet, by what others have for it: the same rule as acc-bench-rendezvous.

    rendezvous.py tcpstore|elastic|etcd N [PATH OF etcd]

The clock runs from the first connect to the last of N participants that holds its answer; connecting is a part of it,
importing torch and starting the server are not. One JSON line: nodes, join_to_all_assigned_ms, server_rss_kb (peak),
server_cpu_ms.

tcpstore  each participant sets a key of 128 bytes and adds one to a counter; the last one sets the key that all wait for.
elastic   torch.distributed.elastic's dynamic rendezvous over a c10d store, min = max = N, last call 1 s.
etcd      each participant watches a key and puts one of 128 bytes, over the JSON gateway of one server whose data lies
          in memory; a leader counts, and puts the key that all watch.
"""
import asyncio, base64, contextlib, json, os, resource, shutil, socket, subprocess, sys, tempfile, threading, time

DATA = b"x" * 128
KEPT = []  # what would take seconds to be destroyed: the clients of a TCPStore have a thread each


def status_kb(pid, key):
    with open(f"/proc/{pid}/status") as status:
        return next((int(line.split()[1]) for line in status if line.startswith(key + ":")), 0)


def cpu_ms(pid):
    with open(f"/proc/{pid}/stat") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Crowd:
    """Forked children: each says when it is ready, and begins when all are let go at once, by the end of a pipe."""

    def __init__(self):
        self.go_read, self.go_write = os.pipe()
        self.end_read, self.end_write = os.pipe()
        self.children = []

    def fork(self, work):
        """work(go, say): go() returns when all begin, say(object) tells the parent."""
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            self.children.append((pid, os.fdopen(read)))
            return self.children[-1]
        code = 1
        try:
            os.close(self.go_write)
            os.close(self.end_write)

            def say(what):
                os.write(write, (json.dumps(what) + "\n").encode())
            work(lambda: os.read(self.go_read, 1), say)
            os.read(self.end_read, 1)  # stay until all have been asked
            code = 0
        finally:
            os._exit(code)

    def hear(self, child):
        line = child[1].readline()
        if not line:
            raise SystemExit("rendezvous.py: a participant failed")
        return json.loads(line)

    def go(self):
        begin = time.monotonic()
        os.close(self.go_write)
        return begin

    def end(self):
        os.close(self.end_write)
        for pid, _ in self.children:
            os.waitpid(pid, 0)


def result(n, begin, ends, server, cpu_before):
    print(json.dumps({"nodes": n, "join_to_all_assigned_ms": (max(ends) - begin) * 1e3, "server_rss_kb": status_kb(server, "VmHWM"),
                      "server_cpu_ms": cpu_ms(server) - cpu_before}), flush=True)


def tcpstore(n):
    from datetime import timedelta
    from torch.distributed import TCPStore
    minute, crowd = timedelta(seconds=60), Crowd()
    threading.stack_size(256 * 1024)

    def store(port, is_server):
        return TCPStore("127.0.0.1", port, None, is_server, minute, wait_for_workers=False)

    def serve(_, say):
        server = store(0, True)
        say(server.port)
        os.read(crowd.end_read, 1)

    server = crowd.fork(serve)
    port = crowd.hear(server)

    def participants(first, last):
        def work(go, say):
            began, ends = threading.Event(), []

            def one(i):
                began.wait()
                mine = store(port, False)
                mine.set(f"join/{i}", DATA)
                if mine.add("joined", 1) == n:
                    mine.set("go", b"1")
                mine.wait(["go"])
                ends.append(time.monotonic())
                KEPT.append(mine)
            threads = [threading.Thread(target=one, args=(i,)) for i in range(first, last)]
            for thread in threads:
                thread.start()
            say("ready")
            go()
            began.set()
            for thread in threads:
                thread.join()
            assert len(ends) == last - first
            say(max(ends))
        return work

    processes = 2 if n <= 128 else 4
    step = (n + processes - 1) // processes
    parts = [crowd.fork(participants(first, min(first + step, n))) for first in range(0, n, step)]
    for part in parts:
        crowd.hear(part)
    before = cpu_ms(server[0])
    begin = crowd.go()
    result(n, begin, [crowd.hear(part) for part in parts], server[0], before)
    crowd.end()


def elastic(n):
    import logging
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
    logging.disable(logging.CRITICAL)
    crowd, port = Crowd(), free_port()

    def parameters(is_host):
        return RendezvousParameters(backend="c10d", endpoint=f"127.0.0.1:{port}", run_id="compare", min_nodes=n, max_nodes=n,
                                    is_host=str(is_host).lower(), join_timeout=60, last_call_timeout=1)

    def serve(_, say):
        kept = create_backend(parameters(True))
        say("up")
        os.read(crowd.end_read, 1)
        del kept

    def agent(go, say):
        say("ready")
        go()
        backend, store = create_backend(parameters(False))
        _, rank, world = create_handler(store, backend, parameters(False)).next_rendezvous()
        say([time.monotonic(), rank, world])

    server = crowd.fork(serve)
    crowd.hear(server)
    agents = [crowd.fork(agent) for _ in range(n)]
    for one in agents:
        crowd.hear(one)
    before = cpu_ms(server[0])
    begin = crowd.go()
    found = [crowd.hear(one) for one in agents]
    assert sorted(rank for _, rank, _ in found) == list(range(n))
    result(n, begin, [end for end, _, _ in found], server[0], before)
    crowd.end()


def etcd_server(program, folder, port, peer_port):
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    server = subprocess.Popen([program, "--data-dir", folder, "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                               "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--log-level", "error"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as line:
            line.sendall(request("/v3/kv/range", {"key": coded(b"up")}))
            if b"200 OK" in line.recv(65536):
                return server
        if server.poll() is not None or time.monotonic() > end:
            raise SystemExit("rendezvous.py: etcd did not come up")
        time.sleep(0.05)


def coded(text):
    return base64.b64encode(text).decode()


def request(path, what):
    body = json.dumps(what)
    return f"POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def etcd(n, program):
    port, crowd = free_port(), Crowd()
    folder = tempfile.mkdtemp(prefix="compare-etcd-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    server = etcd_server(program, folder, port, free_port())

    async def watch(key, **more):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("/v3/watch", {"create_request": {"key": coded(key), **more}}))
        while b'"created":true' not in await reader.readline():
            pass
        return reader, writer

    async def put(key, value):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("/v3/kv/put", {"key": coded(key), "value": coded(value)}))
        assert b" 200 " in await reader.readline()
        return reader, writer

    async def event_of(reader):
        while b'"events":' not in (line := await reader.readline()):
            assert line
        return line

    async def one(i):
        kept = await watch(b"go")
        line = await put(b"join/%d" % i, DATA)
        await event_of(kept[0])
        return time.monotonic(), kept, line

    def participants(first, last):
        def work(go, say):
            async def all_of_them():
                return await asyncio.gather(*(one(i) for i in range(first, last)))
            say("ready")
            go()
            say(max(end for end, *_ in asyncio.run(all_of_them())))
        return work

    def leader(_, say):
        async def count():
            reader, _ = await watch(b"join/", range_end=coded(b"join0"))
            say("ready")
            seen = 0
            while seen < n:
                seen += (await event_of(reader)).count(b'"create_revision"')
            await put(b"go", b"1")
        asyncio.run(count())

    try:
        crowd.hear(crowd.fork(leader))
        processes = min(n, 2 if n <= 128 else 4)
        step = (n + processes - 1) // processes
        parts = [crowd.fork(participants(first, min(first + step, n))) for first in range(0, n, step)]
        for part in parts:
            crowd.hear(part)
        before = cpu_ms(server.pid)
        begin = crowd.go()
        result(n, begin, [crowd.hear(part) for part in parts], server.pid, before)
        crowd.end()
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    kind, n = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if kind == "etcd":
        etcd(n, sys.argv[3] if len(sys.argv) > 3 else shutil.which("etcd"))
    else:
        {"tcpstore": tcpstore, "elastic": elastic}[kind](n)


if __name__ == "__main__":
    main()
