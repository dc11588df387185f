"""Tables without typing: widths out of the data, metrics and losses of numbers and classes, what goes along with predictions. The
values of metrics are computed anew, by plain loops over what `predict` says of the rows."""
import csv
import io
import json
import math
import re
import unittest

from own_data import IMAGES, KINDS, RHYME, TABLE, TEXT, table
from support.host import HostTest
from support.images import png

HIDDEN = TABLE.replace("layers = [6, 8, 3]", "hidden = [8]")
NUMBERS = HIDDEN.replace('loss]\ntype = "cross_entropy"', 'loss]\ntype = "mse"').replace(
    "[data]", '[data]\ntask = "regression"\ntarget = "income"').replace(
    '[[metrics]]\ntype = "accuracy"\n', "".join(f'[[metrics]]\ntype = "{name}"\n' for name in ("mae", "rmse", "r2")))
CLASSES = HIDDEN.replace('[[metrics]]\ntype = "accuracy"\n', "".join(f'[[metrics]]\n{each}\n' for each in (
    'type = "confusion"', 'type = "f1"', 'type = "f1"\nid = "f1_micro"\naverage = "micro"', 'type = "precision"', 'type = "recall"',
    'type = "balanced_accuracy"', 'type = "log_loss"')))


class Tables(HostTest):
    def setUp(self):
        super().setUp()
        self.write("train.csv", table(96))
        # Classes that the network cannot know, so that it errs.
        lines = table(50).splitlines(keepends=True)
        for row in range(1, 51, 7):
            lines[row] = lines[row].replace(KINDS[(row - 1) % 3], KINDS[row % 3])
        self.write("val.csv", "".join(lines))

    def said(self, *words, file="val.csv"):
        return list(csv.DictReader(io.StringIO(self.host("predict", "runs/small", file, *words).stdout)))

    def truth(self, column):
        return [row[column] for row in csv.DictReader(io.StringIO((self.folder / "val.csv").read_text()))]


class Widths(Tables):
    def test_a_run_with_hidden_is_resolved_killed_resumed_and_asked(self):
        expected = self.train(HIDDEN)
        self.assertEqual(self.train(TABLE, "--overwrite")["digest"], expected["digest"])
        self.train(HIDDEN, "--overwrite", "--set", "trainer.max_wall_time=0.000001s", code=75)
        self.assertIn("hidden = [8]", (self.folder / "runs/small/config.toml").read_text())
        self.host("resume", "runs/small", "--set", "trainer.max_wall_time=1h", "-q")
        self.assertEqual(self.result()["digest"], expected["digest"])
        self.assertIn("val/accuracy", self.host("eval", "runs/small").stdout)
        self.assertEqual(len(self.said()), 50)
        self.host("export", "runs/small", "--to", "onnx", "--file", "net.onnx")

    def test_no_hidden_layer_is_a_linear_model(self):
        self.train(HIDDEN.replace("[8]", "[]"))
        self.assertRegex(self.host("model", "show", "runs/small").stdout, r"total\s+one sample\s+21\b")  # 6 x 3 and 3

    def test_both_or_neither_are_refused_in_one_message(self):
        for options, said in (("layers = [6, 8, 3]\nhidden = [8]", "model has both `layers` and `hidden`"),
                              ("", "model has neither `layers` nor `hidden`")):
            self.write("run.toml", TABLE.replace("layers = [6, 8, 3]", options))
            self.assertEqual(self.host("validate", "run.toml", code=2).stderr.count(said), 1)


class Numbers(Tables):
    def test_metrics_are_those_of_the_file_and_losses_are_in_deviations(self):
        truth = [float(value) for value in self.truth("income")]
        mean = sum(truth) / len(truth)
        for options, ranks in ((), 1), (("data.standardize_target=true",), 1), (("data.standardize_target=true",), 2):
            with self.subTest(options, ranks=ranks):
                result = self.train(NUMBERS, "--overwrite", "--ranks", ranks, *(word for each in options for word in ("--set", each)))
                metrics = result["metrics"]
                errors = [float(row["value"]) - value for row, value in zip(self.said(), truth, strict=True)]
                rmse = math.sqrt(sum(error * error for error in errors) / len(errors))
                self.assertAlmostEqual(metrics["val/mae"] / (sum(map(abs, errors)) / len(errors)), 1, 4)
                self.assertAlmostEqual(metrics["val/rmse"] / rmse, 1, 4)
                r2 = 1 - sum(error * error for error in errors) / sum((value - mean) ** 2 for value in truth)
                self.assertAlmostEqual(metrics["val/r2"] / r2, 1, 3)
                deviation = json.loads((self.folder / "runs/small/data.json").read_text())["learned"]["target_deviation"]
                self.assertAlmostEqual(metrics["val/loss"] / (rmse / deviation) ** 2, 1, 4)
                self.assertEqual(deviation == 1, not options)
                log = (self.folder / "runs/small/run.log").read_text()
                self.assertEqual(log.count("losses are in deviations"), len(options))

    def test_losses_that_outliers_do_not_rule(self):
        self.write("train.csv", table(96).replace(",1003,", ",900000,"))
        for loss in ("mae", "huber", "mse"):
            self.train(NUMBERS.replace('"mse"', f'"{loss}"'), "--overwrite", "--set", "data.standardize_target=true",
                       "--set", "trainer.max_duration=30ep")
        for loss, delta, error in (("huber", 0, "loss.delta"), ("huber", -1, "loss.delta")):
            self.write("run.toml", NUMBERS.replace('"mse"', f'"{loss}"\ndelta = {delta}'))
            self.assertIn(error, self.host("validate", "run.toml", code=2).stderr)


