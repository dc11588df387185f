"""trainyard report and runs compare: the page is parsed, its curves and marks are counted and held against the data they were
drawn from, and, where there is a Chromium, looked at."""
import fcntl
import html.parser
import json
import math
import os
import random
import re
import resource
import subprocess
import time
import unittest

from support.chromium import CHROMIUM, visit
from support.host import FAULTY, SMALL, HostTest

try:
    import numpy
    from PIL import Image
except ImportError:
    numpy = None

WIDTH, HEIGHT = 600, 220  # of a drawing, in its own units
EMPTY = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "path"}


class Element:
    def __init__(self, tag, attributes=()):
        self.tag, self.attributes, self.children, self.text = tag, dict(attributes), [], ""

    def classes(self):
        return self.attributes.get("class", "").split()

    def all(self, tag=None, of=None):
        for child in self.children:
            if (tag is None or child.tag == tag) and (of is None or of in child.classes()):
                yield child
            yield from child.all(tag, of)

    def words(self):
        return self.text + "".join(child.words() for child in self.children)

    def by_id(self, name):
        return next(each for each in self.all() if each.attributes.get("id") == name)


class Page(html.parser.HTMLParser):
    """A strict reader: what is opened is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.root = Element("")
        self.open = [self.root]
        self.feed(text)
        self.close()
        assert len(self.open) == 1, [each.tag for each in self.open]

    def handle_starttag(self, tag, attributes):
        element = Element(tag, attributes)
        self.open[-1].children.append(element)
        if tag not in EMPTY:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.open[-1].children.append(Element(tag, attributes))

    def handle_endtag(self, tag):
        closed = self.open.pop()
        assert closed.tag == tag, f"</{tag}> closes <{closed.tag}>"

    def handle_data(self, data):
        self.open[-1].text += data

    def charts(self):
        return {each.attributes["data-metric"]: each for each in self.root.all("figure")}


def points(path):
    """Parts of a path of M, L and h0: lists of (x, y)."""
    parts = []
    for command, numbers in re.findall(r"([MLh])([-\d. e]*)", path):
        if command == "M":
            parts.append([])
        if command != "h":
            parts[-1].append(tuple(map(float, numbers.split())))
    return parts


def curves(chart, of="curve"):
    return {int(each.attributes["data-group"]): points(each.attributes["d"]) for each in chart.all("path", of)}


def data_of(chart):
    return json.loads(next(chart.all("script")).text)


def toml(text):
    return json.dumps(text, ensure_ascii=False)


class Runs(HostTest):
    def run_folder(self, name, values, *, seed=1, lr=0.1, journal=(), result=None, folder=None, tail="", sinks=True):
        """A run as one leaves it: `values` is a list of (step, {metric: value})."""
        path = self.folder / "runs" / (folder or name)
        path.mkdir(parents=True)
        sink = '[[logging.sinks]]\ntype = "jsonl"\nfile = "metrics.jsonl"\n' if sinks else ""
        (path / "config.toml").write_text(f'schema = 1\n[run]\nname = {toml(name)}\nseed = {seed}\noutput_dir = {toml(str(path))}\n'
                                          f'[optimizer]\ntype = "sgd"\nlr = {lr}\n{sink}')
        (path / "journal.jsonl").write_text("".join(
            json.dumps({"time": "2026-01-01T00:00:00.000Z", "step": step, "plugin": plugin, "what": what, "why": why}) + "\n"
            for step, plugin, what, why in journal))
        finite = lambda value: value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        (path / "metrics.jsonl").write_text("".join(
            json.dumps({"what": "train", "step": step, "epoch": 0, "seconds": step / 100,
                        "values": {key: finite(value) for key, value in all.items()}}) + "\n" for step, all in values) + tail)
        if result is not None:
            (path / "result.json").write_text(json.dumps(result))
        return path

    def report(self, *words, code=0):
        done = self.host("report", *words, code=code)
        if code:
            return done
        self.text = (self.folder / "report.html").read_text()
        return Page(self.text)

    def height(self, chart, value):
        """Where the frame of a chart puts a value."""
        data = data_of(chart)
        value = math.log10(value) if data["log"] else value
        return (data["high"] - value) / (data["high"] - data["low"]) * HEIGHT


class Pages(Runs):
    def four_runs(self, count=10_000):
        noise = random.Random(3)
        self.values = {}
        for name, seed, lr in (("base-s1", 1, 0.1), ("base-s2", 2, 0.1), ("base-s3", 3, 0.1), ("fast", 1, 0.3)):
            values = []
            for step in range(1, count + 1):
                loss = math.exp(-step / 4000 / lr * 0.1) + 0.02 * noise.random() + seed / 50
                values.append((step, {"train/loss": loss, "lr": lr * (1 - step / count / 2), "samples_per_second": 900 + noise.random()}))
                if step % 500 == 0:
                    values[-1][1]["val/accuracy"] = 1 - loss / 2
            self.values[name] = values
        self.values["fast"][6543][1]["train/loss"] = 3.75  # one step of ten thousand
        for step in range(2000, 2200):
            self.values["fast"][step - 1][1]["train/loss"] = math.nan
        for name, seed, lr in (("base-s1", 1, 0.1), ("base-s2", 2, 0.1), ("base-s3", 3, 0.1), ("fast", 1, 0.3)):
            journal = [(5000, "ctl", "swap", "schedule: rex -> cosine"), (7000, "", "stop_run", "asked to")] if name == "fast" else []
            self.run_folder(name, self.values[name], seed=seed, lr=lr, journal=journal,
                            result={"status": "completed", "steps": count, "epochs": 3, "samples": 64 * count, "seconds": 100.0,
                                    "metrics": {}, "error": None,
                                    "plugins": [{"name": "sgd", "kind": "optimizer", "version": "1.0.0", "digest": "", "seconds": 12.5}]})

    def test_a_device_stays_one(self):
        """A page that is written to a pipe goes into it: nothing is put in its place."""
        self.four_runs()
        os.mkfifo(self.folder / "pipe")
        with subprocess.Popen(["cat", self.folder / "pipe"], text=True, stdout=subprocess.PIPE) as reader:
            self.host("report", "fast", "--out", "pipe")
            page = reader.communicate(timeout=30)[0]
        self.assertTrue((self.folder / "pipe").is_fifo())
        self.assertTrue(page.rstrip().endswith("</html>"), page[-100:])

    def test_four_runs_of_ten_thousand_points(self):
        self.four_runs()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = self.report("base-s1", "base-s2", "base-s3", "fast")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2.0)
        self.assertLess(len(self.text.encode()), 3 << 20)
        charts = page.charts()
        self.assertEqual(list(charts), ["val/accuracy", "train/loss", "lr", "samples_per_second"])
        for metric, chart in charts.items():
            with self.subTest(metric):
                self.assertEqual(sorted(curves(chart)), [0, 1])  # three of them differ by seed alone
                self.assertEqual(sorted(curves(chart, "band")), [] if metric == "lr" else [0])
                steps = [each.attributes["data-step"] for each in chart.all("path", "mark")]
                self.assertEqual(steps, ["5000", "7000"])
                for mark in chart.all("path", "mark"):
                    x = float(re.match(r"M([\d.]+) ", mark.attributes["d"])[1])
                    data = data_of(chart)
                    step = data["from"] + x / WIDTH * (data["to"] - data["from"])
                    self.assertAlmostEqual(step, int(mark.attributes["data-step"]), delta=10)
                self.assertEqual([each.attributes["title"].split(": ", 1)[1] for each in chart.all("span", "flag")],
                                 ["swap by ctl: schedule: rex -> cosine", "stop_run: asked to"])

        loss = charts["train/loss"]
        fast = [value["train/loss"] for step, value in self.values["fast"]]
        finite = [value for value in fast if math.isfinite(value)]
        self.assertEqual(float(loss.attributes["data-highest"]), 3.75)
        drawn = curves(loss)[1]
        flat = [point for part in drawn for point in part]
        self.assertAlmostEqual(min(y for x, y in flat), self.height(loss, 3.75), delta=0.06)
        self.assertAlmostEqual(max(y for x, y in flat), self.height(loss, min(finite)), delta=0.06)
        self.assertEqual((flat[0][0], flat[-1][0]), (0.0, WIDTH))
        self.assertEqual(len(drawn), 2, "a gap where 200 values are not finite")
        self.assertLess(drawn[0][-1][0], 2000 / 10_000 * WIDTH + 0.1)
        self.assertGreater(drawn[1][0][0], 2199 / 10_000 * WIDTH - 0.1)
        self.assertEqual(len(list(loss.all("path", "broken"))), 1)
        self.assertIn("200 values are not finite", loss.words())
        # of each column the lowest and the highest are there
        columns = {}
        for step, value in enumerate(fast, 1):
            if math.isfinite(value):
                columns.setdefault(int((step - 1) / 9999 * WIDTH), []).append(value)
        shown = data_of(loss)["series"][1]
        of_column = {}
        for step, value in zip(shown["x"], shown["y"]):
            if value is not None:
                of_column.setdefault(int((step - 1) / 9999 * WIDTH), []).append(value)
        self.assertEqual(columns.keys(), of_column.keys())
        for column, values in columns.items():
            self.assertAlmostEqual(max(values), max(of_column[column]), delta=1e-5)
            self.assertAlmostEqual(min(values), min(of_column[column]), delta=1e-5)
        # the mean over seeds, and a standard deviation to each side
        group = data_of(charts["val/accuracy"])["series"][0]
        at = group["x"].index(5000)
        three = [self.values[f"base-s{seed}"][4999][1]["val/accuracy"] for seed in (1, 2, 3)]
        mean = sum(three) / 3
        self.assertAlmostEqual(group["y"][at], mean, delta=1e-5)
        self.assertAlmostEqual(group["e"][at], math.sqrt(sum((each - mean) ** 2 for each in three) / 2), delta=1e-5)

        outcomes = page.root.by_id("outcomes")
        (accuracy,) = [row for row in outcomes.all("tr") if row.words().startswith("val/accuracy")]
        ends = [self.values[f"base-s{seed}"][-1][1]["val/accuracy"] for seed in (1, 2, 3)]
        self.assertIn("final; highest", accuracy.words())
        for cell, end in zip(accuracy.all("td"), ends):
            self.assertTrue(cell.words().startswith(f"{end:.5g} "), cell.words())
        self.assertIn(f"{sum(ends) / 3:.5g} \u00b1 ", list(accuracy.all("td"))[-1].words())
        keys = page.root.by_id("keys")
        self.assertEqual([next(row.all("th")).words() for row in keys.all("tr")][1:], ["optimizer.lr", "run.seed"])
        self.assertIn("optimizer sgd", page.root.by_id("plugins").words())
        self.assertIn("12.5 s 12.5%", page.root.by_id("plugins").words())

    def test_it_needs_nothing_from_elsewhere(self):
        self.run_folder("alone", [(1, {"train/loss": 1.0}), (2, {"train/loss": 0.5})])
        page = self.report("alone")
        self.assertNotRegex(self.text, r"https?:|//[a-z]|url\(|@import|<link|<img|<iframe")
        for element in page.root.all():
            self.assertFalse({"src", "href", "action", "srcset"} & element.attributes.keys(), element.tag)
        self.assertEqual(len(list(page.root.all("h2"))), 5)

    def test_hostile_names(self):
        hostile = "</script><script>alert(1)</script><b x='&amp;\"'>"
        self.run_folder(hostile, [(1, {"train/loss": 1.0, hostile: 2.0}), (9, {"train/loss": 0.5, hostile: 3.0})], folder="hostile",
                        journal=[(3, hostile, hostile, hostile)],
                        result={"status": "failed", "error": hostile, "plugins": [{"name": hostile, "kind": hostile, "seconds": 1.0,
                                                                                     "events": {hostile: 0.5}}], "time": {hostile: 2.0}})
        self.run_folder("other", [(1, {"train/loss": 1.0})], lr=0.2)
        page = self.report("runs/hostile", "other")
        self.assertEqual(len(list(page.root.all("script"))), 2 + len(page.charts()))  # labels, ours, and each chart's values
        self.assertEqual(len(list(page.root.all("b"))), len(page.charts()))  # a flag each
        self.assertIn(hostile, page.charts())
        self.assertEqual(json.loads(page.root.by_id("labels").text), [hostile, "other"])
        self.assertIn(hostile, page.root.by_id("runs").words())
        self.assertIn(f"{hostile} by {hostile}: {hostile}", page.root.by_id("journal").words())
        self.assertIn(hostile, page.root.by_id("plugins").words())
        self.assertIn(hostile, next(page.root.all("h1")).words())

    def test_a_run_that_is_going(self):
        path = self.run_folder("going", [(step, {"train/loss": 1 / step}) for step in range(1, 6)],
                               tail='{"what": "train", "step": 6, "epoch": 0, "seconds": 0.1, "val')
        with open(path / "journal.jsonl") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            page = self.report("going")
        self.assertIn("running", page.root.by_id("runs").words())
        self.assertEqual(data_of(page.charts()["train/loss"])["series"][0]["x"], [1, 2, 3, 4, 5])
        self.assertNotIn("no records", page.root.words())

    def test_lines_that_are_no_records_are_counted(self):
        path = self.run_folder("torn", [(1, {"train/loss": 1.0})], tail='{"what": "train", "st\n{"step": 2, "values": {"train/loss": 0.5}}\n')
        page = self.report("torn")
        self.assertIn("1 lines of its metrics are no records", page.root.by_id("runs").words())
        self.assertEqual(data_of(page.charts()["train/loss"])["series"][0]["x"], [1, 2])
        self.assertIn("killed", page.root.by_id("runs").words())
        self.assertTrue(path.exists())

    def test_what_came_before_a_return_is_gone(self):
        self.run_folder("back", [(step, {"train/loss": float(step)}) for step in (1, 2, 3, 4, 3, 5)])
        self.assertEqual(data_of(self.report("back").charts()["train/loss"])["series"][0]["x"], [1, 2, 3, 5])

    def test_scale(self):
        self.run_folder("wide", [(step, {"train/loss": 10.0 ** -step, "val/loss": 5.0 - step}) for step in range(0, 6)])
        charts = self.report("wide").charts()
        self.assertTrue(data_of(charts["train/loss"])["log"])
        self.assertFalse(data_of(charts["val/loss"])["log"])
        ((line,),) = curves(charts["train/loss"]).values()
        rises = [round(b[1] - a[1], 1) for a, b in zip(line, line[1:])]
        self.assertLess(max(rises) - min(rises), 0.3, "even steps by the logarithm")

    def test_refusals(self):
        self.run_folder("empty", [])
        self.assertIn("'runs/empty' has no metrics to show: metrics.jsonl holds no value yet", self.report("empty", code=4).stderr)
        self.run_folder("without", [], sinks=False)
        self.assertIn("has no sink that writes them; add [[logging.sinks]]", self.report("without", code=4).stderr)
        self.assertIn("'nowhere' holds no run", self.report("nowhere", code=2).stderr)
        (self.run_folder("bad", [(1, {"a": 1.0})]) / "config.toml").write_text("[run\n")
        self.assertIn("config.toml", self.report("bad", code=4).stderr)
        self.run_folder("good", [(1, {"a": 1.0})])
        self.assertIn("report.html", self.report("good", "--out", "nowhere/report.html", code=4).stderr)
        self.assertFalse((self.folder / "report.html").exists())

    def test_many_marks_and_metrics(self):
        self.run_folder("many", [(step, {f"m{i}": float(step * i) for i in range(60)}) for step in range(1, 400)],
                        journal=[(step, "guard", "skip_step", f"{step}") for step in range(1, 301)] +
                                [(step, "guard", "skip_step", "again") for step in range(301, 400)])
        page = self.report("many")
        self.assertEqual(len(page.charts()), 60)
        self.assertLess(len(self.text.encode()), 3 << 20)
        chart = page.charts()["m3"]
        self.assertEqual(len(list(chart.all("path", "mark"))), 40)
        self.assertIn("261 more marks are in the journal below", chart.words())
        self.assertIn("101 more in", page.root.by_id("journal").words())

    def test_one_that_was_trained(self):
        self.train(SMALL)
        page = self.report("small")
        self.assertLessEqual({"val/accuracy", "val/loss", "samples_per_second"}, page.charts().keys())
        self.assertIn("completed", page.root.by_id("runs").words())
        self.assertIn("optimizer adamw", page.root.by_id("plugins").words())
        self.assertIn("backward", page.root.by_id("phases").words())

    def test_time_by_plugin_and_event(self):
        self.train(SMALL + '[[hooks]]\ntype = "ema"\n', "--set", "trainer.max_duration=200ba")
        (ema,) = [each for each in self.result()["plugins"] if each["name"] == "ema"]
        self.assertGreater(ema["events"]["after_step"], 0.0)
        self.assertAlmostEqual(sum(ema["events"].values()), ema["seconds"])
        rows = [next(row.all("th")).words() for row in self.report("small").root.by_id("plugins").all("tr")]
        self.assertEqual(rows[rows.index("hook ema") + 1], next(iter(ema["events"])))


class Compared(Runs):
    def two(self):
        self.run_folder("a", [(1, {"train/loss": 1.0, "val/accuracy": 0.5}), (2, {"train/loss": 0.25, "val/accuracy": 0.75})])
        self.run_folder("b", [(1, {"train/loss": 0.125, "lr": 0.1}), (2, {"train/loss": math.nan})], lr=0.2)

    def test_in_the_terminal(self):
        self.two()
        lines = [line.split() for line in self.host("runs", "compare", "a", "b").stdout.splitlines()]
        self.assertIn("train/loss 0.2500 at 2 nan at 2".split(), lines)
        self.assertIn("lowest 0.2500 at 2 0.1250 at 1".split(), lines)
        self.assertIn("val/accuracy 0.7500 at 2 -".split(), lines)
        self.assertIn("highest 0.7500 at 2 -".split(), lines)
        self.assertIn("lr - 0.1000 at 1".split(), lines)
        self.assertIn("optimizer.lr 0.1 0.2".split(), lines)
        self.assertNotIn("run.name", self.host("runs", "compare", "a", "b").stdout)

    def test_for_programs(self):
        self.two()
        all = json.loads(self.host("runs", "compare", "a", "b", "runs/a", "--format", "json").stdout)
        self.assertEqual([each["run"] for each in all["runs"]], ["a", "b"])  # each once
        (loss,) = [each for each in all["metrics"] if each["metric"] == "train/loss"]
        self.assertTrue(loss["lower_is_better"])
        self.assertEqual(loss["runs"][1], {"final": {"step": 2, "value": "nan"}, "best": {"step": 1, "value": 0.125}})
        self.assertEqual(all["differences"], [{"key": "optimizer.lr", "values": ["0.1", "0.2"]}])
        self.assertEqual(all["groups"], [{"label": "a", "runs": [0]}, {"label": "b", "runs": [1]}])

    def test_what_the_run_file_wants_counts(self):
        path = self.run_folder("a", [(1, {"val/accuracy": 0.5}), (2, {"val/accuracy": 0.75})])
        with open(path / "config.toml", "a") as file:
            file.write('[checkpoint]\nkeep_best = { metric = "val/accuracy", mode = "min" }\n')
        (metric,) = json.loads(self.host("runs", "compare", "a", "--format", "json").stdout)["metrics"]
        self.assertTrue(metric["lower_is_better"])
        self.assertEqual(metric["runs"][0]["best"]["step"], 1)

    def test_runs_alone_still_lists(self):
        self.two()
        self.assertIn("runs/a", self.host("runs").stdout)
        self.assertIn("runs/b", self.host("runs", "runs").stdout)


class Live(Runs):
    def test_where_the_time_goes(self):
        self.write("run.toml", SMALL)
        run = subprocess.Popen(self.command("train", "run.toml", "-q", "--set", "trainer.max_duration=100000ep", "--set",
                                            "trainer.eval_interval=50ep"), cwd=self.folder, env=self.environment())
        try:
            deadline = time.monotonic() + 60
            status = {"step": 0}
            while status["step"] < 5000 and time.monotonic() < deadline:
                time.sleep(0.2)
                done = subprocess.run(self.command("ctl", "small", "status", "--format", "json"), cwd=self.folder, text=True,
                                      capture_output=True, env=self.environment())
                status = json.loads(done.stdout) if done.returncode == 0 else status
            self.assertGreaterEqual(status["step"], 5000)
            seconds = {each["slot"]: each["seconds"] for each in status["slots"]}
            for slot in ("model", "loss", "optimizer", "data.train"):
                self.assertGreater(seconds[slot], 0.0, status)
            self.assertGreater(status["time"]["backward"], 0.0)
            self.assertAlmostEqual(sum(status["time"].values()), status["seconds"], delta=0.05 * status["seconds"])
            shown = self.host("monitor", "small", "--once").stdout
            self.assertRegex(shown, r"time  .*backward [\d.]+%")
            self.assertRegex(shown, r"optimizer +adamw +\S+ +0 +[\d.]+ +[\d.]+%")
            self.assertIn("train/loss, val/loss (o)", shown)
            self.assertIn("val/accuracy (o)", shown)
            self.assertRegex(self.host("ctl", "small", "status").stdout, r"time  .*backward [\d.]+%")
            self.host("ctl", "small", "stop")
            run.wait(60)
        finally:
            run.kill()
            run.wait()
        result = self.result()
        self.assertGreater(result["time"]["backward"], 0.0)
        self.assertAlmostEqual(sum(result["time"].values()), result["seconds"], delta=0.05 * result["seconds"])

    def test_a_timed_step_that_is_slower_than_the_others(self):
        """Step 8 alone is timed, and the hook sleeps in it."""
        self.write("run.toml", SMALL + f'[plugins]\npaths = ["{FAULTY}"]\n[[hooks]]\ntype = "slow"\nat = "micro_end"\nstep = 8\n')
        self.host("train", "run.toml", "-q")
        result = self.result()
        self.assertGreater(result["time"]["hooks"], 0.5 * result["seconds"])
        self.assertAlmostEqual(sum(result["time"].values()), result["seconds"], delta=0.05 * result["seconds"])
        (hook,) = [each for each in result["plugins"] if each["name"] == "slow"]
        self.assertAlmostEqual(hook["seconds"], result["time"]["hooks"])

    def test_runs_over_each_other(self):
        for i, name in enumerate(("first", "second")):
            self.run_folder(name, [(step, {"train/loss": 1.0 + i + 1 / step, "val/accuracy": 0.1 * step}) for step in range(1, 9)], lr=0.1 + i)
        shown = self.host("monitor", "first", "second", "--once", LC_ALL="C.UTF-8").stdout
        drawing = shown[shown.index("train/loss"):shown.index("val/accuracy")]
        rows = [line for line in drawing.splitlines() if "│" in line]
        heights = {letter: {i for i, line in enumerate(rows) if letter in line.split("│")[1]} for letter in "ab"}
        self.assertLess(max(heights["b"]), max(heights["a"]), shown)  # the higher loss lies above
        self.assertIn("first  killed", shown)
        self.assertRegex(shown, r"(?m)^b +2\.1250 +")


@unittest.skipUnless(CHROMIUM and numpy, "no chromium, or no NumPy and Pillow, here: the page is not looked at")
class Pictures(Runs):
    LIGHT = ((0x1f, 0x6f, 0xb4), (0xc2, 0x57, 0x1a), (0x1b, 0x7f, 0x56))
    DARK = ((0x6c, 0xb2, 0xf0), (0xf0, 0x96, 0x5a), (0x5f, 0xd3, 0xa2))

    def shot(self, width, *words):
        path = self.folder / "picture.png"
        visit((self.folder / "report.html").as_uri(), self.folder / "profile", f"--screenshot={path}", f"--window-size={width},900", *words)
        return numpy.asarray(Image.open(path).convert("RGB")).astype(int)

    def lines_in(self, pixels, colours):
        """How many level curves of each colour there are: rows of the picture with much of it, apart from each other. The edge of a
        line is paler than its colour; a pixel is of the one that it is nearest to."""
        away = numpy.stack([abs(pixels - colour).max(axis=2) for colour in colours])
        found = []
        for i in range(len(colours)):
            rows = ((away[i] < 70) & (away.argmin(axis=0) == i)).sum(axis=1) > 120
            found.append(int((rows & ~numpy.roll(rows, 1)).sum()))
        return found

    def test_curves_are_seen(self):
        for i, level in enumerate((1.0, 2.0, 3.0)):
            self.run_folder(f"run{i}", [(step, {"train/loss": level, "val/loss": level + 0.5}) for step in range(0, 1000, 5)], lr=0.1 * (i + 1))
        self.report("run0", "run1", "run2")
        for width in (400, 1400):
            for words, colours in (((), self.LIGHT), (("--blink-settings=preferredColorScheme=0",), self.DARK)):
                with self.subTest(f"{width} {words}"):
                    found = self.lines_in(self.shot(width, *words), colours)
                    if width == 400:  # one chart below the other: the second lies lower
                        self.assertTrue(all(count >= 1 for count in found), found)
                    else:  # beside each other, on other heights: each curve once a chart, at the same height as its frame is
                        self.assertEqual(found, [1, 1, 1])


if __name__ == "__main__":
    unittest.main()
