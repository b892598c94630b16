#!/usr/bin/env python3
"""docs_test.py: what the documents say is there. Links and anchors lead somewhere; troubleshooting.md has the messages that name a cure, and no
others; from-accelerate.md has the whole API of Accelerator, and of ours only what the headers have; the site's list names each page; files and names
of the tables "Where a change goes" are there."""
import functools
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import markdown
from markdown import ROOT

# The public names of class Accelerator, Accelerate 1.15.0.dev0 (commit 16cb6eb): properties, methods, and attributes set by __init__.
ACCELERATOR = """
accumulate ao_recipe_handler autocast autocast_handler backward check_trigger clear clip_grad_norm_ clip_grad_value_ context_parallel_rank
data_parallel_rank data_parallel_shard_rank dataloader_config ddp_handler deepspeed_plugin deepspeed_ulysses_dl_adapter delayed_fp8_autocast device
device_placement dispatch_batches distributed_type end_training even_batches flag_tensor fp8_backend fp8_enabled fp8_recipe_handler free_memory
gather gather_for_metrics get_state_dict get_tracker gradient_accumulation_steps gradient_state has_fp8_handler has_lomo_optimizer init_handler
init_trackers is_composable_parallelism_enabled is_fsdp2 is_last_process is_local_main_process is_main_process join_uneven_inputs load_state
local_main_process_first local_process_index log log_with logging_dir lomo_backward main_process_first maybe_context_parallel mixed_precision
msamp_recipe_handler multi_device native_amp no_sync non_blocking num_processes on_last_process on_local_main_process on_local_process
on_main_process on_process optimizer_step_was_skipped pad_across_processes parallelism_config pipeline_parallel_rank prepare
prepare_data_loader prepare_model prepare_optimizer prepare_scheduler print process_index profile profile_handler project_configuration project_dir
reduce register_for_checkpointing register_load_state_pre_hook register_save_state_pre_hook rng_types save save_iteration save_model save_state
scaler scaler_handler set_trigger should_save_model skip_first_batches split_batches split_between_processes state step
step_scheduler_with_optimizer sync_gradients te_recipe_handler tensor_parallel_rank torch_device_mesh trackers trigger_sync_in_backward
unscale_gradients unwrap_model use_distributed use_seedable_sampler use_stateful_dataloader verify_device_map wait_for_everyone
""".split()


@functools.lru_cache(None)
def text_of(path):
    return (ROOT / path).read_text()


class Links(unittest.TestCase):
    def test_each_link_leads_to_a_file_and_each_anchor_to_a_heading(self):
        seen, wrong = 0, []
        for page in markdown.all_pages():
            for line, target in markdown.links(text_of(page)):
                if "://" in target or target.startswith("mailto:"):
                    continue
                seen += 1
                name, _, anchor = target.partition("#")
                place = (ROOT / page.parent / name).resolve() if name else ROOT / page
                if not place.exists():
                    wrong.append(f"{page}:{line}: {target}: no such file")
                elif anchor and (place.suffix != ".md" or anchor not in markdown.anchors(place.read_text())):
                    wrong.append(f"{page}:{line}: {target}: no such heading")
        self.assertGreater(seen, 150)
        self.assertEqual(wrong, [])

    def test_the_rule_itself(self):
        text = "# A `b`: c?\n```\n# no\n```\n## Two\n## Two\n[x](y.md#z) `[no](n.md)` [w](<u.md>)\n"
        self.assertEqual(markdown.anchors(text), {"a-b-c", "two", "two-1"})
        self.assertEqual([target for _, target in markdown.links(text)], ["y.md#z", "u.md"])
        block, = markdown.blocks("<!-- not run: x y -->\n<!-- needs: z -->\n```sh\na\n```\n```text\nb\n```\n")[:1]
        self.assertEqual((block.line, block.note("not run"), block.note("needs"), block.output), (4, "x y", "z", "b\n"))

    def test_the_map_in_readme_leads_to_each_page(self):
        linked = {(ROOT / target.partition("#")[0]).resolve() for _, target in markdown.links(text_of("README.md"))}
        for page in sorted((ROOT / "docs").glob("*.md")):
            self.assertIn(page, linked, f"README.md has no link to docs/{page.name}")


    def test_the_site_has_each_page_in_its_list(self):
        mapped = [line.split(" ")[0] for line in text_of("docs/site/map.txt").splitlines() if not line.startswith("#")]
        self.assertEqual([page for page in mapped if not (ROOT / page).exists()], [])
        self.assertEqual([page for page in map(str, markdown.pages()) if page not in mapped], [])


# ---- where a change goes ----

WHERE = "## Where a change goes"
# What a cell names: files, of the page's folder, of the root or of the tests; folders; identifiers that stand in the row's files.
A_FILE = re.compile(r"[\w./*-]+\.(?:cpp|hpp|h|py|json|md)|[\w./-]+/")
A_NAME = re.compile(r"(?:\w+::)*([A-Za-z_]\w*)(?:\(\w+\))?")


