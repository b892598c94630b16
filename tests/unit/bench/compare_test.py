#!/usr/bin/env python3
"""What tests/bench/compare makes of a run: tables, plots and the blocks of README.md. Nothing is measured here: compare_run.json is a recorded run."""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
COMPARE = ROOT / "tests/bench/compare"
sys.path.insert(0, str(COMPARE))

import figures  # noqa: E402
import page  # noqa: E402
from session import Session  # noqa: E402

RUN = json.loads((HERE / "compare_run.json").read_text())
README = "# R\n## Figures\n" + "".join(f"<!-- benchmarks: {name} -->\nold\n<!-- end -->\n" for name in ("machine", "launch", "warm", "collectives", "service")) + "## Next\n"


class Numbers(unittest.TestCase):
    def test_a_number_has_as_many_digits_as_two_runs_agree_on(self):
        for value, text in ((0, "0"), (0.0004, "< 0.001"), (0.125, "0.12"), (3.46, "3.5"), (9.96, "10"), (33.4, "33"), (663.4, "663"), (1234.5, "1,230"), (505456, "505,000")):
            self.assertEqual(figures.number(value), text)

    def test_a_cell_has_the_median_the_middle_half_and_how_many_times_ours(self):
        data = figures.Data({"samples": {"start_8": {"acc-launch": [3, 4, 5, 4, 4], "mpirun": [40, 44, 36, 40]}}, "absent": {}, "notes": {}})
        self.assertEqual(figures.cell(data, "start_8", "acc-launch"), "**4**")
        self.assertEqual(figures.cell(data, "start_8", "mpirun"), "40 (39–41) ×10")

    def test_a_ratio_above_one_means_that_ours_is_ahead_also_where_more_is_better(self):
        data = figures.Data({"samples": {"log_pipe": {"acc-launch": [3.0], "torchrun": [0.5], "hydra": [6.0]}, "start_1": {"acc-launch": [2.0], "torchrun": [1.0]}}})
        self.assertEqual((data.ratio("log_pipe", "torchrun", "acc-launch"), data.ratio("log_pipe", "hydra", "acc-launch")), (6, 0.5))
        self.assertEqual(data.ratio("start_1", "torchrun", "acc-launch"), 0.5)

    def test_the_best_peer_is_the_one_that_is_nearest_or_ahead(self):
        data = figures.Data({"samples": {"ranks2_barrier_0": {"acc": [2.0], "Open MPI": [8.0], "gloo": [4.0]}}})
        self.assertEqual(data.best_peer("ranks2_barrier_0", "acc", ("Open MPI", "gloo", "MPICH")), (0.5, "gloo"))

    def test_a_figure_of_zero_has_no_ratio(self):
        data = figures.Data({"samples": {"wakeups": {"acc-launch": [0.0], "torchrun": [10.0]}}, "absent": {}, "notes": {}})
        self.assertEqual(figures.cell(data, "wakeups", "torchrun"), "10")

    def test_figures_have_one_name_each_and_what_is_drawn_is_a_figure_of_its_group(self):
        names = [figure.name for group in figures.GROUPS for figure in group.figures]
        self.assertEqual(len(names), len(set(names)))
        for group in figures.GROUPS:
            self.assertLessEqual({name for name, _ in group.plots}, {figure.name for figure in group.figures})


class Tables(unittest.TestCase):
    def test_what_is_not_installed_is_a_column_that_says_so(self):
        row = next(line for line in page.markdown(RUN).splitlines() if line.startswith("| command to the first instruction of 1 worker"))
        self.assertIn("| not installed |", row)
        self.assertIn("accelerate", next(line for line in page.markdown(RUN).splitlines() if line.startswith("| not installed")))

    def test_a_launcher_without_a_figure_says_why(self):
        self.assertIn("no figure: not within 5 s", page.markdown(RUN))

    def test_a_busy_machine_is_said_on_the_page_on_the_terminal_and_in_the_readme(self):
        for text in (page.markdown(RUN), page.table(RUN), page.with_blocks(README, RUN)):
            self.assertRegex(text, "(?i)the machine was busy")
        quiet = copy.deepcopy(RUN)
        for part in quiet["parts"].values():
            part["others_cores"] = 0.02
        for text in (page.markdown(quiet), page.table(quiet), page.with_blocks(README, quiet)):
            self.assertNotRegex(text, "(?i)the machine was busy")

    def test_a_smoke_test_says_what_its_figures_are_worth(self):
        self.assertIn("A smoke test's figures", page.markdown(RUN))

    def test_a_part_that_ended_early_is_named(self):
        self.assertIn("The part hosts ended early: no namespaces", page.markdown({**RUN, "errors": {"hosts": "no namespaces"}}))

    def test_a_run_without_any_peer_still_makes_a_page(self):
        alone = copy.deepcopy(RUN)
        alone["samples"] = {name: {who: values for who, values in found.items() if page.is_ours(who)} for name, found in RUN["samples"].items()}
        self.assertIn("## One node", page.markdown(alone))
        page.with_blocks(README, alone)

    def test_a_run_of_one_part_makes_a_table(self):
        self.assertNotIn("Rendezvous", page.table({**RUN, "samples": {"start_1": RUN["samples"]["start_1"]}}))


