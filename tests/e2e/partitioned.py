"""The executor partitioned: whatever cuts a step, its run ends with the digest of eager's on one thread, also killed, swapped and on two
ranks; where it takes the run's threads, eager's on these; and it says what it does not cut."""
import json
import os
import shutil
import unittest

from support.host import FAULTY, KILLER, SMALL, KilledTest, planned

LONG = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace('"2ep"', '"40ba"').replace('"1ep"', '"16ba"').replace(
    "[[logging.sinks]]", '[checkpoint]\ntype = "full"\ninterval = "9ba"\n[logging]\ninterval = "1ba"\n[[logging.sinks]]')
MLP, ROWS = 'type = "mlp"\nlayers = [8, 16, 3]', 'kind = "classification"\nshape = [8]\nclasses = 3'
RESNET = LONG.replace(MLP, 'type = "resnet"\ndepth = 8\nwidth = 4\nshortcut = "projection"').replace(
    ROWS, 'kind = "classification"\nshape = [3, 8, 8]\nclasses = 3').replace("batch_size = 16, shuffle", "batch_size = 16, micro_batch_size = 8, shuffle").replace("size = 64", "size = 60")
GPT = LONG.replace(MLP, 'type = "gpt"\nn_layer = 2\nn_head = 2\nd_model = 8').replace(
    ROWS, 'kind = "language"\nseq_len = 6\nvocabulary = 9') + '[model.dropout]\ntype = "standard"\np = 0.2\n'


def cut(algorithm="heft", when="always", **options):
    lines = "".join(f"{name} = {value}\n" for name, value in options.items())
    return f'[executor]\ntype = "partitioned"\nwhen = "{when}"\nalgorithm = "{algorithm}"\n{lines}'


def swap(at, algorithm, **options):
    return planned(at, "executor", "partitioned", 1, when="always", algorithm=algorithm, **options)