def changes(page, text):
    """(line, files, tests, complaints) of each row of the page's table."""
    lines = text.splitlines()
    begin = lines.index(WHERE) + 3
    folder = page.parent
    for number, row in enumerate(lines[begin:], begin + 1):
        if not row.startswith("|"):
            return
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        if len(cells) != 3:
            yield number, [], [], ["not three cells"]
            continue
        wrong, found = [], []
        for place in cells[1:]:
            spans, paths = [span for _, span in markdown.spans(place)], []
            for span in filter(A_FILE.fullmatch, spans):
                roots = (ROOT / folder, ROOT, ROOT / "tests/unit" / folder)
                some = [path for root in roots for path in root.glob(span.rstrip("/"))]
                paths += some
                wrong += [] if some else [f"no such file: {span}"]
            found.append(paths)
        everything = "".join(path.read_text() for path in found[0] + found[1] if path.is_file())
        for _, span in markdown.spans(cells[1]):
            name = A_NAME.fullmatch(span)
            if name and not A_FILE.fullmatch(span) and not re.search(rf"\b{name[1]}\b", everything):
                wrong.append(f"none of the row's files has {span}")
        yield number, found[0], found[1], wrong


class Changes(unittest.TestCase):
    def test_each_file_and_name_of_where_a_change_goes_is_there(self):
        seen, wrong = 0, []
        for page in filter(lambda page: WHERE in text_of(page).splitlines(), markdown.all_pages()):
            for line, files, tests, complaints in changes(page, text_of(page)):
                seen += 1
                wrong += [f"{page}:{line}: {complaint}" for complaint in complaints]
                if not files:
                    wrong.append(f"{page}:{line}: no file")
                if not any("tests" in path.relative_to(ROOT).parts for path in tests):
                    wrong.append(f"{page}:{line}: no test")
        self.assertGreater(seen, 30)
        self.assertEqual(wrong, [])

    def test_readme_leads_to_each_of_these_tables(self):
        linked = {target for _, target in markdown.links(text_of("README.md"))}
        for page in filter(lambda page: WHERE in text_of(page).splitlines(), markdown.all_pages()):
            self.assertIn(f"{page}#where-a-change-goes", linked)

    def test_the_rule_itself(self):
        page = pathlib.Path("agent/README.md")
        rows = ["a | `step` in `supervisor.cpp` | `supervisor_test.cpp`", "b | `no_such_name` in `supervisor.cpp` | `supervisor_test.cpp`",
                "c | `no_such_file.cpp`, `--flag` | `tests/unit/house_test.py`", "d | `common/*.hpp` | `no_such_test.cpp`", "e | f"]
        text = "\n".join([WHERE, "| change | files | test |", "|---|---|---|", *(f"| {row} |" for row in rows), "", "| not | a | row |"])
        self.assertEqual([len(complaints) for *_, complaints in changes(page, text)], [0, 1, 1, 1, 1])


class Glossary(unittest.TestCase):
    def test_it_has_each_term_once_and_stays_short(self):
        table = text_of("docs/architecture.md").split("## Glossary", 1)[1].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
        terms = [row.split("|")[1].strip() for row in table.splitlines()]
        self.assertLessEqual(len(terms), 40, "merge two entries, or find a word that needs none")
        words = [word.strip() for term in terms for word in term.split(",")]
        self.assertEqual(sorted(words), sorted(set(words)))


# ---- troubleshooting.md ----

ROOMS = ("launcher", "agent", "rendezvous", "common", "runtime")
# What these say is no message: help, questions, tables of the documents, programs in other languages, a measuring program.
NO_MESSAGES = re.compile(r"questions|/pages\.|_keys|/help\.|verbs|acc_docs|worker_env|selftest|completions|deviations|man_page|exit_codes|key_table|"
                         r"view_panels|other_launchers|hook_archive|planted|launcher/env/|flight_dump|collector\.cpp|metrics_text")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
# A literal names a cure if it tells the reader, behind a colon or the like, to do something, or asks what may be the cause.
VERBS = ("add|build|check|choose|close|compare|copy|correct|delete|end|free|give|install|leave|make|mount|name|open|put|quote|raise|remove|run|see|set|start|"
         "stop|submit|sum|train|try|unset|use|write")
CURE = re.compile(rf"(?:[:;,.(] |\(|\bor )(?:{VERBS})\b(?! up the| the mode| stands| as)|^(?:install|move|raise|give another|give it|a longer|a larger|see) |"
                  rf"\?(?=$|[ )])|--[a-z_]+ (?:names|replaces|saves|shows|prints|tells)|^here --|\bneeds? (?:--|brackets|DeepSpeed|Transformer)|\b(?:ulimit|chmod)\b|"
                  rf"\bacc-(?:ctl|config|launch) .*\bmakes\b|the program for it is|that is acc-config|=value\b|=VALUE\b|=N acc-launch|must be more than|"
                  rf"exclude each other|cannot be used together|here gpu_ids", re.I)