class Classes(Tables):
    def by_hand(self):
        rows, truth = self.said(), self.truth("answer")
        said = [row["class"] for row in rows]
        pairs = list(zip(truth, said, strict=True))
        table = {(target, answer): pairs.count((target, answer)) for target in sorted(KINDS) for answer in sorted(KINDS)}
        recall, precision, f1 = [], [], []
        for kind in sorted(KINDS):
            both, targets, answers = table[kind, kind], truth.count(kind), said.count(kind)
            recall.append(both / targets if targets else 0)
            precision.append(both / answers if answers else 0)
            f1.append(2 * both / (targets + answers) if targets + answers else None)
        f1 = [each for each in f1 if each is not None]
        loss = -sum(math.log(float(row[f"p_{target}"])) for row, target in zip(rows, truth)) / len(rows)
        return table, {"f1": sum(f1) / len(f1), "f1_micro": sum(a == b for a, b in pairs) / len(pairs), "precision": sum(precision) / len(f1),
                       "recall": sum(recall) / len(f1), "balanced_accuracy": sum(recall) / 3, "log_loss": loss,
                       **{f"confusion.{kind}": share for kind, share in zip(sorted(KINDS), recall)}}

    def test_one_rank_and_two_say_what_a_count_by_hand_does(self):
        for ranks in 1, 2:
            with self.subTest(ranks=ranks):
                metrics = self.train(CLASSES, "--overwrite", "--ranks", ranks, "--set", "trainer.max_duration=8ep")["metrics"]
                counts, expected = self.by_hand()
                for name, value in expected.items():
                    self.assertAlmostEqual(metrics[f"val/{name}"], value, 5, name)
                log = (self.folder / "runs/small/run.log").read_text()
                shown = re.findall(r"confusion: (may be|no|yes) +(\d+) +(\d+) +(\d+) +(\S+)\n", log)[-3:]
                self.assertEqual([(kind, *map(int, numbers)) for kind, *numbers, _ in shown],
                                 [(kind, *(counts[kind, answer] for answer in sorted(KINDS))) for kind in sorted(KINDS)])
                self.assertEqual(log.count("target \\ said"), 8)  # the first rank alone says it
        self.host("report", "runs/small", "--out", "report.html")
        page = (self.folder / "report.html").read_text()
        self.assertIn("val/confusion.may be", page)
        left = (self.folder / "runs/small/report/val_confusion.tsv").read_text()
        self.assertEqual([line.split("\t")[:4] for line in left.splitlines()[1:4]],
                         [[kind, *(str(counts[kind, answer]) for answer in sorted(KINDS))] for kind in sorted(KINDS)])
        table = re.search(r'<table id="val_confusion-0"><caption>.*?small, val_confusion</caption>(.*?)</table>', page, re.DOTALL)[1]
        self.assertEqual([re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", table)],
                         [line.replace("<", "&lt;").split("\t") for line in left.splitlines()])

    def test_a_name_that_is_near_is_told(self):
        for text, near in ((CLASSES.replace('"recall"', '"recal"'), "did you mean `recall`?"),
                           (CLASSES.replace('"balanced_accuracy"', '"acuracy"'), "did you mean `accuracy`?"),
                           (CLASSES.replace('interval = "2ba"', 'interval = "2ba"\nkeep_best = { metric = "val/f1_mikro", mode = "max" }'),
                            "did you mean `val/f1_micro`?")):
            self.write("run.toml", text)
            self.assertIn(near, self.host("validate", "run.toml", code=2).stderr)


class Along(Tables):
    def test_a_column_goes_along(self):
        self.train(HIDDEN)
        names = [f"c-{row:03}" for row in range(12)]
        lines = table(12, target=False).splitlines()
        self.write("new.csv", "\n".join(["customer," + lines[0], *(f'"{name}, {name}",{line}' for name, line in zip(names, lines[1:]))]) + "\n")
        plain, rows = self.said(file="new.csv"), self.said("--along", "customer", "--batch_size", "5", file="new.csv")
        self.assertEqual([row.pop("customer") for row in rows], [f"{name}, {name}" for name in names])
        self.assertEqual([row["class"] for row in rows], [row["class"] for row in plain])
        self.assertEqual([row["day"] for row in self.said("--along", "day", file="new.csv")], [f"2020-01-{1 + row:02}" for row in range(12)])
        self.host("predict", "runs/small", "new.csv", "--along", "customer", "--out", "out.jsonl")
        self.assertEqual([json.loads(line)["customer"] for line in (self.folder / "out.jsonl").read_text().splitlines()],
                         [f"{name}, {name}" for name in names])
        # The column is said to be left out where it does not go along.
        self.assertIn('left out: "customer"', self.host("predict", "runs/small", "new.csv").stderr)
        self.assertNotIn("left out", self.host("predict", "runs/small", "new.csv", "--along", "customer").stderr)
        for words, code, said in ((("new.csv", "--along", "customr"), 4, 'no column "customr"'), (("--along", "customer"), 2, "name a file"),
                                  (("new.csv", "--along", "customer", "--out", "x.npy"), 2, "takes numbers alone"),
                                  (("new.csv", "--along", "class"), 2, "of their own")):
            self.assertIn(said, self.host("predict", "runs/small", *words, code=code).stderr)

    def test_warnings_of_the_training_are_not_repeated_and_new_ones_are_said(self):
        self.write("train.csv", table(96).replace("nurse", "clerk"))
        self.write("val.csv", table(48))
        printed = self.train(HIDDEN)["printed"]
        self.assertIn('levels that the training split does not have, which count as none: "nurse"', printed)
        self.write("new.csv", table(12, target=False))
        said = self.host("predict", "runs/small", "new.csv").stderr
        self.assertIn("new.csv: column 4", said)
        self.assertNotIn("the split val", said)
        self.write("val.csv", table(48).replace("smith", "pilot"))
        self.assertIn('"pilot"', self.host("predict", "runs/small", "new.csv").stderr)


class Texts(HostTest):
    def test_bits_are_those_of_the_text_by_words_and_by_characters(self):
        self.write("train.txt", RHYME * 60)
        self.write("val.txt", RHYME * 20)
        metrics = "".join(f'[[metrics]]\ntype = "bits"\nid = "bits_per_{per}"\nper = "{per}"\n' for per in ("token", "character", "byte"))
        text = TEXT.replace('[[metrics]]\ntype = "accuracy"\n', metrics)
        for level in ("char", "bpe"):
            with self.subTest(level):
                more = "" if level == "bpe" else 'level = "char"'
                found = self.train(text if level == "bpe" else text.replace('level = "bpe"\nvocabulary = 270', more), "--overwrite")["metrics"]
                self.assertEqual(found["val/bits_per_character"], found["val/bits_per_byte"])  # ASCII
                if level == "char":
                    self.assertAlmostEqual(found["val/bits_per_byte"], found["val/bits_per_token"], 5)
                else:
                    self.assertLess(found["val/bits_per_byte"], 0.9 * found["val/bits_per_token"])

    def test_unknown_words_can_be_left_out_of_what_is_said(self):
        self.write("train.txt", "".join(f"a b c w{i} d e f\n" for i in range(80)))
        self.write("val.txt", "a b c d e f g h\n" * 6)
        self.train(TEXT.replace('level = "bpe"\nvocabulary = 270', 'level = "word"\nmin_count = 2'), "--set", "trainer.max_duration=20ep")
        words = ("predict", "runs/small", "--generate", "60", "--prompt", "a", "--seed", "1")
        self.assertIn("<unk>", self.host(*words).stdout)
        said = self.host(*words, "--unknown", "false").stdout
        self.assertNotIn("<unk>", said)
        self.assertGreater(len(said.split()), 40)


class Images(HostTest):
    def test_files_of_several_folders_are_named_once(self):
        for split, count in (("train", 16), ("val", 4)):
            for i in range(count):
                self.write(f"{split}/night/{i}.png", png((5 * i, 10, 20)))
                self.write(f"{split}/day/{i}.png", png((250 - 5 * i, 240, 230)))
        self.train(IMAGES)
        done = self.host("predict", "runs/small", "val/day/", "val/night", "train/day/0.png")
        names = [row["sample"] for row in csv.DictReader(io.StringIO(done.stdout))]
        self.assertEqual(names, [f"val/{kind}/{i}.png" for kind in ("day", "night") for i in range(4)] + ["train/day/0.png"])


if __name__ == "__main__":
    unittest.main()
