"""Boosted trees in the real executable: what loads weights takes trees of any number, a run that is killed ends with the bits of one
that was not, and what trees cannot do is refused by name."""
import json
import unittest

from support.host import FAULTY, KILLER, SMALL, HostTest, KilledTest, planned, tensors

TREES = SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "trees"\nmax_leaves = 5\nrow_sample = 0.8\ncolumn_sample = 0.5').replace(
    'type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 0.3').replace("batch_size = 16, shuffle", "batch_size = 64, micro_batch_size = 32, shuffle").replace(
    '"2ep"', '"12ba"').replace('"1ep"', '"3ba"').replace("[loss]", '[executor]\ntype = "boosting"\n[loss]') + """
[checkpoint]
type = "full"
interval = "4ba"
keep_last = 3
"""


class Killed(KilledTest):
    def test_a_killed_run_ends_with_the_same_bits(self):
        trees = TREES.replace("seed = 3", 'seed = 3\nresume = "auto"') + KILLER
        constants = trees.replace('type = "trees"\nmax_leaves = 5\nrow_sample = 0.8\ncolumn_sample = 0.5', 'type = "constants"')
        for text in (trees, constants):  # the host knows neither
            whole = self.whole(text)
            self.assertEqual(self.killed(text, "batch_end 1", "before_step 6", "after_checkpoint 8", "eval_batch_end 9"), whole)
        floats, rounds, classes = 4, 12, 3
        self.assertEqual(len(tensors(self.folder / "runs/small/model.safetensors")["constants"]), floats * rounds * classes)


class BoostedTrees(HostTest):
    def trained(self, name, *sets, text=TREES):
        words = [word for each in sets for word in ("--set", each)]
        return self.train(text, "--set", f"run.output_dir={self.folder / name}", *words, run=name)

    def size(self, name):
        """Of what has grown, in bytes."""
        return len(tensors(self.folder / name / "model.safetensors")["trees"])

    def test_the_trees_are_the_state(self):
        metrics = self.trained("run")["metrics"]
        self.assertEqual(set(tensors(self.folder / "run/model.safetensors")), {"trees"})
        found = json.loads(self.host("eval", "run.toml", "--set", f"run.output_dir={self.folder / 'run'}", "--format", "json").stdout)
        self.assertAlmostEqual(found["val/loss"], metrics["val/loss"], places=6)
        # Another run begins with them, and adds its own.
        self.trained("more", "run.load=weights", f"run.resume={self.folder / 'run'}", "trainer.max_duration=2ba", "trainer.eval_interval=1ba")
        self.assertGreater(self.size("more"), self.size("run"))
        listed = json.loads(self.host("ckpt", "ls", self.folder / "run", "--format", "json").stdout)
        self.assertEqual([each["step"] for each in listed], [4, 8, 12])
        self.assertLess(listed[0]["bytes"], listed[2]["bytes"])
        self.assertIn("U8 [", self.host("ckpt", "inspect", self.folder / "run").stdout)
        self.host("ckpt", "verify", self.folder / "run")

    def test_swaps_go_on_with_the_trees_and_a_rollback_is_to_fewer(self):
        faulty = '[[hooks]]\ntype = "faulty"\nstep = 100000\nway = "throw"\n'
        whole = self.train(TREES + faulty, "--plugins", FAULTY)["digest"]["model"]
        back = self.train(TREES + faulty + planned(5, "hooks.faulty", "faulty", 6, step=8, way="throw"), "--plugins", FAULTY, "--overwrite")
        self.assertEqual(back["digest"]["model"], whole)
        self.assertEqual(len(self.lines("journal.jsonl", "swap_rolled_back")), 1)
        swapped = self.train(TREES + faulty + planned(5, "model", "trees", 0, max_leaves=3), "--plugins", FAULTY, "--overwrite")
        self.assertNotEqual(swapped["digest"]["model"], whole)
        self.assertEqual(len(self.lines("journal.jsonl", "swap")), 1)

    def test_the_rate_is_that_of_the_schedule(self):
        half = "[schedule]\ntype = \"constant\"\nvalue = 0.5\n"
        digests = [self.trained(f"rate{i}", f"optimizer.lr={rate}", text=TREES + schedule)["digest"]["model"]
                   for i, (rate, schedule) in enumerate(((0.3, ""), (0.6, half), (0.6, "")))]
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_the_best_trees_are_fewer(self):
        """At a rate far too high the loss of other rows rises soon."""
        best = self.trained("best", "optimizer.lr=3.0", "trainer.restore_best=true", "trainer.eval_interval=1ba",
                            'checkpoint.keep_best={ metric = "val/loss" }')
        self.assertLess(best["weights_step"], 12)
        self.trained("last", "optimizer.lr=3.0", "trainer.eval_interval=1ba")
        self.assertLess(self.size("best"), self.size("last"))

    def test_new_rows_are_predicted(self):
        rows = "".join(f"{','.join(str((row * 7 + column * 3) % 11) for column in range(8))},{(row * 7) % 11 // 4}\n" for row in range(44))
        self.write("rows.csv", rows)
        text = TREES.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3', 'type = "csv"\npath = "rows.csv"\nclasses = 3')
        text = text.replace("size = 64, batch_size = 64, micro_batch_size = 32", "batch_size = 44").replace("size = 32, ", "")
        self.trained("run", text=text)
        self.write("new.csv", "\n".join(line.rpartition(",")[0] for line in rows.splitlines()) + "\n")
        told = self.host("predict", self.folder / "run", "new.csv").stdout
        self.assertGreaterEqual(len(told.splitlines()), 44)
        self.assertIn("graph", self.host("export", self.folder / "run", "--to", "onnx", code=2).stderr)

    def test_what_trees_cannot_do_is_refused(self):
        self.write("run.toml", TREES)
        for sets, names in ((["executor.type=eager"], ["trees", "executor.type = boosting"]),
                            (["model.type=mlp", "model.layers=[8, 3]"], ["boosting", "mlp", "an ensemble that grows"]),
                            (["optimizer.momentum=0.9"], ["boosting", "optimizer.momentum = 0"]),
                            (["optimizer.type=adam"], ["boosting", "optimizer.type = sgd"]),
                            (['optimizer.groups=[{ match = ["*"], lr = 1.0 }]'], ["boosting", "optimizer.groups"]),
                            (["trainer.precision=bf16-mixed"], ["boosting", "trainer.precision"]),
                            (["trainer.precision=fp64"], ["trees", "single precision"]),
                            (["trainer.grad_clip={ type = \"norm\", max = 1.0 }"], ["boosting", "trainer.grad_clip"]),
                            (["model.dropout={ type = \"standard\", p = 0.1 }"], ["boosting", "model.dropout"]),
                            (["run.device=cuda"], ["trees", "run.device = cpu"]),
                            (['hooks=[{ type = "ema" }]'], ["ema", "trees"]),
                            (['hooks=[{ type = "certified_loss" }]'], ["certified_loss", "trees"])):
            if "model.type=mlp" in sets:
                self.write("run.toml", TREES.replace("max_leaves = 5\nrow_sample = 0.8\ncolumn_sample = 0.5\n", ""))
            done = self.host("validate", "run.toml", *(word for each in sets for word in ("--set", each)), code=2)
            for name in names:
                self.assertIn(name, done.stderr + done.stdout, sets)
            self.write("run.toml", TREES)
        done = self.host("validate", "run.toml", "--ranks", "2", code=2)
        self.assertIn("one rank", done.stderr + done.stdout)
        done = self.host("validate", "run.toml", "--level", "build", "--set", "model.max_leaves=0", code=2)
        self.assertIn("bound one of them", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
