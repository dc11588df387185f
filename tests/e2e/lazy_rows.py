"""Rows that lazy_adam has left behind: whoever looks at the weights sees them as if every row had taken every step. With window = 1 no
row is ever behind; with a large one they are unless somebody has them catch up, and all that comes out is to be the same."""
import json
import unittest

from support.host import SMALL, HostTest, tensors

RUN = (SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"')
       .replace('type = "mlp"\nlayers = [8, 16, 3]',
                'type = "slide"\nhidden = 16\nk = 3\nl = 4\nactive = 8\nmin_active = 8\nrehash = { every_steps = 4 }')
       .replace('kind = "classification"\nshape = [8]\nclasses = 3',
                'layout = "synthetic"\nfeatures = 300\nclasses = 90\nprototype = 6\nown = 4\nnoise = 3')
       .replace('type = "synthetic"', 'type = "xc"')
       .replace('type = "cross_entropy"', 'type = "cross_entropy"\nmulti_label = true')
       .replace('type = "accuracy"', 'type = "precision_at_k"\nk = [1]')
       .replace('type = "adamw"', 'type = "lazy_adam"\nweight_decay = 0.1')
       .replace("size = 64, batch_size = 16", "size = 160, batch_size = 16"))
SAVED = RUN + '[checkpoint]\ntype = "full"\ninterval = "7ba"\nkeep_last = 9\n'
WINDOWS = ("optimizer.window=1", "optimizer.window=500")


class LazyRows(HostTest):
    def both(self, text, *words):
        """What runs with and without rows behind have left: metrics of evaluations, and the weights of all checkpoints."""
        found = []
        for window in WINDOWS:
            self.train(text, "--overwrite", "--set", window, *words)
            folder = self.folder / "runs" / "small"
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            values = [line["values"] for line in lines if line["what"] == "eval"]
            saved = {path.parent.name: tensors(path) for path in folder.glob("checkpoints/step-*/model.safetensors")}
            averages = {path.parent.name: {name: value for name, value in tensors(path).items() if "average/" in name}
                        for path in folder.glob("checkpoints/step-*/state.safetensors")}
            found.append({"values": values, "weights": saved, "averages": averages})
        return found

    def test_evaluations_and_checkpoints(self):
        never, behind = self.both(SAVED)
        self.assertEqual(len(behind["weights"]), 3)
        self.assertEqual(len(behind["values"]), 2)
        self.assertTrue(behind == never)  # the difference of so many numbers takes minutes to print

    def test_averages_of_weights(self):
        for hook, words in (("ema", ()), ("ema", ("--set", "model.precision=bf16")), ("swa\"\nstart = \"1ba", ())):
            with self.subTest(hook, words=words):
                never, behind = self.both(SAVED + f'[[hooks]]\ntype = "{hook}"\n', *words)
                self.assertTrue(behind == never)  # the difference of so many numbers takes minutes to print
                if hook == "ema":
                    self.assertEqual([len(each) for each in behind["averages"].values()], [4] * 3)

    def test_swaps_to_another_optimizer_and_to_all_logits(self):
        swaps = {"optimizer": 'type = "adagrad"\noptions = { lr = 0.01, weight_decay = 0.0 }\n', "model": 'output = "full"\n'}
        for slot, lines in swaps.items():
            with self.subTest(slot):
                never, behind = self.both(SAVED + f'[[swap]]\nat = "9ba"\nslot = "{slot}"\n{lines}')
                self.assertTrue(behind == never)  # the difference of so many numbers takes minutes to print

    def test_a_run_that_is_gone_on_with_ends_the_same(self):
        for words in ((), ("--set", "model.output=full"), ("--set", "model.precision=bf16")):
            expected = self.train(SAVED, "--overwrite", "--set", WINDOWS[1], *words)["digest"]
            self.train(SAVED, "--overwrite", "--set", WINDOWS[1], "--set", "trainer.max_wall_time=0.000001s", *words, code=75)
            self.assertEqual(self.train(SAVED, "--set", WINDOWS[1], *words)["digest"], expected)


if __name__ == "__main__":
    unittest.main()
