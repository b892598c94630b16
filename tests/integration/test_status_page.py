"""The status page in a real browser: what a user sees and clicks, and what hostile text may not do."""
import json, os, signal, unittest

import browser
import test_agent_daemon
import test_agent_http
from harness import free_port, main, until, write

# Three ranks; the second fails in its first round, and all run on after the restart.
JOB = """
if [ "$RANK" = 1 ] && [ ! -e failed ]; then touch failed; sleep 0.4; echo the loss is NaN >&2; exit 7; fi
echo round $ACC_RESTART_COUNT of rank $RANK; exec sleep 600
"""
HOSTILE = r"""
printf '<img src=x onerror="document.title=1"><script>document.title=2</script>\n'
printf 'red \033[31mword\033[0m \033]0;title\007 \033[2J\033]8;;javascript:alert(1)\033\\link\n'
printf 'bad \377\376 \303( utf8, bell \007, turned \342\200\256gnp.exe\n'
printf 'last line\n'; exec sleep 600
"""


@unittest.skipUnless(browser.DRIVER and browser.CHROMIUM, "needs Debian's chromium and chromium-driver")
class PageTest(test_agent_http.PortTest):
    def setUp(self):
        super().setUp()
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)
        self.browser.look(1280, 900)

    def enter(self, *words):
        self.browser.open(self.ctl("--browser", *words))
        self.browser.wait("document.getElementById('connection').dataset.state === 'live'", "the connection")

    def enter_the_only_job(self):
        self.enter()
        self.browser.wait("document.querySelectorAll('#job-rows tr').length === 1", "the job's row")
        self.browser.click("#job-rows a")
        return self.browser

    def start(self, script, name="train", ranks=1, restarts=2):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        os.chmod(folder, 0o777)
        made = self.node.ask("POST", "/v1/jobs", {"name": name, "working_directory": folder, "words": [
            "--num_processes", str(ranks), "--max_restarts", str(restarts), "--restart_delay", "0", "--no_python", "sh", "-c", script]})
        self.assertEqual(made.status, 201, made.body)
        return made.json["id"]

    def log(self):
        return self.browser.run("return document.getElementById('log').textContent")

    def picture(self, name):
        """For those who look: ACC_TEST_PICTURES names a folder."""
        if folder := os.environ.get("ACC_TEST_PICTURES"):
            self.browser.picture(os.path.join(folder, f"{name}.png"))


