"""The history checker finds what it is there for: each violation is planted in a sound history and must be found, alone."""
import dataclasses, os, subprocess, sys, tempfile, unittest

import history
from history import SECOND, Life


def sound(rounds=3, nodes=("a", "b", "c"), slots=2):
    """Rounds of 2 s with 100 ms between them."""
    lives = []
    for number in range(rounds):
        begin = 1000 * SECOND + int(number * 2.1 * SECOND)
        for place, node in enumerate(nodes):
            for local in range(slots):
                rank = place * slots + local
                lives.append(Life(node=node, round=number, rank=rank, world=len(nodes) * slots, local=local, node_rank=place, nodes=len(nodes), pid=100 + len(lives),
                                  restarts=number, master="10.77.0.1", port=str(29500 + number), start=begin + rank, last=begin + 2 * SECOND, end="signal"))
    return lives


def changed(lives, number, which, **values):
    return [dataclasses.replace(life, **values) if (life.round, life.rank) == (number, which) else life for life in lives]


class Checker(unittest.TestCase):
    def found(self, lives, **options):
        return history.violations(lives, **options)

    def only(self, lives, text, **options):
        found = self.found(lives, **options)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_a_sound_history_has_no_violation(self):
        self.assertEqual(self.found(sound()), [])
        self.assertEqual(self.found([]), [])

    def test_a_worker_that_outlives_its_round_is_found(self):
        lives = sound()
        begin = next(life.start for life in lives if life.round == 1)
        self.only(changed(lives, 0, 3, last=begin), "P1: rank 3 of round 0 (node b")
        self.assertEqual(self.found(changed(lives, 0, 3, last=begin - 1)), [])

    def test_a_worker_that_outlives_two_rounds_is_found(self):
        lives = sound()
        begin = next(life.start for life in lives if life.round == 2)
        found = self.found(changed(lives, 0, 5, last=begin + 1))
        self.assertTrue(any("rank 5 of round 0" in text and "of round 2" in text for text in found), found)

    def test_a_lock_of_another_round_is_enough(self):
        self.only(changed(sound(), 2, 0, overlaps=(1,)), "P1: at the first instruction of rank 0 of round 2")
        self.only(changed(sound(), 1, 0, overlaps=(2,)), "a process of round 2 was alive")

    def test_a_checkpoint_of_a_stale_rank_is_found(self):
        lives = sound()
        begin = min(life.start for life in lives if life.round == 1)
        self.only(changed(lives, 0, 0, writes=(begin - 5, begin)), "P1: rank 0 of round 0 (node a, pid 100) made a checkpoint valid 0.0 ms after")
        self.assertEqual(self.found(changed(lives, 0, 0, writes=(begin - 5,))), [])

    def test_workers_of_a_paused_machine_may_run_and_may_not_write(self):
        lives = sound()
        begin = min(life.start for life in lives if life.round == 1)
        stale = changed(changed(lives, 0, 3, last=begin + SECOND), 1, 0, overlaps=(0,))
        pid = next(life.pid for life in lives if (life.round, life.rank) == (0, 3))
        self.assertEqual(len(self.found(stale)), 2)
        self.assertEqual(self.found(stale, paused={pid: begin - 1}), [])
        self.only(changed(stale, 0, 3, writes=(begin + 1,)), "made a checkpoint valid", paused={pid: begin - 1})

    def test_a_rank_that_started_twice_is_found(self):
        lives = sound()
        self.only(lives + [dataclasses.replace(lives[3], pid=999)], "P3: round 0: rank 3 started 2 times")

    def test_a_round_that_two_coordinators_started_is_found(self):
        lives = sound(1)
        other = [dataclasses.replace(life, node=life.node + "'", master="10.77.0.9", pid=life.pid + 50) for life in lives]
        found = " ".join(self.found(lives + other))
        for text in ("started 2 times", "master differs", "node rank 0 is held by a and a'"):
            self.assertIn(text, found)

    def test_a_missing_rank_is_found_once_the_round_had_time(self):
        lives = [life for life in sound() if (life.round, life.rank) != (1, 4)]
        self.only(lives, "P3: round 1: ranks [4] never started", settled=1)
        self.assertEqual(self.found(lives, settled=5), [])

    def test_a_rank_outside_of_the_world_is_found(self):
        lives = changed(sound(1, ("a",)), 0, 1, rank=7, local=7)
        self.only(lives, "rank 7 of 2")

    def test_blocks_and_order_of_nodes_are_checked(self):
        lives = changed(changed(sound(1), 0, 1, local=0), 0, 0, local=1)
        self.only(lives, "ranks of node a are not one block")
        swapped = [dataclasses.replace(life, node_rank=2 - life.node_rank) for life in sound(1)]
        self.only(swapped, "ranks do not follow the order of the nodes")

    def test_a_different_world_port_or_count_is_found(self):
        self.only(changed(sound(), 1, 5, world=8), "world differs")
        self.only(changed(sound(), 1, 5, port="1"), "port differs")
        self.only(changed(sound(), 2, 5, restarts=9), "restarts differs")

    def test_a_restart_count_that_goes_back_is_found(self):
        lives = [dataclasses.replace(life, restarts=0) if life.round == 2 else life for life in sound()]
        self.only(lives, "restarts: ")

    def test_the_story_tells_rounds_and_foreign_events_in_order(self):
        lines = history.story(sound(2), [(1001 * SECOND, "node c is cut off")]).splitlines()
        text = [next(i for i, line in enumerate(lines) if words in line) for words in ("round 0 begins", "node c is cut off", "round 1 begins")]
        self.assertEqual(text, sorted(text))


WORKER = os.path.join(os.environ.get("ACC_BIN", ""), "history_worker")


@unittest.skipUnless(os.access(WORKER, os.X_OK), "ACC_BIN names no folder with history_worker")
class Diaries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, number, rank, *words, world=2):
        facts = dict(ACC_ROUND=number, RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, GROUP_RANK=0, GROUP_WORLD_SIZE=1, TORCHELASTIC_RESTART_COUNT=number,
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=29500, HISTORY_DIR=self.folder, HISTORY_NODE="a")
        return subprocess.Popen([WORKER, *words], env={key: str(value) for key, value in facts.items()})

    def test_rounds_one_after_the_other_are_sound(self):
        for number in range(2):
            for worker in [self.start(number, rank, "run=50ms") for rank in range(2)]:
                self.assertEqual(worker.wait(10), 0)
        lives = history.load(self.folder)
        self.assertEqual(len(lives), 4)
        self.assertEqual(history.violations(lives), [])

    def test_rounds_that_overlap_are_found_by_both_witnesses(self):
        old = self.start(0, 0, "run=400ms")
        while not any(name.startswith("log.") for name in os.listdir(self.folder)):
            self.assertIsNone(old.poll())
        self.start(1, 0, "run=20ms").wait(10)
        old.wait(10)
        found = history.violations(history.load(self.folder))
        self.assertEqual(len(found), 2, found)
        self.assertIn("lived", found[0])
        self.assertIn("a process of round 0 was alive", found[1])

    def test_the_checker_is_a_program_too(self):
        self.start(0, 0, "run=20ms", world=1).wait(10)
        done = subprocess.run([sys.executable, history.__file__, self.folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("no violation: 1 workers in 1 rounds", done.stdout)


if __name__ == "__main__":
    unittest.main()
