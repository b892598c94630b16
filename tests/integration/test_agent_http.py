"""The daemon's port for browsers, as an attacker on the same host and on the web tries it."""
import contextlib, json, os, pwd, re, shutil, socket, subprocess, unittest

import test_agent_daemon
from harness import BIN, PROGRAMS, SANITIZED, SLACK, free_port, is_root, main, read, until
from test_agent_daemon import Reply

CTL = shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)
# One request, sent by a process of another user: the kernel tells the door who it is.
SENDER = 'exec 3<>"/dev/tcp/127.0.0.1/$1"; cat >&3; cat <&3'


class PortTest(test_agent_daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.node = self.daemon("--http", f"127.0.0.1:{self.port}")

    def send(self, text, user=None):
        """The reply to the bytes of one request; the connection ends behind it."""
        if user is not None:
            done = subprocess.run(["bash", "-c", SENDER, "bash", str(self.port)], input=text.encode(), capture_output=True, user=user,
                                  group=user, extra_groups=[], cwd="/", timeout=60 * SLACK)
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = done.stdout
        else:
            with socket.create_connection(("127.0.0.1", self.port), 20 * SLACK) as line:
                line.sendall(text.encode())
                answer = b""
                with contextlib.suppress(ConnectionResetError):  # a refusal doesn't wait for the request
                    while more := line.recv(65536):
                        answer += more
        head, _, body = answer.partition(b"\r\n\r\n")
        return Reply(head.decode(), body.decode())

    def ask(self, method, target, token=None, host=None, user=None, body=None, **headers):
        text = f"{method} {target} HTTP/1.1\r\nHost: {host or f'localhost:{self.port}'}\r\nConnection: close\r\n"
        if token:
            text += f"Authorization: Bearer {token}\r\n"
        text += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        if body is not None:
            text += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return self.send(text + "\r\n" + (body or ""), user)

    def ctl(self, *words, user=None):
        done = subprocess.run([CTL, "token", "--socket", self.node.path, *words], capture_output=True, text=True, timeout=60 * SLACK, cwd="/",
                              user=user, group=user, extra_groups=[] if user else None)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def session(self, *words, user=None, of=None):
        """Opens the link of a browser; (cookie, link)"""
        link = self.ctl("--browser", *words, user=user)
        reply = self.ask("GET", link[link.index("/?token="):], user=of if of is not None else user)
        self.assertEqual(reply.status, 303, reply.body)
        return re.search(r"^Set-Cookie: ([^;]+);", reply.head, re.M)[1], link


class Tokens(PortTest):
    def test_a_token_does_what_its_user_may_and_a_reading_one_changes_nothing(self):
        token, reading = self.ctl(), self.ctl("--read-only")
        body = json.dumps({"name": "t", "words": ["--num_processes", "1", "--no_python", "sleep", "600"], "working_directory": "/"})
        self.assertEqual(self.ask("POST", "/v1/jobs", reading, body=body).status, 403)
        made = self.ask("POST", "/v1/jobs", token, body=body)
        self.assertEqual(made.status, 201, made.body)
        id = made.json["id"]
        self.assertEqual(self.ask("GET", f"/v1/jobs/{id}", reading).json["id"], id)
        for method, path in (("POST", f"/v1/jobs/{id}/stop"), ("POST", f"/v1/jobs/{id}/restart"), ("DELETE", f"/v1/jobs/{id}"),
                             ("POST", "/v1/token"), ("PUT", "/v1/jobs"), ("POST", "/v1/nodes/localhost/v1/jobs")):
            refused = self.ask(method, path, reading, Content_Length="0")
            self.assertEqual((refused.status, refused.json["code"]), (403, "not_permitted"), path)
        self.assertEqual(self.node.job(id)["state"], "running")
        self.assertEqual(self.ask("POST", f"/v1/jobs/{id}/stop", token, body='{"grace_s": 0}').status, 202)
        self.assertEqual(self.node.wait_ended(id)["state"], "stopped")
        # No token begets another.
        self.assertEqual(self.ask("POST", "/v1/token", token, body="{}").status, 403)

    def test_logs_are_followed_to_their_end(self):
        id = self.submit(self.node, "for i in 1 2 3; do echo line $i; sleep 0.1; done")
        reply = self.ask("GET", f"/v1/jobs/{id}/logs?follow=1", self.ctl("--read-only"))
        self.assertEqual(reply.status, 200)
        self.assertIn("event: end", reply.body)
        self.assertIn("line 3", reply.body)

    def test_a_reader_that_closes_ends_its_stream(self):
        token = self.ctl("--read-only")
        with socket.create_connection(("127.0.0.1", self.port), 20 * SLACK) as line:
            line.sendall(f"GET /v1/events?follow=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            self.assertIn(b" 200 ", line.recv(65536))
            open_files = lambda: len(os.listdir(f"/proc/{self.node.pid}/fd"))
            during = open_files()
        until(lambda: open_files() < during, "the end of the stream")

    def test_wrong_truncated_and_expired_tokens_are_refused_in_words(self):
        token, short = self.ctl(), self.ctl("--expires", "1s")
        for wrong in ("x", token[:-1], token[:40], token.replace(".", "", 1), token + "0", "acc1.bw.0.0.9999999999.0.1." + "0" * 64):
            refused = self.ask("GET", "/v1/jobs", wrong)
            self.assertEqual((refused.status, refused.json["code"]), (401, "unauthorized"), wrong)
            self.assertIn("WWW-Authenticate: Bearer", refused.head)
            self.assertIn("acc-ctl token", refused.json["error"])
        self.assertEqual(self.ask("GET", "/v1/jobs").status, 401)
        self.assertEqual(self.ask("GET", "/v1/jobs", Authorization="Basic cm9vdDo=").status, 401)
        until(lambda: "expired" in self.ask("GET", "/v1/jobs", short).body, "the token's end")
        self.assertEqual(self.ask("GET", "/v1/jobs", token).status, 200)
        self.assertEqual(len(re.findall("token_refused|token refused", self.node.log)), 1, self.node.log)

    def test_guessing_is_blocked_for_that_user_and_logged_once(self):
        token = self.ctl()
        statuses = [self.ask("GET", "/v1/jobs", "guess" + str(i)).status for i in range(12)]
        self.assertEqual(statuses, [401] * 10 + [429] * 2)
        blocked = self.ask("GET", "/v1/jobs", token)
        self.assertEqual(blocked.status, 429)
        self.assertRegex(blocked.head, r"Retry-After: \d+")
        self.assertEqual(len(re.findall("token_refused|token refused", self.node.log)), 1, self.node.log)
        if is_root():
            nobody = pwd.getpwnam("nobody").pw_uid
            self.assertEqual(self.ask("GET", "/v1/jobs", token, user=nobody).status, 200)

    def test_a_removed_key_ends_all_tokens_at_the_next_reload(self):
        token = self.ctl()
        key = os.path.join(self.node.state, "token.key")
        self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
        os.unlink(key)
        self.node.process.send_signal(1)
        until(lambda: self.ask("GET", "/v1/node", token).status in (401, 429), "the end of the token")
        until(lambda: os.path.exists(key), "another key")

    @unittest.skipUnless(is_root(), "needs root")
    def test_another_users_token_reaches_that_users_jobs_only(self):
        one, other = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("games").pw_uid
        body = json.dumps({"name": "t", "words": ["--num_processes", "1", "--no_python", "sh", "-c", "id -u; exec sleep 600"],
                           "working_directory": "/"})
        id = self.ask("POST", "/v1/jobs", self.ctl(user=one), body=body).json["id"]
        until(lambda: f"{one}\n" in self.node.ask("GET", f"/v1/jobs/{id}/logs").body, "the worker's uid")
        token = self.ctl(user=other)
        # Also root's process has, with a user's token, that user's rights.
        for user in (None, other, one):
            self.assertEqual(self.ask("GET", "/v1/jobs", token, user=user).json, {"jobs": []})
            self.assertEqual(self.ask("POST", f"/v1/jobs/{id}/stop", token, user=user, body="{}").status, 404)
            self.assertEqual(self.ask("GET", f"/v1/jobs/{id}/logs", token, user=user).status, 404)
        self.assertEqual(self.ask("POST", "/v1/node/drain", token, body='{"reason": "x"}').status, 403)
        self.assertEqual(self.node.job(id)["state"], "running")


class Browsers(PortTest):
    def test_a_link_opens_one_session_that_is_no_token(self):
        cookie, link = self.session()
        reply = self.ask("GET", "/v1/jobs", Cookie=cookie)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertIn("Cross-Origin-Resource-Policy: same-origin", reply.head)
        again = self.ask("GET", link[link.index("/?token="):])
        self.assertEqual(again.status, 401)
        self.assertIn("used already", again.json["error"])
        self.assertEqual(self.ask("GET", "/v1/jobs", cookie.partition("=")[2]).status, 401)
        self.assertEqual(self.ask("GET", "/v1/jobs", link.partition("=")[2]).status, 401)
        # A token for headers has no business in an address line, which histories keep.
        self.assertEqual(self.ask("GET", "/?token=" + self.ctl()).status, 401)

    def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(self):
        link = self.ctl("--browser", "--expires", "1h")
        reply = self.ask("GET", link[link.index("/?token="):])
        cookie = re.search(r"^Set-Cookie: (.*)\r?$", reply.head, re.M)[1]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/"):
            self.assertIn(part, cookie)
        self.assertLessEqual(int(re.search(r"Max-Age=(\d+)", cookie)[1]), 3600)
        self.assertIn("Location: /\r\n", reply.head)
        self.assertNotIn("token=", reply.head.partition("Location:")[2].splitlines()[0])
        self.assertIn("Referrer-Policy: no-referrer", reply.head)

    def test_a_session_that_only_reads_stops_no_job(self):
        cookie, _ = self.session("--read-only")
        id = self.submit(self.node, "exec sleep 600")
        self.assertEqual(self.ask("GET", f"/v1/jobs/{id}", Cookie=cookie).status, 200)
        self.assertEqual(self.ask("POST", f"/v1/jobs/{id}/stop", Cookie=cookie, body="{}").status, 403)
        self.assertEqual(self.node.job(id)["state"], "running")

    def test_a_page_of_another_origin_neither_changes_nor_embeds(self):
        cookie, _ = self.session()
        id = self.submit(self.node, "exec sleep 600")
        stop = f"/v1/jobs/{id}/stop"
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "http://localhost:1"}, {"Origin": "null"},
                        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}):
            self.assertEqual(self.ask("POST", stop, Cookie=cookie, body="{}", **headers).status, 403, headers)
        # A form of another page can't say application/json.
        text = f"POST {stop} HTTP/1.1\r\nHost: localhost:{self.port}\r\nCookie: {cookie}\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        self.assertEqual(self.send(text).status, 415)
        self.assertNotIn("Access-Control-Allow-Origin", self.ask("GET", "/v1/jobs", Cookie=cookie, Origin="http://evil.example").head)
        self.assertEqual(self.ask("OPTIONS", "/v1/jobs", Cookie=cookie, Origin="http://evil.example").status, 403)
        self.assertEqual(self.node.job(id)["state"], "running")
        own = self.ask("POST", stop, Cookie=cookie, body='{"grace_s": 0}', Origin=f"http://localhost:{self.port}")
        self.assertEqual(own.status, 202, own.body)

    def test_a_name_that_was_rebound_to_this_host_gets_nothing(self):
        token = self.ctl()
        for host in ("evil.example", f"evil.example:{self.port}", f"localhost.evil.example:{self.port}", "10.0.0.1"):
            for path in ("/v1/jobs", "/healthz", "/"):
                self.assertEqual(self.ask("GET", path, token, host=host).status, 403, host)
        self.assertEqual(self.ask("GET", "http://evil.example/v1/jobs", token).status, 400)
        for host in ("localhost", f"127.0.0.1:{self.port}", "[::1]:1"):
            self.assertEqual(self.ask("GET", "/v1/jobs", token, host=host).status, 200, host)

    @unittest.skipUnless(is_root(), "needs root")
    def test_a_stolen_cookie_is_worth_nothing_to_another_user(self):
        """A browser sends cookies of localhost to each of its ports: also to the one where another user listens."""
        one, other = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("games").pw_uid
        cookie, _ = self.session(user=one)
        self.assertEqual(self.ask("GET", "/v1/jobs", Cookie=cookie, user=one).status, 200)
        for user in (other, None):
            self.assertEqual(self.ask("GET", "/v1/jobs", Cookie=cookie, user=user).status, 401)