# They match, and name no cure.
NO_CURES = {
    "a verb is missing: ps, status, logs, submit …": "a list", "arrow keys or the first letters, then Enter; ? explains, < goes back\\n": "help", "etcd: write the round of job '": "an operation", "acc-launch: write '%s/started': %s\\n": "an operation",
    "acc-launch: write '%s': %s\\n": "an operation", "clone3_onto_stack: write it for this processor": "to whoever ports it",
    "call: write it for this processor": "to whoever ports it",
}


@functools.lru_cache(None)
def literals():
    """(file, line, text) of each string literal of the rooms, adjacent ones joined."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.[ch]pp")):
            text, last_end, name = path.read_text(), None, str(path.relative_to(ROOT))
            for token in TOKEN.finditer(text):
                word = token[0]
                if word.startswith(("//", "/*", "'")):
                    continue
                value = token[2] if word.startswith("R") else token[3]
                between = re.sub(r"//[^\n]*|/\*.*?\*/", "", text[last_end:token.start()], flags=re.S) if last_end is not None else "x"
                if not between.strip():
                    found[-1] = (*found[-1][:2], found[-1][2] + value)
                else:
                    found.append((name, text.count("\n", 0, token.start()) + 1, value))
                last_end = token.end()
    return found


def fragments():
    """(line, message) of the first cells of the tables of troubleshooting.md."""
    for number, row in enumerate(text_of("docs/troubleshooting.md").splitlines(), 1):
        if row.startswith("| `"):
            cell = re.split(r"(?<!\\)\|", row)[1]
            for span in re.finditer(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)", cell):
                yield number, span[2]


def pieces(message):
    return [piece.strip(" '") for piece in message.replace("`", "…").split("…") if len(piece.strip(" '")) > 5]


class Messages(unittest.TestCase):
    def test_each_message_of_the_page_is_one_of_ours(self):
        everything = "\n".join(text for _, _, text in literals()).replace("`", "…")
        seen = 0
        for line, message in fragments():
            for piece in pieces(message):
                seen += 1
                self.assertTrue(piece in everything, f"docs/troubleshooting.md:{line}: no source says this: {piece}")
        self.assertGreater(seen, 200)

    def test_each_message_that_names_a_cure_is_in_the_page(self):
        ours = [piece for _, message in fragments() for piece in pieces(message)]
        wrong, seen = [], 0
        for name, line, text in literals():
            if NO_MESSAGES.search(name) or len(text) < 17 or " " not in text.strip() or text.startswith("usage") or text in NO_CURES or not CURE.search(text):
                continue
            if "Connection: close" in text:  # a header of HTTP
                continue
            seen += 1
            plain = re.sub(r"%\w+", "…", text.replace("`", "…")).removesuffix("\\n")
            mine = [piece.strip(" ;:,.'()") for piece in plain.split("…") if CURE.search(piece)] or [plain.strip(" ;:,.'()")]
            if not any(piece in plain and len(piece) > 13 or one in piece for piece in ours for one in mine):
                wrong.append(f"{name}:{line}: {text}")
        self.assertFalse(wrong, "docs/troubleshooting.md has no row for:\n" + "\n".join(wrong))
        self.assertGreater(seen, 180)

    def test_the_rule_itself(self):
        for text in ("the disk is full: free some space", "is it up?" + ": is it up, is it right?", "no secret; give --secret_file FILE", "here --num_machines N"):
            self.assertTrue(CURE.search(text), text)
        for text in ("make a pipe", "the worker ended", "write to the standard output", "restarting all workers now"):
            self.assertFalse(CURE.search(text), text)
        self.assertEqual(pieces("a b c d e f…'x'… `acc-launch` it"), ["a b c d e f", "acc-launch"])


# ---- from-accelerate.md ----

class Accelerate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        page = text_of("docs/from-accelerate.md").split("## The loop, in C++", 1)[1]
        cls.rows = [re.split(r"(?<!\\)\|", row)[1:-1] for row in re.findall(r"^\| .*\|$", page, re.M)]

    def test_the_tables_have_the_whole_api_of_the_original(self):
        named = {name for row in self.rows for span in re.findall(r"`([^`]+)`", row[0]) for name in re.findall(r"\w+", span)}
        self.assertEqual(sorted(set(ACCELERATOR) - named), [])

    def test_what_is_ours_is_in_the_headers(self):
        headers = "".join(path.read_text() for path in sorted((ROOT / "runtime/include/acc").glob("*.hpp")))
        seen = 0
        for row in self.rows:
            for name in re.findall(r"`(?:acc::)?(?:\w+(?:::|\.|\(\)\.))*(\w+)\(", row[1]):
                seen += 1
                self.assertRegex(headers, rf"\b{name}\b", f"{row[1].strip()}: no such name")
            for name in re.findall(r"`(\w+)`", row[0]) if row[1].strip().startswith("the same") else ():
                seen += 1
                self.assertRegex(headers, rf"\b{name}\(", f"{name} isn't the same")
        self.assertGreater(seen, 40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
