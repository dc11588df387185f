"""Graphs and sparse samples through the real executable: what keeps their data, and what is refused of it."""
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import unittest

from support.host import BUILD, DATA, SMALL, SOURCE, SPARSE, HostTest

GRAPH = SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "sage"\nlayers = 1\nhidden = 8').replace(
    'type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
    'type = "graph"\nlayout = "synthetic"\nfanouts = [3]\nsynthetic = { nodes = 60, edges = 200, classes = 3, features = 4 }').replace(
    "size = 64, ", "").replace("size = 32, ", "")
LINKS = GRAPH.replace('"cross_entropy"', '"bce_with_logits"').replace("fanouts = [3]", 'fanouts = [3]\ntask = "edge"').replace(
    '"accuracy"', '"auc"')
ROWS = "4 6 5\n1,4 0:1 3:0.25\n2 5:1\n3,0 1:1 2:2\n1 4:1\n"


class Keep(HostTest):
    def keep(self, text, code=0):
        self.write("run.toml", text)
        done = self.host("keep", "run.toml", "--format", "json", code=code)
        return done if code else json.loads(done.stdout)["rows"]

    def test_a_graph_is_one_file_for_its_splits_and_trains_to_the_same_bits(self):
        expected = self.train(GRAPH)["digest"]
        (self.folder / "shelf").mkdir()
        text = GRAPH.replace("fanouts", 'keep_in = "shelf"\nfanouts').replace('"small"', '"kept"')
        rows = self.keep(text)
        self.assertEqual([(row["split"], row["made"]) for row in rows], [("train", "now"), ("val", "now")])
        (file,) = (self.folder / "shelf").iterdir()
        for row in rows:
            self.assertTrue(pathlib.Path(self.folder, row["file"]).samefile(file))
            self.assertEqual(row["sha256"], hashlib.sha256(file.read_bytes()).hexdigest())
            self.assertEqual(row["bytes"], file.stat().st_size)
        self.assertFalse((self.folder / "runs/kept").exists())  # nothing was trained
        self.assertEqual([row["made"] for row in self.keep(text)], ["before", "before"])
        self.host("train", "run.toml", "-q")
        self.assertEqual(self.result("runs/kept")["digest"], expected)
        file.write_bytes(file.read_bytes()[:-1])
        self.assertIn("the kept graph is damaged: remove the file", self.keep(text, code=4).stderr)

    def test_sparse_samples_are_a_file_a_split(self):
        self.write("rows.txt", ROWS)
        (self.folder / "shelf").mkdir()
        text = SPARSE.replace('type = "xc"', 'type = "xc"\nkeep_in = "shelf"').replace(
            "val = { batch_size", "val = { skip = 2, batch_size")
        rows = self.keep(text)
        self.assertEqual([row["made"] for row in rows], ["now", "now"])
        self.assertEqual(len({row["file"] for row in rows}), 2)
        self.assertEqual(len(list((self.folder / "shelf").iterdir())), 2)

    def test_what_cannot_be_kept(self):
        self.assertIn("set data.keep_in", self.keep(GRAPH, code=2).stderr)
        self.assertIn("has no form to be kept in", self.keep(SMALL, code=2).stderr)
        text = GRAPH.replace("fanouts", 'keep_in = "none"\nfanouts')
        self.assertIn("none does not exist", self.keep(text, code=2).stderr)


class Folds(HostTest):
    def refused(self, text, *expected):
        self.write("run.toml", text)
        said = self.host("train", "run.toml", "-q", code=2).stderr
        for word in expected:
            self.assertIn(word, said)

    def test_a_fold_of_edges_that_carry_messages_is_no_test(self):
        for take in ("fold 0 of 5", "all but fold 1 of 5"):
            self.refused(LINKS.replace("train = {", f'train = {{ take = "{take}",'), f'data.train.take = "{take}" is no honest test',
                         "data.shares")

    def test_other_parts_and_other_samples_may_be_taken(self):
        for text, split, take in ((LINKS, "train", "first 100"), (LINKS, "val", "fold 0 of 2"), (GRAPH, "train", "fold 0 of 2"),
                                  (LINKS.replace("fanouts", 'targets = "classes"\nfanouts').replace("bce_with_logits", "cross_entropy")
                                   .replace('"auc"', '"accuracy"'), "train", "fold 0 of 2")):
            with self.subTest(take=take, split=split):
                self.assertEqual(self.train(text.replace(f"{split} = {{", f'{split} = {{ take = "{take}",'), "--overwrite")["status"], "completed")