class Door(PortTest):
    def test_only_loopback_addresses_are_taken_and_none_by_default(self):
        for wrong in ("0.0.0.0:9180", "10.0.0.7:9180", "[::]:9180", "node1:9180"):
            done = subprocess.run([test_agent_daemon.AGENT, "--state-dir", self.folder + "/other", "--http", wrong], capture_output=True,
                                  text=True, timeout=60 * SLACK)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is no loopback address", done.stderr)
            self.assertIn("ssh -L", done.stderr)
        self.node.stop()
        os.unlink(os.path.join(self.node.state, "token.key"))
        plain = self.daemon()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port), 5)
        refused = plain.ask("POST", "/v1/token", {})
        self.assertEqual(refused.status, 409)
        self.assertIn("--http", refused.json["error"])
        self.assertFalse(os.path.exists(os.path.join(plain.state, "token.key")))

    def test_a_port_that_is_taken_is_named(self):
        done = subprocess.run([test_agent_daemon.AGENT, "--state-dir", self.folder + "/other", "--http", str(self.port)], capture_output=True,
                              text=True, timeout=60 * SLACK)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"--http 127.0.0.1:{self.port}: Address already in use", done.stderr)

    def test_health_needs_no_token_and_says_nothing_else(self):
        reply = self.ask("GET", "/healthz")
        self.assertEqual((reply.status, reply.body), (200, "ok\n"))
        for path in ("/index.html", "/v1/node", "/v1/events", "/v2", "/healthz/x"):
            self.assertEqual(self.ask("GET", path).status, 401, path)

    def test_connections_of_one_user_are_bounded_and_others_come_through(self):
        idle = [socket.create_connection(("127.0.0.1", self.port), 20 * SLACK) for _ in range(64)]
        try:
            refused = self.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertEqual(refused.status, 503)
            if is_root():
                nobody = pwd.getpwnam("nobody").pw_uid
                self.assertEqual(self.ask("GET", "/healthz", user=nobody).status, 200)
            self.assertEqual(self.node.ask("GET", "/healthz").status, 200)
        finally:
            for line in idle:
                line.close()
        until(lambda: self.ask("GET", "/healthz").status == 200, "a free connection")

    def test_a_request_that_never_ends_is_ended(self):
        with socket.create_connection(("127.0.0.1", self.port), 40 * SLACK) as line:
            line.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n")
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while more := line.recv(65536):
                    answer += more
        self.assertIn(b" 408 ", answer)

    def test_the_open_port_costs_no_wake_ups_and_little_memory(self):
        self.assertEqual(self.ask("GET", "/v1/jobs", self.ctl()).status, 200)
        def quiet():
            """For 3 s; what the request left to do may fall into the first ones."""
            before = self.node.status_of("voluntary_ctxt_switches")
            with self.assertRaises(subprocess.TimeoutExpired):
                self.node.process.wait(3)
            return self.node.status_of("voluntary_ctxt_switches") - before <= 1
        self.assertTrue(quiet() or quiet() or quiet(), "wake-ups of an idle daemon")
        if not SANITIZED:
            self.assertLess(self.node.status_of("VmRSS"), 8 * 1024)


if __name__ == "__main__":
    main()