class Partitioned(KilledTest):
    ends = {}  # of eager, by its file

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = str(self.cache)
        self.addCleanup(lambda: os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before))

    def log(self):
        return (self.folder / "runs/small/run.log").read_text()

    def eager(self, text):
        if text not in self.ends:
            self.ends[text] = self.whole(text)
        return self.ends[text]

    def test_whatever_cuts_it_a_run_ends_with_the_bits_of_one_thread(self):
        """Each way for ten steps of a run, and eager in between."""
        swaps = (swap(8, "wb_libra", weights="bytes", order="bfs") + swap(16, "metis") + planned(24, "executor", "eager", 1)
                 + swap(28, "random", trace_steps=1) + swap(34, "ebv", order="degrees"))
        for name, text in {"residual": RESNET, "attention and dropout": GPT}.items():
            with self.subTest(name):
                expected = self.eager(text)
                self.assertEqual(self.whole(text + cut("heft") + swaps), expected)
                self.assertEqual(len(self.lines("journal.jsonl", "swap")), 5)
                tables = self.log().split("nodes, 2 clusters: measured")[1:]
                self.assertEqual(len(tables), 5)
                for algorithm, table in zip(("heft", "wb_libra", "metis", "random", "ebv"), tables):
                    for row in (algorithm, "metis", "heft", "random"):  # the honest table
                        self.assertRegex(table, rf"{row} .*the most [\d.]+ times the mean; predicted \d+ us, [\d.]+x of one thread's")

    def test_killed_and_swapped_it_ends_with_them_too(self):
        expected = self.eager(RESNET)
        text = RESNET + KILLER + swap(10, "wb_libra") + swap(21, "metis") + cut("metis")
        self.assertEqual(self.whole(text), expected)
        self.assertEqual(len(self.lines("journal.jsonl", "swap")), 2)
        self.assertEqual(self.killed(text, "before_step 2", "before_step 12", "before_step 25"), expected)

    def test_two_ranks(self):
        text = RESNET.replace("micro_batch_size = 8", "micro_batch_size = 4").replace("40ba", "16ba")
        digests = set()
        for executor in ("", cut(), cut(clusters=1)):
            self.write("run.toml", text + executor)
            self.host("train", "run.toml", "-q", "--overwrite", "--ranks", "2")
            digests.add(json.dumps(self.result()["digest"], sort_keys=True))
        self.assertEqual(len(digests), 1)

    def test_with_one_thread_what_gains_nothing_is_left_to_eager_and_said(self):
        expected = self.eager(LONG)
        self.assertEqual(self.whole(LONG + cut(when="gains")), expected)
        self.assertIn("it runs as eager does", self.log())
        self.assertIn("left to eager", (self.folder / "runs/small/journal.jsonl").read_text())
        said = self.host("plan", "run.toml").stdout.partition("Executor\n")[2]
        self.assertRegex(said, r"a step of 16 samples has \d+ nodes and \d+ tasks; .*cut by heft .*the most .* times the mean; predicted .*estimates decide")

    def test_the_fastest_way_is_that_of_the_run_until_its_end(self):
        one = GPT.replace("40ba", "15ba")
        two = one.replace("intra_op = 1", "intra_op = 2")
        ends = {"threads": self.eager(two)[0], "alone": self.eager(one)[0]}
        ends["clusters"] = ends["alone"]
        self.assertNotEqual(ends["threads"], ends["alone"])  # else nothing is seen here
        text = two + KILLER + cut(when="gains")
        digest, _ = self.whole(text)
        (file,) = self.cache.rglob("*.txt")
        kept = file.read_text()
        way = kept.splitlines()[1]
        self.assertEqual(digest, ends[way])
        said = self.host("plan", "run.toml", "--plugins", FAULTY).stdout.partition("Executor\n")[2]
        self.assertIn("the first step tries what is faster", said)
        # Where other tests had the cores in all attempts at the trial, the run says so, and estimates chose.
        disturbed = "by estimates, as other programs had the cores" in self.log()
        if disturbed:
            self.assertIn("which was made 3 times", self.log())
        how = r"by estimates, as other programs had the cores" if disturbed else r"a pass took .* us on one thread, \d+ us on the run's 2 threads"
        for place in (self.log(), (self.folder / "runs/small/journal.jsonl").read_text()):
            self.assertRegex(place, r"chose .*\(" + how)
        metrics = self.result()["metrics"]
        self.assertEqual(metrics["partitioned/way"], ("clusters", "alone", "threads").index(way))
        self.assertEqual("partitioned/run_threads_us" in metrics, not disturbed)
        if not disturbed:
            self.assertGreater(metrics["partitioned/run_threads_us"], 0)
        # Another choice, as another machine may make it; this one's is there again when the run goes on.
        other = "alone" if way == "threads" else "threads"
        file.write_text(kept.replace(f"\n{way}\n", f"\n{other}\n", 1))
        shutil.rmtree(self.folder / "runs")
        self.killed_at(text, "before_step 12")
        file.write_text(kept)
        self.assertEqual(self.end(text)[0], ends[other])
        self.assertIn("the run goes on with", self.log())

    def test_more_clusters_than_cores_are_said(self):
        self.whole(RESNET.replace("40ba", "2ba") + cut(clusters=64))
        self.assertRegex(self.log(), r"executor.clusters is 64, and there (are \d+ cores|is 1 core): the step has as many clusters")

    def test_what_it_cannot_do_is_refused_with_both_names(self):
        mixed = LONG.replace("[trainer]", '[trainer]\nprecision = "bf16-mixed"')
        for text, named in ((mixed, "precision"), (LONG.replace("[run]", '[run]\ndevice = "cuda:0"'), "device")):
            with self.subTest(named):
                self.write("run.toml", text + cut())
                said = self.host("validate", "run.toml", code=2)
                self.assertIn("partitioned", said.stdout + said.stderr)
                self.assertIn(named, said.stdout + said.stderr)
        for line, word in (('lambda = -1', "lambda"), ('clusters = 0', "clusters"), ('algorithm = "wb_metis"', "algorithm"), ('trace_steps = 0', "trace_steps")):
            with self.subTest(line):
                self.write("run.toml", LONG + f'[executor]\ntype = "partitioned"\n{line}\n')
                said = self.host("validate", "run.toml", code=2)
                self.assertIn(word, said.stdout + said.stderr)


if __name__ == "__main__":
    unittest.main()
