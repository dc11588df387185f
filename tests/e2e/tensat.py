"""tensat on the real executable: runs with and without, killed and resumed, swapped in and out; what is declined; the verb and its choices."""
import json
import os
import shutil
import unittest

from safetensors.numpy import load_file

from support.host import FAULTY, KILLER, SMALL, HostTest, KilledTest, planned, with_momentum

PLUGINS = ("--plugins", FAULTY)
QUICK = {"max_nodes": 400, "ilp_seconds": 0.3, "seconds": 2.0}
WORDS = [word for key, value in QUICK.items() for word in (f"--{key}", value)]
MLP = 'type = "mlp"\nlayers = [8, 16, 3]'


def branches(text):
    """A network of layers side by side, of which one is made: faster on any machine, as there are fewer calls."""
    return text.replace('type = "residual_mlp"\nwidth = 8\nblocks = 1', 'type = "branches"').replace(MLP, 'type = "branches"')


def tensat(**options):
    options = {"least": 0.0, **QUICK, **options}
    return '[[transforms]]\ntype = "tensat"\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())


WIDE = branches(SMALL)
LONG = branches(with_momentum(30, blocks=1))


class Cached:
    """The choices of the machine are those of the test."""

    def setUp(self):
        super().setUp()
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        self.addCleanup(lambda: os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before))

    def plan(self):
        return json.loads((self.folder / "runs/small/tensat.json").read_text())

    def log(self):
        return (self.folder / "runs/small/run.log").read_text()


class Trained(Cached, KilledTest):
    def test_it_trains_as_without_and_its_parameters_are_the_networks(self):
        plain = self.train(WIDE, *PLUGINS)
        weights = load_file(self.folder / "runs/small/model.safetensors")
        for executor in ("eager", "compiled"):
            with self.subTest(executor):
                found = self.train(WIDE + tensat() + f'[executor]\ntype = "{executor}"\n', *PLUGINS, "--overwrite")
                self.assertAlmostEqual(found["metrics"]["val/loss"], plain["metrics"]["val/loss"], places=5)
                merged = load_file(self.folder / "runs/small/model.safetensors")
                self.assertEqual(list(merged), list(weights))
                for name in weights:
                    self.assertLess(abs(merged[name] - weights[name]).max(), 1e-4)
                if executor == "eager":
                    self.assertTrue(self.plan()["taken"], self.plan()["reason"])
                    self.assertIn("another graph is taken, faster as a whole", self.log())
                    self.assertEqual(len(self.lines("journal.jsonl", "took another graph")), 1)
                    shown = self.host("model", "show", "run.toml", *PLUGINS).stdout
                    self.assertIn("Split" if "Split" in shown else "Concat", shown)
                    self.assertNotIn("branch3 ", shown)

    def test_losses_of_200_steps_are_those_without(self):
        text = branches(with_momentum(200, blocks=1))
        self.train(text + tensat(), *PLUGINS)
        self.assertTrue(self.plan()["taken"], self.plan()["reason"])
        shutil.copy(self.folder / "runs/small/tensat.json", self.folder / "plan.json")
        for executor in ("eager", "compiled"):
            with self.subTest(executor):
                found, graphs = [], []
                for more in ("", tensat(plan="plan.json")):
                    self.train(text + more + f'[executor]\ntype = "{executor}"\n', *PLUGINS, "--overwrite")
                    found.append([line["values"]["train/loss"] for line in self.lines("metrics.jsonl", "train")])
                    graphs.append(len(self.lines("journal.jsonl", "took another graph")))
                self.assertEqual([len(each) for each in found], [200, 200])
                self.assertEqual(graphs, [0, 1])  # its sums may be the same to the bit, as they are with AVX-512
                self.assertLess(max(abs(a - b) / a for a, b in zip(*found)), 1e-4)

    def test_two_runs_of_one_file_have_the_same_bits_and_one_search(self):
        first = self.train(WIDE + tensat(), *PLUGINS)
        self.assertIn("looks for a cheaper graph", self.log())
        chosen = self.plan()
        second = self.train(WIDE + tensat(), *PLUGINS, "--overwrite")
        self.assertNotIn("looks for a cheaper graph", self.log())
        self.assertEqual(second["digest"], first["digest"])
        self.assertEqual(self.plan(), chosen)

    def test_a_resume_has_it_to_the_bit_and_searches_no_more(self):
        text = LONG + tensat() + '[[hooks]]\ntype = "ema"\ndecay = 0.9\n' + KILLER
        expected = self.whole(text)
        taken = self.plan()
        self.assertTrue(taken["taken"], taken["reason"])
        shutil.rmtree(self.folder / "runs")
        self.killed_at(text, "before_step 9")
        self.assertEqual(self.plan()["chosen"], taken["chosen"])
        shutil.rmtree(self.folder / "cache")  # as on another machine
        self.killed_at(text, "before_step 16")
        self.assertEqual(self.end(text), expected)
        self.assertFalse((self.folder / "cache").exists())
        self.assertEqual(self.plan()["chosen"], taken["chosen"])

    def test_it_is_swapped_in_and_out(self):
        plain = self.train(LONG, *PLUGINS)["metrics"]["val/loss"]
        for text in (tensat() + planned(12, "transforms.tensat", "none", 0), '[[transforms]]\ntype = "none"\n' + planned(12, "transforms.none", "tensat", 0, least=0.0, **QUICK)):
            with self.subTest(text):
                found = self.train(LONG + text, *PLUGINS, "--overwrite")
                self.assertEqual([line["step"] for line in self.lines("journal.jsonl", "swap")], [12])
                self.assertAlmostEqual(found["metrics"]["val/loss"], plain, places=5)

    def test_ranks_take_the_same(self):
        plain = self.train(LONG, *PLUGINS)["metrics"]["val/loss"]
        found = self.train(LONG + tensat(), *PLUGINS, "--overwrite", "--ranks", 2)
        self.assertAlmostEqual(found["metrics"]["val/loss"], plain, places=4)


