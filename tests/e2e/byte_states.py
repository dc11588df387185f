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

    def test_what_it_is_not_for_is_refused_by_name(self):
        self.write("run.toml", with_optimizer("run", 'type = "adamw8"\nlr = 0.003', '[executor]\ntype = "pipelined"\n'))
        said = self.host("train", "run.toml", code=2).stderr
        self.assertIn("optimizer.type", said)
        self.assertIn("adamw8", said)


if __name__ == "__main__":
    unittest.main()