class Files(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.root / "README.md").write_text(README)
        page.write(RUN, str(self.root))

    def test_what_was_written_is_what_the_samples_give(self):
        self.assertEqual(page.complaints(str(self.root)), [])
        self.assertEqual(json.loads((self.root / "docs/benchmarks.json").read_text()), RUN)

    def test_text_outside_of_the_blocks_stays(self):
        text = (self.root / "README.md").read_text()
        self.assertTrue(text.startswith("# R\n## Figures\n") and text.endswith("## Next\n"))
        self.assertNotIn("old", text)

    def test_a_number_that_was_changed_by_hand_is_found(self):
        for name in ("README.md", "docs/benchmarks.md", "docs/benchmarks/launch.svg"):
            path = self.root / name
            before = path.read_text()
            path.write_text(re.sub(r"3\.8", "1.9", before, count=1))
            self.assertRegex(" ".join(page.complaints(str(self.root))), re.escape(name))
            path.write_text(before)

    def test_a_plot_that_is_not_drawn_any_more_is_removed(self):
        (self.root / "docs/benchmarks/old.svg").write_text("<svg/>")
        page.write(RUN, str(self.root))
        self.assertFalse((self.root / "docs/benchmarks/old.svg").exists())

    def test_plots_are_well_formed_have_colours_for_dark_and_nothing_sticks_out(self):
        for path in sorted((self.root / "docs/benchmarks").glob("*.svg")):
            tree = xml.parse(path).getroot()
            width = float(tree.get("width"))
            self.assertIn("prefers-color-scheme:dark", path.read_text())
            for bar in tree.iter("{http://www.w3.org/2000/svg}rect"):
                self.assertLessEqual(float(bar.get("x", 0)) + float(bar.get("width")), width)
            self.assertLess(path.stat().st_size, 20_000)

    def test_the_command_makes_tables_of_recorded_samples_without_measuring(self):
        done = subprocess.run([sys.executable, COMPARE, "--from", HERE / "compare_run.json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("One node", done.stdout)

    def test_a_smoke_test_is_not_written_to_the_docs(self):
        done = subprocess.run([sys.executable, COMPARE, "--from", HERE / "compare_run.json", "--write", "--root", self.root], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--write wants a whole run", done.stderr)


class Rounds(unittest.TestCase):
    def test_a_round_comes_first_however_short_the_budget_is_and_no_part_is_without(self):
        session = Session("", None, 0, False)
        self.assertEqual(list(session.rounds(0.5)), [0])

    def test_a_smoke_test_has_one_round(self):
        self.assertEqual(list(Session("", None, 1000, True).rounds(0.5)), [0])

    def test_there_are_no_more_rounds_than_asked_for(self):
        self.assertEqual(list(Session("", None, 1000, False).rounds(0.5, most=4)), [0, 1, 2, 3])

    def test_a_part_that_fails_is_recorded_and_the_next_one_goes_on(self):
        session = Session("", None, 1, True)

        def failing(_):
            raise RuntimeError("no namespaces here")
        session.measure("hosts", failing)
        session.measure("start", lambda one: one.add("start_1", "acc-launch", 2))
        self.assertEqual(session.errors, {"hosts": "RuntimeError: no namespaces here"})
        self.assertEqual(session.samples, {"start_1": {"acc-launch": [2.0]}})


class Docs(unittest.TestCase):
    def test_readme_and_docs_say_what_the_committed_samples_give(self):
        self.assertEqual(page.complaints(str(ROOT)), [])

    def test_the_figures_of_readme_stand_in_blocks(self):
        section = re.search(r"^## Figures\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)[1]
        self.assertNotRegex(page.BLOCK.sub("", section), r"\d ?(ms|µs|ns|s|MiB|%|lines)\b")

    def test_every_block_is_used(self):
        used = {found[2] for name in page.PAGES for found in page.BLOCK.finditer((ROOT / name).read_text())}
        self.assertEqual(used, set(page.BLOCKS))


if __name__ == "__main__":
    unittest.main()
