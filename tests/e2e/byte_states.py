"""Optimizers whose averages stand in 8 bits: swapped to and from AdamW with its averages, in checkpoints, under several ranks' and other
executors' rules."""
import json
import unittest

from support.host import SMALL, HostTest

WIDER = SMALL.replace("layers = [8, 16, 3]", "layers = [8, 96, 96, 3]").replace("2ep", "120ba")


def with_optimizer(name, optimizer, more=""):
    head, _, tail = WIDER.replace('"small"', f'"{name}"').partition("[optimizer]")
    rest = tail.partition("\n[")
    return f"{head}[optimizer]\n{optimizer}\n{rest[1]}{rest[2]}\n{more}"


def swap(at, optimizer, carry):
    return f'[[swap]]\nat = "{at}ba"\nslot = "optimizer"\ntype = "{optimizer}"\ncarry = "{carry}"\n'


class ByteStates(HostTest):
    def train(self, name, optimizer, more="", *words):
        self.write(f"{name}.toml", with_optimizer(name, optimizer, more))
        self.host("train", f"{name}.toml", *words)
        return self.folder / "runs" / name

    def loss(self, run):
        return json.loads((run / "result.json").read_text())["metrics"]["train/loss"]

    def test_averages_come_along_to_8_bits_and_back(self):
        for plain, packed, options in (("adamw", "adamw8", "lr = 0.003"), ("sgd", "sgd8", "lr = 0.05\nmomentum = 0.9")):
            type_of = f'type = "{plain}"\n{options}'
            whole = self.loss(self.train(f"{plain}-whole", type_of))
            kept, fresh = (self.loss(self.train(f"{plain}-{carry}", type_of, swap(40, packed, carry) + swap(80, plain, carry)))
                           for carry in ("state", "fresh"))
            self.assertNotEqual(kept, whole)
            self.assertLess(10 * abs(kept - whole), abs(fresh - whole), (plain, whole, kept, fresh))

    def test_another_rate_repacks_to_the_same_bits(self):
        type_of = 'type = "adamw8"\nlr = 0.003'
        whole = self.train("whole", type_of)
        swapped = self.train("swapped", type_of, swap(40, "adamw8", "state") + '[swap.options]\nlr = 0.003\neps = 1e-7\n' +
                             swap(40, "adamw8", "state") + '[swap.options]\nlr = 0.003\neps = 1e-8\n')
        digests = [json.loads((run / "result.json").read_text())["digest"] for run in (whole, swapped)]
        self.assertEqual(*digests)

    def test_a_checkpoint_holds_bytes(self):
        sizes = {}
        for name in ("adamw", "adamw8"):
            run = self.train(name, f'type = "{name}"\nlr = 0.003')
            self.assertIn("whole", self.host("ckpt", "verify", run).stdout)
            sizes[name] = next((run / "checkpoints").glob("step-*/optimizer.safetensors")).stat().st_size
            if name == "adamw8":
                self.assertRegex(self.host("ckpt", "inspect", run).stdout, r"exp_avg/\S+ +I8 \[96, 96\]")
        self.assertLess(sizes["adamw8"], 0.4 * sizes["adamw"])

    def test_a_run_goes_on_to_the_bit(self):
        for name, options in (("adamw8", "lr = 0.003"), ("sgd8", "lr = 0.05")):
            optimizer = f'type = "{name}"\n{options}'
            whole = self.train(f"{name}-whole", optimizer)
            text = with_optimizer(f"{name}-part", optimizer)
            self.write("part.toml", text.replace("120ba", "50ba"))
            self.host("train", "part.toml")
            self.write("part.toml", text.replace("seed = 3", 'seed = 3\nresume = "must"'))
            self.host("train", "part.toml")
            digests = [json.loads((run / "result.json").read_text())["digest"] for run in (whole, self.folder / f"runs/{name}-part")]
            self.assertEqual(*digests)

    def test_other_executors_types_and_ranks_end_where_it_does(self):
        optimizer = 'type = "adamw8"\nlr = 0.003'
        expected = self.loss(self.train("eager", optimizer))
        compiled = self.loss(self.train("compiled", optimizer, '[executor]\ntype = "compiled"\n'))
        self.write("doubles.toml", with_optimizer("doubles", optimizer).replace("[trainer]", '[trainer]\nprecision = "fp64"'))
        self.host("train", "doubles.toml")
        for found in (compiled, self.loss(self.folder / "runs/doubles")):
            self.assertLess(abs(found - expected), 0.02 * expected)
        several = self.train("ranks", optimizer, "", "--ranks", "2")
        self.assertIn("whole", self.host("ckpt", "verify", several).stdout)
        self.assertLess(abs(self.loss(several) - expected), 0.3 * expected)

    def test_what_it_is_not_for_is_refused_by_name(self):
        self.write("run.toml", with_optimizer("run", 'type = "adamw8"\nlr = 0.003', '[executor]\ntype = "pipelined"\n'))
        said = self.host("train", "run.toml", code=2).stderr
        self.assertIn("optimizer.type", said)
        self.assertIn("adamw8", said)


if __name__ == "__main__":
    unittest.main()