class Page(PageTest):
    def test_a_user_opens_a_job_and_sees_who_failed_first(self):
        id = self.start(JOB, ranks=3)
        self.enter()
        page = self.browser
        self.assertNotIn("token", page.address)
        page.wait("document.getElementById('node-facts').innerText.includes('4')", "the node's slots")
        page.wait("document.querySelectorAll('#job-rows tr').length === 1", "the job's row")
        page.click("#job-rows a")
        page.wait("document.getElementById('finding-text').textContent.includes('Rank 1')", "the first failure")
        self.assertRegex(page.text("#finding-text"), r"Rank 1 on \S+ exited with code 7 at \d\d:\d\d:\d\d\.\d{3}, .* into round 0")
        page.wait("document.getElementById('finding-lines').innerText.includes('the loss is NaN')", "its last lines, while the job runs")
        page.wait("document.getElementById('timeline').getAttribute('aria-label').includes('2 rounds, 3 ranks')", "two rounds")
        colors = page.wait("""(() => {
            const canvas = document.getElementById('timeline');
            if (!canvas.dataset.drawn) return null;
            const bytes = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
            return new Set(bytes).size;
        })()""", "the timeline's pixels")
        self.assertGreater(colors, 5)
        # The table has the same as the picture.
        page.click("#table summary")
        page.wait("document.querySelectorAll('#rank-rows tr').length === 3", "a row for each rank")
        page.wait("document.getElementById('round-rows').innerText.includes('rank 1: exited with code 7')", "why the round ended")
        page.click("#round-rows tr:last-child button")
        page.wait("document.getElementById('rank-rows').innerText.includes('stopped by us')", "the other ranks' ends")
        page.wait("document.getElementById('rank-rows').innerText.includes('failed first: exited with code 7')", "who failed first")
        # A rank's log, from the table and by the keyboard from the timeline.
        page.wait("document.getElementById('log').textContent.includes('of rank 2')", "the output of all")
        page.click("#rank-rows tr:nth-child(3) button")
        until(lambda: "rank 2" in self.log() and "rank 0" not in self.log(), "the log of one rank")
        for key in ("down", "enter"):
            page.press("#timeline", key)
        until(lambda: "rank 0" in self.log() and "rank 2" not in self.log(), "the log of another")
        self.assertIn("Rank 0, round", page.text("#timeline-status"))
        self.picture("job")
        self.assertEqual(page.complaints(), [])

    def test_the_log_of_a_running_job_says_nothing_of_an_empty_one(self):
        self.start("sleep 2; echo words; exec sleep 600")
        page = self.enter_the_only_job()
        until(lambda: "words" in self.log(), "the output")
        page.wait("document.getElementById('log-status').textContent === ''", "no words about an empty log")

    def test_of_several_failed_rounds_the_first_is_named(self):
        self.start('[ "$ACC_ROUND" -lt 2 ] && exit $((7 + ACC_ROUND)); exec sleep 600')
        page = self.enter_the_only_job()
        page.wait("document.getElementById('finding-text').textContent.includes('1 more round failed after it.')", "both failures")
        page.wait(r"/exited with code 7 at .* into round 0\. .* Restarts.* cost /.test(document.getElementById('finding-text').innerText)", "the first one, and what both cost")

    def test_a_job_that_succeeded_after_a_restart_hid_the_last_lines_and_that_lost_work_is_not_known(self):
        id = self.start('if [ "$ACC_ROUND" = 0 ]; then echo the loss is NaN >&2; exit 7; fi', restarts=1)
        self.node.wait_ended(id)
        page = self.enter_the_only_job()
        page.wait("document.getElementById('finding-text').textContent.includes('exited with code 7')", "the failure")
        page.wait("document.getElementById('finding-lines').innerText.includes('the loss is NaN')", "its last lines")
        page.wait("document.getElementById('goodput-text').innerText.includes('the workers report no checkpoints')", "what is not known")

    def test_a_job_without_a_restart_had_no_cost_of_one(self):
        id = self.start("exit 3", restarts=0)
        self.node.wait_ended(id)
        page = self.enter_the_only_job()
        page.wait("document.getElementById('finding-text').textContent.includes('exited with code 3')", "the failure")
        self.assertNotIn("cost", page.text("#finding-text"))

    def test_events_arrive_live_and_again_after_a_loss(self):
        self.enter("--read-only")
        page = self.browser
        id = self.start("exec sleep 600")
        page.wait(f"document.getElementById('event-rows').innerText.includes('{id} started')", "the event of the start")
        page.wait("document.querySelector('#job-rows .state')?.textContent === 'running'", "the row of the job")
        port = self.port
        self.node.stop()
        page.wait("document.getElementById('banner-title').textContent === 'Connection lost.'", "the words about the loss")
        self.picture("lost")
        self.node = self.daemon("--http", f"127.0.0.1:{port}")
        self.node.ask("POST", f"/v1/jobs/{id}/stop", {"grace_s": 0})
        self.node.wait_ended(id)
        hidden = "document.getElementById('banner').hidden"
        try:
            page.click("#retry")
        except AssertionError:  # the page has tried again by itself, and the button is gone
            if not page.run(f"return {hidden}"):
                raise
        page.wait(hidden, "the end of the words")
        page.wait(f"document.getElementById('event-rows').innerText.includes('{id} ended')", "the event that was missed")
        page.wait("document.querySelector('#job-rows .state')?.textContent === 'stopped'", "the row of the job")
        repeated = page.run("return [...document.querySelectorAll('#event-rows li')].filter(row => row.innerText.includes('started')).length")
        self.assertEqual(repeated, 1)

    def hasten(self, name, ms, hastened):
        """Timers of the page that were to last `ms`."""
        self.browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=f"""(() => {{
          const plain = window.{name};
          window.{name} = (what, ms, ...more) => plain(what, ms === {ms} ? {hastened} : ms, ...more);
        }})();""")

    def test_a_connection_that_was_lost_without_a_word_was_live_for_ever(self):
        self.hasten("setTimeout", 60000, 3000)
        self.enter("--read-only")
        os.kill(self.node.process.pid, signal.SIGSTOP)  # as a tunnel whose other end is gone: nothing arrives, nothing is closed
        try:
            self.browser.wait("document.getElementById('banner-title').textContent === 'Connection lost.'", "the words about the loss")
        finally:
            os.kill(self.node.process.pid, signal.SIGCONT)
        self.browser.wait("document.getElementById('connection').dataset.state === 'live'", "the connection")

    def test_the_nodes_are_read_again_without_an_event(self):
        self.hasten("setInterval", 30000, 300)
        self.enter("--read-only")
        asked = "performance.getEntriesByType('resource').filter(one => one.name.endsWith('/v1/nodes')).length"
        self.browser.wait(f"{asked} > 4", "questions for the nodes")

    def test_an_ended_session_says_what_to_do(self):
        self.enter()
        os.unlink(os.path.join(self.node.state, "token.key"))
        self.node.process.send_signal(1)
        self.browser.wait("fetch('/v1/node').then(reply => reply.status === 401)", "the new key")
        self.browser.do("POST", "/refresh", {})
        self.browser.wait("document.getElementById('connection').dataset.state === 'expired'", "the words about the session")
        self.browser.wait("document.getElementById('banner').innerText.includes('acc-ctl token --browser')", "the cure")

    def test_hostile_text_stays_text(self):
        id = self.start(HOSTILE, "hostile")
        self.enter()
        page = self.browser
        title = page.run("return document.title")
        page.wait("document.querySelectorAll('#job-rows tr').length === 1", "the job's row")
        page.click("#job-rows a")
        until(lambda: "last line" in self.log(), "the log")
        text = self.log()
        self.assertIn("<img src=x onerror=", text)
        self.assertIn("red word", text)
        self.assertIn("bad \ufffd\ufffd \ufffd( utf8, bell \u2407, turned ⟨U+202E⟩gnp.exe", text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("javascript:", text)
        self.assertEqual(page.run("return document.getElementById('log').childElementCount"), 0)
        self.assertEqual(page.run("return document.title"), title)
        self.node.ask("POST", "/v1/node/drain", {"reason": "<b>GPU 3</b> \u202e \x1b[31m"})
        page.wait("document.getElementById('node-facts').innerText.includes('<b>GPU 3</b>')", "the reason as text")
        # The policy holds even against a script that tries.
        tried = page.run("try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch (wrong) { return wrong.name; }")
        self.assertEqual(tried, "TypeError")

    def test_a_phone_has_no_horizontal_scrolling(self):
        id = self.start("echo " + "x" * 3000 + "; exec sleep 600", "a-" + 62 * "x")
        page = self.browser
        for is_dark in (False, True):
            page.look(360, 740, is_dark, is_phone=True)
            self.enter()
            page.wait("document.querySelectorAll('#job-rows tr').length === 1", "the job's row")
            self.picture(f"phone-list-{is_dark}")
            self.assertLessEqual(page.run("return document.documentElement.scrollWidth"), 360)
            page.click("#job-rows a")
            page.wait("document.getElementById('log').textContent.length > 3000", "the log")
            page.wait("document.getElementById('timeline').dataset.drawn", "the timeline")
            page.click("#table summary")
            self.assertLessEqual(page.run("return document.documentElement.scrollWidth"), 360)
            self.picture(f"phone-job-{is_dark}")
            page.click("#close-job")
            page.wait("document.getElementById('job').hidden", "the list")
            back = page.run("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(back, "rgb(13, 18, 25)" if is_dark else "rgb(244, 246, 249)")


class Foreign(PageTest):
    """The page's modules in the page, with answers that another user has a hand in."""
    def module(self, script):
        self.enter("--read-only")
        return self.browser.run("return (async () => {" + script + "})()")

    def test_another_users_job_was_shown_as_the_failed_part_of_a_launch(self):
        found = self.module("""
            const job = (id, user, rank) => ({ id, user, state: "running", launch: { id: "hosts-x", nodes: 2, node_rank: rank } });
            const answers = { "/v1/nodes": { nodes: [{ node: "b", ok: true }] },
                              "/v1/nodes/b/v1/jobs": { jobs: [job("own-1", "bob", 1), job("forged-1", "ann", 1)] } };
            window.fetch = async path => new Response(JSON.stringify(answers[path] ?? job("own-1", "bob", 1)), { status: 200 });
            const { Parts } = await import("/parts.js");
            const parts = new Parts(job("own-0", "bob", 0));
            await parts.look();
            return [...parts.found.values()].map(part => part.at);""")
        self.assertEqual(found, ["/v1/nodes/b/v1/jobs/own-1"])

    def test_a_report_with_an_endless_time_froze_the_page(self):
        times = self.module("""
            const { Timeline } = await import("/timeline.js"), { Rounds } = await import("/rounds.js");
            const frame = document.createElement("div"), canvas = frame.appendChild(document.createElement("canvas"));
            document.body.append(frame);
            const timeline = new Timeline(canvas, document.createElement("div"), {});
            const worker = { rank: 0, local_rank: 0, pid: 1, state: "running", seconds: 1e20, exit: { code: 0 } };
            const now = Date.now(), wild = new Rounds(), job = { submitted_ms: now - 60000, started_ms: now - 60000, ended_ms: now };
            for (const [time, event] of [["-271820-01-01T00:00:00.000Z", "job_started"], ["-271820-01-01T00:00:00.000Z", "round_started"],
                                         ["+275000-01-01T00:00:00.000Z", "job_ended"]])
              wild.feed(JSON.stringify({ event, time, round: 0, world_size: 1, nodes: 1 }) + "\\n", job);
            const all = [wild, Rounds.fromReport({ workers: [worker] }, job), Rounds.fromLive({ round: 0, workers: [worker] }, job)];
            all.push(Rounds.fromReport({ workers: [worker], failures: [{ time: "2020-01-01T00:00:00Z", seconds_into_attempt: -1e20 }] }, job));
            const spans = [];
            for (const rounds of all) {
              timeline.show(rounds, now);
              timeline.fit();
              timeline.paint();  // here, not with the next frame
              spans.push(timeline.span.to - timeline.span.from);
            }
            return spans;""")
        self.assertEqual(len(times), 4)
        # Events and a status are of clocks that may differ from the job's, by a day at most.
        for span, most in zip(times, (2 * 86_400_000 + 61_000, 61_000, 86_400_000 + 61_000, 61_000)):
            self.assertLessEqual(span, most)


class SeveralNodes(PageTest):
    def test_the_ranks_of_all_nodes_and_goodput_are_shown_while_the_job_runs(self):
        secret = os.path.join(self.folder, "secret")
        write(secret, os.urandom(32).hex() + "\n")
        os.chmod(secret, 0o600)
        doors = [free_port(), free_port()]
        nodes = ",".join(f"127.0.0.1:{port}" for port in doors)
        def flags(port):
            return "--secret-file", secret, "--listen", f"127.0.0.1:{port}", "--nodes", nodes
        self.node.stop()
        self.node = self.daemon("--http", f"127.0.0.1:{self.port}", *flags(doors[0]))
        os.mkdir(os.path.join(self.folder, "other"))
        other = test_agent_daemon.Daemon(os.path.join(self.folder, "other"), "--slots", "4", "--gpus", "none", *flags(doors[1])).wait_ready()
        self.addCleanup(other.stop)
        # Rank 3, on the other node, fails once; all go on.
        script = f'if [ "$RANK" = 3 ] && [ ! -e {self.folder}/failed ]; then touch {self.folder}/failed; exit 7; fi; echo here is $RANK; exec sleep 600'
        os.chmod(self.folder, 0o1777)
        port, ids = free_port(), []
        for rank, daemon in enumerate((self.node, other)):
            made = daemon.ask("POST", "/v1/jobs", {"name": "pair", "working_directory": "/", "launch": {"id": "pair-1", "nodes": 2, "node_rank": rank},
                              "words": f"--num_machines 2 --num_processes 4 --machine_rank {rank} --node_name n{rank} --main_process_ip 127.0.0.1 "
                                       f"--main_process_port {port} --max_restarts 1 --restart_delay 0 --no_python sh -c".split() + [script]})
            self.assertEqual(made.status, 201, made.body)
            ids.append(made.json["id"])
        self.addCleanup(lambda: [d.ask("POST", f"/v1/jobs/{i}/stop", {"grace_s": 0}) and d.wait_ended(i) for d, i in zip((self.node, other), ids)])
        self.enter("--read-only")
        page = self.browser
        page.wait("document.querySelectorAll('#job-rows tr').length === 1", "the job's row")
        page.click("#job-rows a")
        page.wait("document.getElementById('timeline').getAttribute('aria-label').includes('2 rounds, 4 ranks')", "the ranks of both nodes", 40)
        page.wait("document.getElementById('finding-text').textContent.startsWith('Rank 3 on n1 exited with code 7')", "the failure on the other node")
        page.wait("document.getElementById('timeline-note').hidden", "no word about missing ranks")
        page.wait("/^Of .* so far: .* lost in restarts/.test(document.getElementById('goodput-text').textContent)", "goodput while it runs")
        # What is told of the job may still be of the time before its restart.
        page.wait(r"/^at most [\d.]+ %$/.test(document.getElementById('goodput-share').textContent)", "the share of its time, without what was lost", 40)
        page.click("#table summary")
        page.wait("document.querySelectorAll('#rank-rows tr').length === 4", "a row for each rank")
        page.click("#rank-rows tr:nth-child(3) button")  # the log comes from the other node
        until(lambda: self.log().strip() == "here is 2", "the log of a rank of the other node")
        self.assertEqual(page.text("#log-node"), f"on 127.0.0.1:{doors[1]}")
        self.picture("nodes")
        self.assertEqual(page.complaints(), [])
        # A node that is gone is named, and what it told stays.
        other.process.kill()
        other.process.wait()
        page.wait(f"document.getElementById('timeline-note').textContent.includes('127.0.0.1:{doors[1]}')", "the words about the other node", 40)
        self.assertIn("4 ranks", page.run("return document.getElementById('timeline').getAttribute('aria-label')"))
        test_agent_daemon.Daemon.__init__(other, os.path.join(self.folder, "other"), "--slots", "4", "--gpus", "none", *flags(doors[1]))
        other.wait_ready()


class Files(test_agent_http.PortTest):
    """What needs no browser."""
    def test_the_files_need_no_token_and_the_jobs_do(self):
        page = self.ask("GET", "/")
        self.assertEqual(page.status, 200)
        self.assertIn("<!doctype html>", page.body)
        self.assertEqual(page.head.count("Content-Security-Policy"), 1)
        for header in ("default-src 'none'", "frame-ancestors 'none'", "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer", "ETag: "):
            self.assertIn(header, page.head)
        tag = page.head.partition("ETag: ")[2].splitlines()[0]
        again = self.ask("GET", "/", If_None_Match=tag)
        self.assertEqual((again.status, again.body), (304, ""))
        self.assertEqual(self.ask("GET", "/v1/jobs").status, 401)
        self.assertEqual(self.ask("GET", "/nothing.js").status, 401)
        self.assertEqual(self.ask("GET", "/nothing.js", self.ctl()).status, 404)
        self.assertEqual(self.ask("GET", "/", host="evil.example").status, 403)
        self.assertEqual(self.ask("POST", "/", self.ctl(), Content_Length="0").status, 405)
        # Over the unix socket there is no page: who speaks to it is no browser.
        self.assertEqual(self.node.ask("GET", "/").status, 404)

    def test_the_events_of_a_job_are_a_stream(self):
        id = self.submit(self.node, "exit 3")
        self.node.wait_ended(id)
        lines = self.ask("GET", f"/v1/jobs/{id}/logs?stream=events&format=raw", self.ctl("--read-only")).body
        events = [json.loads(line[line.index("{"):])["event"] for line in lines.splitlines() if "{" in line]
        self.assertEqual(events[0], "job_started")
        self.assertIn("failure", events)
        self.assertEqual(events[-1], "job_ended")


if __name__ == "__main__":
    main()