class Arrays(HostTest):
    def test_files_of_numpy_train_to_the_same_bits_in_either_order_of_their_elements(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        random = numpy.random.default_rng(1)
        masks = random.random((10, 40)) < 0.5
        arrays = {"node_features": random.standard_normal((40, 4), dtype="f4"), "node_labels": numpy.arange(40) % 3,
                  "edges": random.integers(0, 40, (90, 2)), "train_masks": masks, "val_masks": ~masks}
        text = GRAPH.replace('layout = "synthetic"', 'layout = "npz"\npath = "graph.npz"').replace(
            GRAPH[GRAPH.index("synthetic = {"):GRAPH.index("}", GRAPH.index("synthetic = {")) + 1], "")
        digests = set()
        for save, order in ((numpy.savez, numpy.ascontiguousarray), (numpy.savez_compressed, numpy.asfortranarray)):
            save(self.folder / "graph.npz", **{name: order(array) for name, array in arrays.items()})
            digests.add(self.train(text, "--overwrite")["digest"]["model"])
        self.assertEqual(len(digests), 1)


class Change(HostTest):
    def test_fanouts_and_threads_change_in_the_middle_of_an_epoch_and_no_batch_is_lost_or_repeated(self):
        """Both by a stop and a resume with other options; fanouts also by swaps in a run that goes on."""
        text = (GRAPH.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("batch_size = 16, shuffle", "batch_size = 5, shuffle") +
                f'[checkpoint]\ntype = "full"\n[plugins]\npaths = ["{BUILD / "tests/faulty"}"]\n[[hooks]]\ntype = "witness"\nfile = "seen"\n')

        def seen():
            return (self.folder / "seen").read_text().splitlines()

        alone = self.train(text)["digest"]["model"]
        expected = seen()
        for part in (expected[:len(expected) // 2], expected[len(expected) // 2:]):
            samples = [sample for line in part for sample in line.split()[1:]]
            self.assertEqual(len(samples), len(set(samples)))
        (self.folder / "seen").unlink()
        shutil.rmtree(self.folder / "runs")
        stop = ("--set", "trainer.max_wall_time=0.000001s")  # after one step, with a checkpoint
        self.train(text, *stop, code=75)
        self.train(text, *stop, "--set", "data.workers=2", "--set", "data.fanouts=[2]", code=75)
        self.train(text, "--set", "data.workers=1", "--set", "data.prefetch=4", "--set", "data.fanouts=[-1]")
        self.assertEqual(seen(), expected)
        (self.folder / "seen").unlink()
        shutil.rmtree(self.folder / "runs")
        swaps = "".join(f'[[swap]]\nat = "{at}ba"\nslot = "data"\nwatch = "0ba"\n{options}\n'
                        for at, options in ((3, "fanouts = [2]"), (7, "fanouts = [-1]")))
        result = self.train(text + swaps)
        self.assertEqual(seen(), expected)
        self.assertEqual([(line["step"], line["what"]) for line in self.lines("journal.jsonl", "swap", "swap_refused", "swap_rolled_back")],
                         [(3, "swap"), (7, "swap")])
        self.assertNotEqual(result["digest"]["model"], alone)  # the neighbours are others


class Inference(HostTest):
    """Ten draws of 20, 20 and 20 neighbours against all of them, by a model of three layers."""

    def test_sampled_neighbours_say_what_all_say(self):
        self.holds("cora_planetoid", SOURCE / "configs/cora_sage.toml", 60)

    @unittest.skipUnless(os.environ.get("TRAINYARD_LONG"), "takes minutes: TRAINYARD_LONG=1")
    def test_sampled_neighbours_of_tolokers_say_what_all_say(self):
        """A node has 88 neighbours here, and 4 in Cora."""
        self.holds("heterophilous/tolokers.npz", SOURCE / "configs/minesweeper_sage.toml", 40, "metrics=[{type=\"accuracy\"}]",
                   "data.path=${run.data}/graph/heterophilous/tolokers.npz", "data.train.batch_size=1000", "data.test.batch_size=500")

    def holds(self, data, config, epochs, *more):
        if not (DATA / "graph" / data).exists():
            self.skipTest(f"graph/{data} is not here")
        words = [word for each in ("model.layers=3", f"run.output_dir={self.folder}/run", *more) for word in ("--set", each)]
        self.host("train", config, "-q", *words, "--set", "data.fanouts=[10,10,10]", "--set", f"trainer.max_duration={epochs}ep",
                  "--set", f"trainer.eval_interval={epochs}ep", timeout=1800, TRAINYARD_DATA=str(DATA))

        def accuracy(fanout, seed):
            done = self.host("eval", config, "--weights", self.folder / "run/model.safetensors", "--format", "json", *words, "--set",
                             f"data.fanouts=[{fanout},{fanout},{fanout}]", "--set", f"run.seed={seed}", TRAINYARD_DATA=str(DATA))
            return 100 * json.loads(done.stdout)["test/accuracy"]

        exact = accuracy(-1, 1)
        drawn = [accuracy(20, seed) for seed in range(1, 11)]
        print(f"all neighbours {exact:.2f} %, ten draws {statistics.mean(drawn):.2f} +- {statistics.stdev(drawn):.2f}")
        self.assertGreater(len(set(drawn)), 1)  # they are draws
        self.assertLessEqual(abs(statistics.mean(drawn) - exact), 0.3)
        self.assertLessEqual(statistics.stdev(drawn), 0.3)


if __name__ == "__main__":
    unittest.main()