class Declined(Cached, HostTest):
    def test_what_is_small_or_computed_elsewise_stays_as_it_is(self):
        plain = self.train(SMALL)["digest"]
        for more, words in ((tensat().replace("least = 0.0\n", ""), "fewer than the 1e+06 of `least`"),
                            (tensat() + '[executor]\ntype = "pipelined"\n', 'the executor is "pipelined"')):
            text = SMALL.replace("adamw", "sgd") if "pipelined" in more else SMALL
            found = self.train(text + more, "--overwrite")
            self.assertIn(words, self.log())
            if "pipelined" not in more:
                self.assertEqual(found["digest"], plain)
            self.assertFalse((self.folder / "cache").exists())
            self.assertFalse((self.folder / "runs/small/tensat.json").exists())
        found = self.train(SMALL + tensat(), "--overwrite")  # one layer after another: nothing to merge
        self.assertEqual(found["digest"], plain)
        self.assertIn("the graph stays, nothing is won", self.log())
        self.assertFalse(self.plan()["taken"])
        found = self.train(WIDE + tensat(min_gain=0.9), *PLUGINS, "--overwrite")
        self.assertFalse(self.plan()["taken"])

    def test_options_that_are_wrong_are_refused(self):
        for options, words in ((dict(min_gain=2.0), "min_gain"), (dict(extractor="best"), "extractor"), (dict(plan="nowhere.json"), "nowhere.json")):
            self.write("run.toml", SMALL + tensat(**options))
            self.assertIn(words, self.host("train", "run.toml", "-q", code=2).stderr)
        self.write("odd.json", "{}")
        self.write("run.toml", SMALL + tensat(plan="odd.json"))
        self.assertIn("is no plan of tensat", self.host("train", "run.toml", "-q", code=4).stderr)


class Verb(Cached, HostTest):
    def test_it_reports_and_its_choice_is_taken(self):
        self.write("run.toml", WIDE)
        self.host("train", "run.toml", "-q", *PLUGINS)
        before = {path: path.read_bytes() for path in (self.folder / "runs").rglob("*") if path.is_file()}
        said = json.loads(self.host("tensat", "run.toml", "--format", "json", *WORDS, *PLUGINS).stdout)
        facts = said["facts"]
        self.assertTrue(facts["taken"], facts["reason"])
        self.assertEqual(facts["products of one input, groups"], 1)
        self.assertGreater(facts["e-nodes"], facts["e-classes"])
        self.assertEqual(facts["solver"], "optimal")
        self.assertEqual(facts["nodes that no rule knows"], 1)  # Flatten
        rows = {row["graph"]: row for row in said["rows"]} if isinstance(said["rows"][0], dict) else {row[0]: row for row in said["rows"]}
        self.assertEqual(set(rows), {"input", "chosen"})
        after = {path: path.read_bytes() for path in (self.folder / "runs").rglob("*") if path.is_file() and "tools" not in path.parts}
        self.assertEqual(after, before)
        shutil.copy(self.folder / "runs/small/tools/tensat/plan.json", self.folder / "plan.json")
        self.train(WIDE + tensat(plan="plan.json"), *PLUGINS, "--overwrite")
        self.assertEqual(self.plan()["chosen"], facts["chosen graph"])
        self.assertNotIn("looks for", self.log())
        text = WIDE.replace('type = "branches"', 'type = "branches"\ncount = 3') + tensat(plan="plan.json")
        self.assertIn("is of another network", self.train(text, *PLUGINS, "--overwrite", code=2)["printed"])
        self.write("run.toml", WIDE)
        again = json.loads(self.host("tensat", "run.toml", "--format", "json", *WORDS, "--k_multi", 0, "--extractor", "greedy", "--out", "other.json", *PLUGINS,
                                     "--weights", "initial").stdout)["facts"]
        self.assertEqual(again["products of one input, groups"], 0)
        self.assertEqual(again["solver"], "not run")
        self.assertTrue((self.folder / "other.json").exists())

    def test_it_goes_on_where_nothing_can_be_kept_and_says_so(self):
        self.write("run.toml", WIDE)
        os.environ["XDG_CACHE_HOME"] = "/proc/nowhere"
        done = self.host("tensat", "run.toml", "--format", "json", *WORDS, "--out", "plan.json", *PLUGINS, "--weights", "initial")
        facts = json.loads(done.stdout)["facts"]
        self.assertIn("/proc/nowhere/trainyard/tensat: cannot be written", facts["prices kept in"])
        self.assertIn("cannot be written, so that nothing could be kept", done.stderr)
        self.assertGreater(facts["prices measured"], 0)
        self.assertTrue((self.folder / "plan.json").exists())
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        kept = json.loads(self.host("tensat", "run.toml", "--format", "json", *WORDS, *PLUGINS, "--weights", "initial").stdout)["facts"]
        self.assertEqual(kept["prices kept in"], str(self.folder / "cache/trainyard/tensat"))


if __name__ == "__main__":
    unittest.main()
