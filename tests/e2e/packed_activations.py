"""The transform packed_activations in whole runs: codecs and no codec, kills, ranks, precisions, executors, other programs."""
import unittest

from safetensors.numpy import load_file

from support.host import KILLER, KilledTest, planned, with_momentum

LONG = with_momentum(30, blocks=1).replace('type = "residual_mlp"\nwidth = 8\nblocks = 1', 'type = "mlp"\nlayers = [8, 96, 48, 3]')
PLAIN = '[[transforms]]\ntype = "packed_activations"\n'
PACKED = PLAIN + 'codec = { type = "boveda" }\n'


class PackedActivations(KilledTest):
    def weights(self, text, *more):
        self.train(text, "--overwrite", *more)
        return {name: value.tobytes() for name, value in load_file(self.folder / "runs/small/model.safetensors").items()}

    def metric(self, name):
        return [line["values"][name] for line in self.lines("metrics.jsonl", "train")]

    def test_codecs_give_the_weights_of_plain_bytes(self):
        for more in ("", '[trainer]\nprecision = "bf16-mixed"\n', '[model.dropout]\ntype = "standard"\n'):
            text = LONG
            if more.startswith("[trainer]"):
                text, more = LONG.replace("[trainer]\n", more), ""
            with self.subTest(text=text, more=more):
                whole, plain = self.weights(text + more), self.weights(text + more + PLAIN)
                self.assertNotEqual(whole, plain)
                bytes_plain, bytes_whole = self.metric("activations/bytes"), self.metric("activations/whole_bytes")
                self.assertEqual(self.weights(text + more + PACKED), plain)
                self.assertEqual(self.metric("activations/whole_bytes"), bytes_whole)
                self.assertLess(sum(self.metric("activations/bytes")), 0.95 * sum(bytes_plain))
                self.assertEqual(self.weights(text + more + PLAIN + 'codec = { type = "zstd" }\n'), plain)

    def test_the_log_says_what_is_lossy(self):
        self.train(LONG + PACKED)
        self.assertRegex((self.folder / "runs/small/run.log").read_text(),
                         r"2 activations are kept for backward in 8 bits a value, which is lossy \(affine, blocks of 4096\), and packed by a "
                         r"codec, which is not: \d+ bytes in place of 9216 \(0\.")

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        expected = self.whole(LONG + PACKED + KILLER)
        self.assertEqual(self.killed(LONG + PACKED + KILLER, "before_step 9", "before_step 20"), expected)

    def test_ranks(self):
        plain = self.weights(LONG + PLAIN, "--ranks", 2)
        self.assertEqual(self.weights(LONG + PACKED, "--ranks", 2), plain)

    def test_what_is_evaluated_and_predicted_is_whole(self):
        self.train(LONG + PACKED)
        said = self.host("eval", "runs/small").stdout
        self.host("predict", "runs/small", "--out", "packed.safetensors")
        self.write("whole.toml", LONG)
        self.host("predict", "whole.toml", "--weights", "runs/small/model.safetensors", "--out", "whole.safetensors")
        self.assertEqual((self.folder / "packed.safetensors").read_bytes(), (self.folder / "whole.safetensors").read_bytes())
        self.assertNotIn("lossy", said)

    def test_executors(self):
        expected = self.weights(LONG + PACKED)
        compiled = '[executor]\ntype = "compiled"\n'
        self.assertEqual(self.weights(LONG + PACKED + compiled), expected)
        self.assertIn("run as eager does", (self.folder / "runs/small/run.log").read_text())
        self.assertIn("needs executor.type != compiled", self.host("validate", "run.toml").stderr.replace("does all it can only with", "needs"))
        self.assertEqual(self.weights(LONG + PACKED + planned(9, "executor", "compiled", 0) + planned(18, "executor", "eager", 0)), expected)
        self.assertEqual(len(self.metric("activations/bytes")), 30)

    def test_what_cannot_be_is_refused_with_both_names(self):
        for text, names in ((LONG + '[executor]\ntype = "wavelet"\n', ["wavelet"]), (LONG + '[executor]\ntype = "pipelined"\nstages = 2\n', ["pipelined"]),
                            (LONG.replace("[trainer]\n", '[trainer]\nprecision = "fp64"\n'), ["fp64"]),
                            (LONG.replace('seed = 3', 'seed = 3\ndevice = "cuda:0"'), ["run.device = cpu"]),
                            (LONG + '[executor]\ntype = "hfta"\nmembers = [{ lr = 0.1 }, { lr = 0.2 }]\n', ["hfta"]),
                            (LONG.replace('type = "mlp"', 'type = "mlp" # fits nothing'), ["\"nope*\" fits no node"])):
            more = 'layers = ["nope*"]\n' if "nothing" in text else ""
            with self.subTest(names):
                self.write("run.toml", text + PACKED.replace("codec", more + "codec"))
                said = self.host("train", "run.toml", code=2).stderr
                for name in ["packed_activations", *names]:
                    self.assertIn(name, said)


if __name__ == "__main__":
    unittest.main()
