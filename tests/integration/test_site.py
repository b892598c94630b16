#!/usr/bin/env python3
"""The site of the documents (docs/site/build): whole, its links lead somewhere, and it can be read on a phone and in the dark."""
import os, pathlib, re, shutil, subprocess, sys, tempfile, unittest

import browser
from harness import SLACK, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "docs/site/build"


def build(*words, **how):
    return subprocess.run([sys.executable, BUILD, *map(str, words)], capture_output=True, text=True, timeout=200 * SLACK, **how)


class Refused(unittest.TestCase):
    def test_without_pandoc_it_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            done = build(folder, env={**os.environ, "PATH": folder})
        self.assertEqual((done.returncode, done.stderr), (1, "docs/site/build: pandoc is missing: apt install pandoc\n"))


@unittest.skipUnless(shutil.which("pandoc"), "needs Debian's pandoc")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="acc-site-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        done = build(cls.folder / "site")
        assert done.returncode == 0, done.stderr
        cls.site = cls.folder / "site"
        cls.pages = sorted(cls.site.rglob("*.html"))

    def test_each_document_is_a_page_with_its_title(self):
        self.assertGreater(len(self.pages), 60)
        for name in ("index", "docs/getting-started", "docs/troubleshooting", "docs/decisions/0001-guardian-and-agent", "docs/decisions/index", "agent/README"):
            text = (self.site / f"{name}.html").read_text()
            self.assertRegex(text, r"<title>[^<]{4,}</title>")
            self.assertRegex(text, r"<h1[ >]")
            self.assertNotIn("<!-- ", text)

    def test_each_link_leads_to_a_file_of_the_site_and_each_anchor_to_an_element(self):
        ids = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in self.pages}
        seen, wrong = 0, []
        for page in self.pages:
            for target in re.findall(r'(?:href|src)="([^"]*)"', page.read_text()):
                if "://" in target:
                    continue
                seen += 1
                name, _, anchor = target.partition("#")
                place = pathlib.Path(os.path.normpath(page.parent / name)) if name else page
                if not place.is_file() or self.site not in place.parents or anchor and anchor not in ids.get(place, ()):
                    wrong.append(f"{page.relative_to(self.site)}: {target}")
        self.assertGreater(seen, 2000)
        self.assertEqual(wrong, [])

    def test_it_loads_nothing_from_elsewhere(self):
        for page in self.pages:
            self.assertNotRegex(page.read_text(), r'<script|<link[^>]+href="https?:|<img[^>]+src="https?:|@import', page.name)

    def test_a_folder_with_other_files_is_left_alone(self):
        other = self.folder / "other"
        other.mkdir()
        (other / "thesis.txt").write_text("mine")
        self.assertIn("holds something else than a site", build(other).stderr)
        self.assertTrue((other / "thesis.txt").exists())
        self.assertEqual(build(self.site).returncode, 0)

    @unittest.skipUnless(browser.DRIVER and browser.CHROMIUM, "needs Debian's chromium and chromium-driver")
    def test_a_page_fits_a_phone_its_menu_opens_and_the_dark_is_dark(self):
        screen = browser.Browser()
        self.addCleanup(screen.close)
        colours = []
        for is_dark, width in ((False, 1280), (True, 1280), (False, 360)):
            screen.look(width, 800, is_dark=is_dark, is_phone=width < 400)
            for name in ("index", "docs/getting-started", "docs/troubleshooting", "docs/from-accelerate", "docs/configuration", "docs/operations"):
                screen.open(f"file://{self.site}/{name}.html")
                self.assertLessEqual(screen.run("return document.documentElement.scrollWidth"), width, name)
                self.assertEqual(screen.complaints(), [])
            colours.append(screen.run("return getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(colours[0], colours[1])
        self.assertEqual(screen.run("return getComputedStyle(document.querySelector('nav')).display"), "none")
        screen.click("label[for=menu]")
        self.assertEqual(screen.run("return getComputedStyle(document.querySelector('nav')).display"), "block")
        if folder := os.environ.get("ACC_TEST_PICTURES"):
            screen.picture(os.path.join(folder, "site-phone.png"))


if __name__ == "__main__":
    main()
