"""The executor hfta in runs to which much happens: optimizers, schedules, dropout and members are swapped at random steps, and the
run is killed and goes on: it ends with the bits of the run that nothing happened to. Also where a swap on trial is taken back."""
import json
import random
import unittest

from support.host import FAULTY, SMALL, KilledTest

STEPS = 61
RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("size = 64, batch_size = 16", "size = 64, batch_size = 16, micro_batch_size = 8")
RUN = RUN.replace('max_duration = "2ep"', f'max_duration = "{STEPS}ba"').replace('eval_interval = "1ep"', 'eval_interval = "17ba"')
RUN = RUN.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "sequential"\nlayers = [{ type = "linear", out = 16 }, { type = "batch_norm" }, '
                  '{ type = "relu" }, { type = "dropout" }, { type = "linear", out = 3 }]') + """
[checkpoint]
type = "full"
interval = "9ba"
[logging]
interval = "1ba"
[schedule]
type = "cosine"
[model.dropout]
type = "standard"
p = 0.2
[[hooks]]
type = "killer"
place = "place"
"""
# The same over images, whose passes are compiled.
IMAGES = RUN.replace('{ type = "linear", out = 16 }', '{ type = "conv2d", out = 6, kernel = 3 }, { type = "relu" }, { type = "conv2d", out = 16, kernel = 3 }').replace(
    '{ type = "dropout" }, ', '{ type = "dropout" }, { type = "flatten" }, ').replace("[8]", "[2, 7, 7]")
MEMBERS = [{"set": ["optimizer.lr=0.02"]}, {"set": ["optimizer.lr=1e30"]}, {"set": ["run.seed=8"]}, {"set": ["optimizer.weight_decay=0.1"]}]


def inline(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(each)}" for key, each in value.items()) + " }"
    return "[" + ", ".join(map(inline, value)) + "]" if isinstance(value, list) else json.dumps(value)


def array(**more):
    return {"leader": 2, "compact_at": 0.9, "members": MEMBERS, **more}


def section(name, type, options):
    return f'[{name}]\ntype = "{type}"\n' + "".join(f"{key} = {inline(value)}\n" for key, value in options.items())


def planned(at, slot, type, **options):
    return f'[[swap]]\nat = "{at}ba"\nslot = "{slot}"\ntype = "{type}"\n' + "".join(f"{key} = {inline(value)}\n" for key, value in options.items())


# What a swap may bring; the first of the members leave at most once, and for good.
CHOICES = (("optimizer", "adamw", {"lr": 0.005, "carry": "fresh"}), ("optimizer", "adam", {"lr": 0.004}),
           ("optimizer", "sgd", {"lr": 0.05, "momentum": 0.9}), ("optimizer", "adamw", {"betas": [0.8, 0.99]}),
           ("schedule", "constant", {}), ("schedule", "cyclic", {}), ("model.dropout", "standard", {"p": 0.4}), ("model.dropout", "standard", {"p": 0.0}),
           ("executor", "hfta", array(compact_at=0.0)), ("executor", "hfta", array(only=[2, 3])))


class Arrays(KilledTest):
    def test_swapped_and_killed_at_random_it_ends_with_the_same_bits(self):
        for seed, run in enumerate((RUN, RUN, IMAGES, RUN, RUN, IMAGES)):
            drawn = random.Random(seed)
            steps = sorted(drawn.sample(range(3, STEPS - 3), 5))
            swaps = [(step, *drawn.choice(CHOICES)) for step in steps]
            text = run + section("executor", "hfta", array()) + "".join(planned(step, slot, type, **options) for step, slot, type, options in swaps)
            kills = sorted(drawn.sample(range(2, STEPS - 1), 3))
            with self.subTest(seed=seed, swaps=[swap[:3] for swap in swaps], kills=kills):
                expected = self.whole(text)
                self.assertEqual({line["step"] for line in self.lines("journal.jsonl", "swap")}, set(steps))
                self.assertEqual("passes are compiled" in (self.folder / "runs/small/run.log").read_text(), run is IMAGES)
                self.assertEqual(self.killed(text, *(f"batch_end {step}" for step in kills)), expected)

    def test_a_swap_on_trial_is_taken_back_with_the_members_that_left_within_its_watch(self):
        """An optimizer makes members diverge, of which some have left the array since."""
        members = [MEMBERS[0], {}, *MEMBERS[2:]]
        begin = RUN + section("executor", "hfta", array(on_nan="stop", members=members))
        expected, _ = self.whole(begin)
        text = begin + planned(20, "optimizer", "sgd", lr=1e30, watch="8ba") + planned(
            21, "executor", "hfta", **array(on_nan="stop", members=members, only=[0, 2]))
        found, _ = self.whole(text)
        self.assertEqual([line["step"] for line in self.lines("journal.jsonl", "swap_rolled_back")], [21, 20])
        self.assertEqual(found, expected)
        found, _ = self.killed(text, "batch_end 40")
        self.assertEqual(found, expected)

    def test_a_finished_run_is_one_of_its_leader(self):
        """Whose seed is another than the run's; also where it is trained for a step that is undone."""
        text = RUN.replace('[[hooks]]\ntype = "killer"\nplace = "place"\n', "") + section("executor", "hfta", array())
        loss = self.train(text)["metrics"]["val/loss"]
        found = json.loads(self.host("eval", "runs/small", "--format", "json").stdout)
        self.assertAlmostEqual(found["val/loss"], loss, delta=1e-5)
        self.assertEqual([name for name in found if name[0].isdigit()], [])
        facts = json.loads(self.host("audit", "runs/small", "--format", "json").stdout)["facts"]
        self.assertAlmostEqual(facts["val/loss"], loss, delta=1e-5)
        self.assertEqual(facts["not moved in 1 steps"], 0)
        self.host("predict", "runs/small", "--out", "said.safetensors")
        self.host("export", "runs/small", "--to", "safetensors", "--file", "out.safetensors")

    def test_a_member_that_cannot_be_is_named(self):
        for key, says in (("optimizer.lr=x", "expected a float"), ("optimizer.lrr=1", "unknown key"), ("run.seed=-1", "out of range")):
            text = RUN + section("executor", "hfta", {"members": [{}, {"set": [key]}]})
            said = self.host("train", self.write("run.toml", text), "-q", "--plugins", FAULTY, code=2).stderr
            self.assertRegex(said, rf"executor\.members\[1\]\.set: --set:1:\d+: .*{says}")


if __name__ == "__main__":
    unittest.main()
