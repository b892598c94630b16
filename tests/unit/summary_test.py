"""tests/summary.py: the last lines of tests/run.sh say what failed and why."""
import contextlib, io, os, sys, tempfile, unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import summary

PYTHON = """test_two (__main__.Jobs.test_two) ... ERROR
Traceback (most recent call last):
  File "/x/tests/integration/test_jobs.py", line 7, in test_two
    self.wait()
  File "/x/tests/integration/harness.py", line 99, in wait
    raise AssertionError(f"no end of it")
AssertionError: no end of it after 30 s
Ran 2 tests in 0.1s
"""
CATCH = """-----
a pair of ranks
-----
pair_test.cpp:12: FAILED:
  CHECK( a == b )
with expansion:
  1 == 2
"""
RESULT = """<testsuite>
<testcase name="fine" status="run"/>
<testcase name="no GPU" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
<testcase name="not built" status="notrun"><skipped message="Unable to find executable"/></testcase>
<testcase name="jobs" status="fail"><failure message=""/><system-out>%s</system-out></testcase>
</testsuite>"""


class Summary(unittest.TestCase):
    def test_a_traceback_is_told_by_the_line_of_the_test_and_the_error(self):
        self.assertEqual(summary.reason(PYTHON), "test_jobs.py:7 test_two: AssertionError: no end of it after 30 s Ran 2 tests in 0.1s")

    def test_a_failed_check_is_told_with_its_values(self):
        self.assertEqual(summary.reason(CATCH), "pair_test.cpp:12: FAILED: CHECK( a == b ) with expansion: 1 == 2")

    def test_else_the_last_words(self):
        self.assertEqual(summary.reason("one\n\ntwo\nthree\n"), "two three")

    def test_each_failed_test_has_a_line_and_the_last_one_counts(self):
        with tempfile.NamedTemporaryFile("w") as file, contextlib.redirect_stdout(io.StringIO()) as out:
            file.write(RESULT % PYTHON)
            file.flush()
            self.assertEqual(summary.main(file.name), 0)
        lines = out.getvalue().splitlines()
        self.assertEqual(lines[0], "failed: not built: Unable to find executable")
        self.assertTrue(lines[1].startswith("failed: jobs: test_jobs.py:7 test_two: AssertionError"), lines)
        self.assertEqual(lines[2:], ["1 passed, 2 failed, 1 skipped"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
