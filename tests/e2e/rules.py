"""`trainyard rules check`: what fires over a run that is over, and what could not be looked at, with the reason."""
import json
import unittest

from support.host import SMALL, HostTest


def rule(kind, every="1ba", **more):
    return f'[[rules]]\ntype = "{kind}"\nevery = "{every}"\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())


# A recorder that keeps statistics alone: the second rule needs values.
EXAMPLE = rule("exploding_tensor") + rule("dead_relu") + """
[recorder]
collections = [{ name = "gradients", save_interval = 1, reductions = ["abs_mean", "l2"] }]
"""
RAW = 'collections = [{ name = "all", save_interval = 1, save_raw_tensor = true }]\n'


class RulesCheck(HostTest):
    def check(self, code, *words):
        done = self.host("rules", "check", "runs/small", *words, code=code)
        report = json.loads(self.host("rules", "check", "runs/small", "--format", "json", *words, code=code).stdout)
        return done.stdout, report, {each["rule"]: each for each in report["not_checked"]}

    def others(self, text):
        self.write("others.toml", SMALL + text)
        return "--config", "others.toml"

    def test_a_rule_that_could_not_look_is_named_with_the_reason(self):
        self.train(SMALL + EXAMPLE)
        said, report, missed = self.check(7)
        self.assertRegex(said, r'not checked  dead_relu: at 8 of 8 records the values of "\S*relu\S*" were not written')
        self.assertIn("0 findings of 2 rules in 10 records; 1 rules not checked, 0 in part", said)
        self.assertEqual((report["findings"], report["errors"], list(missed)), ([], 0, ["dead_relu"]))
        self.assertFalse(missed["dead_relu"]["in_part"])

        said, report, missed = self.check(7, *self.others(
            rule("vanishing_gradient", "500ba", start="3ba") + rule("weight_update_ratio", enabled=False) + rule("cpu_bottleneck") +
            rule("poor_weight_initialization") + rule("overfit") + rule("saturated_activation")))
        self.assertNotIn("overfit", missed)
        self.assertRegex(missed["cpu_bottleneck"]["why"], "nothing was recorded of GLOBAL")
        self.assertEqual(missed["weight_update_ratio"]["why"], "enabled = false")
        self.assertRegex(missed["saturated_activation"]["why"], r'no record holds a tensor "')
        self.assertRegex(missed["poor_weight_initialization"]["why"], 'at 8 of 8 records the values of "gradients" were not written')
        self.assertNotIn("vanishing_gradient", missed)  # step 3 is one
        *_, missed = self.check(7, *self.others(rule("vanishing_gradient", start="300ba")))
        self.assertIn('no record is of a step at which it looks (every = "1ba")', missed["vanishing_gradient"]["why"])

    def test_what_fires_comes_before_what_was_not_looked_at(self):
        self.train(SMALL + EXAMPLE)
        said, report, missed = self.check(5, *self.others(
            rule("loss_not_decreasing", num_steps=1, diff_percent=99.0, mode="train") + rule("dead_relu")))
        self.assertEqual(report["findings"][0]["rule"], "loss_not_decreasing")
        self.assertIn("dead_relu", missed)

    def test_all_is_checked_where_all_was_written(self):
        self.train(SMALL + EXAMPLE.replace('collections = [{ name = "gradients", save_interval = 1, reductions = ["abs_mean", "l2"] }]', RAW))
        said, report, missed = self.check(0)
        self.assertEqual((report["findings"], missed), ([], {}))
        self.assertIn("0 rules not checked, 0 in part", said)

    def test_values_at_some_steps_are_looked_at_there(self):
        self.train(SMALL + EXAMPLE.replace('reductions = ["abs_mean", "l2"] }', 'reductions = ["l2"] }, '
                                           '{ name = "relu", include_regex = ["relu"], save_interval = 4, save_raw_tensor = true }'))
        said, report, missed = self.check(7)
        self.assertRegex(missed["dead_relu"]["why"], "^at 6 of 8 records the values")
        self.assertTrue(missed["dead_relu"]["in_part"])
        self.assertIn("checked in part  dead_relu", said)

    def test_a_run_that_stood_still_is_found_afterwards(self):
        text = SMALL.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
                             'type = "slow"\nat = "read"\nfirst = 4\nseconds = 1.3').replace("size = 64, ", "").replace("size = 32, ", "")
        from support.host import BUILD
        self.write("run.toml", text + rule("stalled_training", threshold=600.0))
        faulty = ("--plugins", BUILD / "tests" / "faulty")
        self.host("train", "run.toml", "-q", *faulty)
        self.check(0, *faulty)
        self.write("others.toml", text + rule("stalled_training", threshold=1.0))
        *_, report, missed = self.check(5, "--config", "others.toml", *faulty)
        self.assertRegex(report["findings"][0]["message"], "nothing was recorded for 1.3")


if __name__ == "__main__":
    unittest.main()
