"""One run: samples by figure and program, what failed or is absent, and how long each part may take."""
import os
import sys
import time

import machine


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Session:
    def __init__(self, bin_folder, python, budget_s, is_quick):
        self.bin, self.python, self.budget_s, self.is_quick = bin_folder, python, budget_s, is_quick
        self.deadline = time.monotonic() + 1.3 * budget_s  # from here on one round of each part must do
        self.samples = {}  # figure -> program -> [numbers]
        self.notes = {}    # figure -> program -> why there is no number
        self.absent = {}   # program -> why
        self.parts = {}    # part -> seconds, load of others
        self.errors = {}   # part -> why it ended early

    def program(self, name):
        return os.path.join(self.bin, name)

    def add(self, figure, who, value):
        self.samples.setdefault(figure, {}).setdefault(who, []).append(round(float(value), 6))

    def note(self, figure, who, why):
        self.notes.setdefault(figure, {})[who] = " ".join(str(why).split())[:200]

    def rounds(self, share, least=3, most=15):
        """Numbers of rounds: as many as fit into this share of the budget, and `least` unless that takes twice the share."""
        limit, begin = self.budget_s * share, time.monotonic()
        for number in range(1 if self.is_quick else most):
            took = time.monotonic() - begin
            if number and (time.monotonic() > self.deadline or took > 2 * limit or number >= least and took * (number + 1) / number > limit):
                return
            yield number

    def measure(self, name, part):
        """Runs a part; one that fails leaves what it has measured, and the others go on."""
        say(f"== {name}")
        begin, load = time.monotonic(), machine.Load()
        try:
            part(self)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a peer that misbehaves must not cost the others' figures
            self.errors[name] = f"{type(error).__name__}: {error}"[:300]
            say(f"   {name} ended early: {self.errors[name]}")
        self.parts[name] = {"seconds": round(time.monotonic() - begin, 1), **load.others()}
        say(f"   {self.parts[name]['seconds']} s, other processes kept {self.parts[name]['others_cores']} cores busy")
