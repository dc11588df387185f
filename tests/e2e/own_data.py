"""One's own tables, text and images: trained, killed, resumed, evaluated, and asked of new data with the real executable."""
import ast
import csv
import gzip
import io
import json
import shutil
import struct
import subprocess
import unittest

from support.host import DATA, SMALL, HostTest
from support.images import png

HEAD = SMALL[:SMALL.index("[model]")]
TAIL = SMALL[SMALL.index("[optimizer]"):] + '[checkpoint]\ntype = "full"\ninterval = "2ba"\n'
TABLE = HEAD + """
[model]
type = "mlp"
layers = [6, 8, 3]
[loss]
type = "cross_entropy"
[data]
type = "csv"
missing = "median"
indicator = true
standardize = true
exclude = ["day"]
train = { path = "train.csv", batch_size = 16, shuffle = true }
val = { path = "val.csv", batch_size = 16 }
[[metrics]]
type = "accuracy"
""" + TAIL
JOBS, KINDS = ("clerk", "nurse", "smith"), ("yes", "no", "may be")


def table(rows, job=lambda row: JOBS[row % 3], target=True):
    """Of two numbers, one with gaps, three jobs and a date; the class is the job's."""
    out = io.StringIO()
    lines = csv.writer(out)
    lines.writerow(["day", "age", "income", "job"] + ["answer"] * target)
    for row in range(rows):
        age = "" if row % 5 == 4 else row % 7
        lines.writerow([f"2020-01-{1 + row % 28:02}", age, 1000 + row % 11, job(row)] + [KINDS[row % 3]] * target)
    return out.getvalue()


def read_npy(path):
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (size,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10:10 + size].decode())
    assert (10 + size) % 64 == 0 and header["descr"] == "<f4" and not header["fortran_order"]
    return header["shape"], struct.unpack(f"<{(len(data) - 10 - size) // 4}f", data[10 + size:])


class OwnTable(HostTest):
    def setUp(self):
        super().setUp()
        self.write("train.csv", table(96))
        self.write("val.csv", table(48))

    def predict(self, *words, code=0, **more):
        done = subprocess.run(self.command("predict", "runs/small", *words), cwd=self.folder, env=self.environment(), text=True,
                              capture_output=True, timeout=120, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def rows(self, text):
        return list(csv.DictReader(io.StringIO(text)))

    def test_trains_on_text_and_gaps_and_tells_names_and_probabilities(self):
        self.assertEqual(self.train(TABLE, "--set", "trainer.max_duration=40ep")["metrics"]["val/accuracy"], 1.0)
        self.write("new.csv", table(12, target=False))
        rows = self.rows(self.predict("new.csv").stdout)
        self.assertEqual([row["class"] for row in rows], [KINDS[row % 3] for row in range(12)])
        self.assertEqual([row["sample"] for row in rows], [str(row + 1) for row in range(12)])
        for row in rows:
            shares = {name: float(row[f"p_{name}"]) for name in KINDS}
            self.assertAlmostEqual(sum(shares.values()), 1.0, places=5)
            self.assertEqual(max(shares, key=shares.get), row["class"])
            self.assertEqual(float(row["probability"]), shares[row["class"]])
        # Other endings, standard input and batches of another size say the same.
        self.predict("new.csv", "--out", "out.jsonl", "--batch_size", "5")
        lines = [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]
        self.assertEqual([line["class"] for line in lines], [row["class"] for row in rows])
        for line, row in zip(lines, rows):
            self.assertEqual(list(line["probabilities"]), sorted(KINDS))
            self.assertAlmostEqual(line["probability"], float(row["probability"]), places=5)
        self.predict("new.csv", "--out", "out.npy")
        shape, numbers = read_npy(self.folder / "out.npy")
        self.assertEqual(shape, (12, 3))
        self.assertEqual([f"{number:.5f}" for number in numbers],
                         [f"{float(row['p_' + name]):.5f}" for row in rows for name in sorted(KINDS)])
        piped = self.predict("-", input=(self.folder / "new.csv").read_text())
        self.assertEqual(self.rows(piped.stdout), rows)
        both = self.rows(self.predict("new.csv", "val.csv").stdout)
        self.assertEqual(len(both), 60)
        self.assertEqual((both[0]["sample"], both[12]["sample"]), ("new.csv:1", "val.csv:1"))
        # The split that the run has itself.
        of_split = self.predict("--out", "split.csv")
        self.assertIn("48", of_split.stdout)
        self.assertEqual([row["class"] for row in self.rows((self.folder / "split.csv").read_text())],
                         [KINDS[row % 3] for row in range(48)])

    def test_what_was_learned_stays_in_the_run_whatever_becomes_of_the_files(self):
        self.train(TABLE)
        new = table(12, target=False)
        self.write("new.csv", new)
        before = self.predict("new.csv").stdout
        said = self.host("eval", "runs/small").stdout
        learned = json.loads((self.folder / "runs/small/data.json").read_text())
        self.assertEqual(learned["type"], "csv")
        self.assertEqual(learned["learned"]["labels"], sorted(KINDS))
        self.write("train.csv", table(30, job=lambda row: JOBS[row % 2]).replace(",100", ",900"))
        self.assertEqual(self.predict("new.csv").stdout, before)
        self.assertEqual(self.host("eval", "runs/small").stdout, said)
        self.assertEqual(self.predict("new.csv", "--weights", "runs/small/model.safetensors").stdout, before)
        (self.folder / "runs/small/data.json").unlink()
        self.assertNotEqual(self.predict("new.csv", code=2).returncode, 0)  # two jobs make fewer features
        (self.folder / "runs/small/data.json").write_text('{"type": "csv"')
        self.assertIn("data.json: it is damaged", self.predict("new.csv", code=4).stderr)

    def test_a_run_that_was_killed_goes_on_with_its_statistics(self):
        expected = self.train(TABLE)["digest"]
        shutil.rmtree(self.folder / "runs")
        self.assertEqual(self.train(TABLE, "--set", "trainer.max_wall_time=0.000001s", code=75)["steps"], 1)
        self.assertTrue((self.folder / "runs/small/data.json").exists())
        learned = (self.folder / "runs/small/data.json").read_text()
        # Rows that none of the steps to come reads are others: what is learned anew from them would be, too.
        self.host("resume", "runs/small", "--set", "trainer.max_wall_time=1h", "-q")
        self.assertEqual(self.result()["digest"], expected)
        self.assertEqual((self.folder / "runs/small/data.json").read_text(), learned)

    def test_resumes_with_the_statistics_that_it_began_with(self):
        self.train(TABLE, "--set", "trainer.max_wall_time=0.000001s", code=75)
        learned = (self.folder / "runs/small/data.json").read_text()
        self.write("train.csv", table(96).replace(",1000,", ",5000,"))
        self.host("resume", "runs/small", "--set", "trainer.max_wall_time=1h", "-q")
        self.assertEqual((self.folder / "runs/small/data.json").read_text(), learned)

    def test_levels_that_training_never_saw_are_counted_and_named_once(self):
        self.write("val.csv", table(48, job=lambda row: "pilot" if row % 4 == 0 else JOBS[row % 3]))
        printed = self.train(TABLE)["printed"]
        self.assertEqual(printed.count("12 rows have levels that the training split does not have"), 1, printed)
        self.assertIn('"job"', printed)
        self.assertIn('"pilot"', printed)

    def test_new_data_that_does_not_fit_is_refused_by_column(self):
        self.train(TABLE)
        self.write("new.csv", table(12, target=False).replace("income", "wage"))
        said = self.predict("new.csv", code=4)
        self.assertIn('new.csv:1: it lacks the column "income", which the run was trained with; it has "wage"', said.stderr)
        self.assertEqual(said.stdout, "")
        self.write("new.csv", table(12, target=False).replace("1001", "n. a."))
        self.assertIn("new.csv:3: column 3 \"income\": 'n. a.' is not a number", self.predict("new.csv", "--out", "x.csv", code=4).stderr)
        self.assertEqual([path.name for path in self.folder.glob("x.csv*")], [])
        self.assertIn("absent.csv: No such file", self.predict("absent.csv", code=4).stderr)
        self.assertIn(".csv, .jsonl or .npy", self.predict("val.csv", "--out", "x.parquet", code=2).stderr)

    def test_a_date_is_refused_with_the_option_that_leaves_it_out(self):
        printed = self.train(TABLE.replace('exclude = ["day"]', ""), code=4)["printed"]
        self.assertIn("train.csv:2: column 1 \"day\": '2020-01-01' is a date", printed)
        self.assertIn('exclude = ["day"]', printed)

    def test_numbers_for_a_regression(self):
        text = TABLE.replace('loss]\ntype = "cross_entropy"', 'loss]\ntype = "mse"').replace("8, 3]", "8, 1]").replace(
            "[data]", '[data]\ntask = "regression"\ntarget = "income"').replace('type = "accuracy"', 'type = "mae"').replace(
            "layers = [6", "layers = [8")
        self.train(text)
        self.write("new.csv", table(5))
        rows = self.rows(self.predict("new.csv").stdout)
        self.assertEqual((len(rows), list(rows[0])), (5, ["sample", "value"]))
        self.assertEqual(len({float(row["value"]) for row in rows}), 5)


TEXT = HEAD + """
[model]
type = "gpt"
n_layer = 1
n_head = 2
d_model = 16
[loss]
type = "cross_entropy"
[data]
type = "text"
level = "bpe"
vocabulary = 270
seq_len = 16
train = { path = "train.txt", batch_size = 16, shuffle = true }
val = { path = "val.txt", batch_size = 16 }
[[metrics]]
type = "accuracy"
""" + TAIL
RHYME = "the cat sat on the mat, and the dog ran to the log.\n"


class OwnText(HostTest):
    def setUp(self):
        super().setUp()
        self.write("train.txt", RHYME * 60)
        self.write("val.txt", RHYME * 20)

    def test_pairs_of_bytes_shared_by_splits_kept_in_the_run_and_text_that_goes_on(self):
        self.assertGreater(self.train(TEXT, "--set", "trainer.max_duration=60ep")["metrics"]["val/accuracy"], 0.9)
        learned = json.loads((self.folder / "runs/small/data.json").read_text())["learned"]
        self.assertEqual((learned["level"], len(learned["merges"])), ("bpe", 2 * 14))
        words = ("predict", "runs/small", "--generate", "24", "--prompt", "the cat")
        said = self.host(*words, "--temperature", "0").stdout
        self.assertTrue(said.startswith("the cat sat on the mat, and the dog"), said)
        self.assertEqual(self.host(*words, "--temperature", "0", "--seed", "9").stdout, said)
        drawn = {self.host(*words, "--temperature", "3", "--top_k", "4", "--seed", seed).stdout for seed in (1, 1, 2)}
        self.assertEqual(len(drawn), 2)
        self.assertEqual(self.host(*words, "--temperature", "3", "--top_k", "1").stdout, said)
        # Other pairs in the file are not learned any more; text in windows, each with its loss.
        self.write("train.txt", "xyzzy plugh " * 300)
        self.assertEqual(self.host(*words, "--temperature", "0").stdout, said)
        self.write("new.txt", RHYME * 3)
        self.write("noise.txt", "qzkw vvxj " * 16)
        loss = {}
        for name in ("new.txt", "noise.txt"):
            rows = list(csv.DictReader(io.StringIO(self.host("predict", "runs/small", name).stdout)))
            self.assertEqual(list(rows[0]), ["sample", "loss", "perplexity"])
            loss[name] = sum(float(row["loss"]) for row in rows) / len(rows)
        self.assertLess(loss["new.txt"] + 1, loss["noise.txt"])

    def test_words_that_training_never_saw_are_counted(self):
        self.write("val.txt", RHYME * 20 + "a pig sat on the log.\n")
        printed = self.train(TEXT.replace('level = "bpe"\nvocabulary = 270', 'level = "word"'))["printed"]
        self.assertIn("val.txt: 2 of 287 words are not in the vocabulary, and become <unk>", printed)

    def test_what_makes_no_text_is_refused(self):
        self.train(TEXT)
        self.assertIn("--prompt", self.host("predict", "runs/small", "val.txt", "--generate", "3", code=2).stderr)
        self.write("train.csv", table(96))
        self.write("val.csv", table(48))
        self.train(TABLE, "--overwrite")
        self.assertIn("no language model", self.host("predict", "runs/small", "--generate", "3", code=2).stderr)


IMAGES = HEAD + """
[model]
type = "mlp"
layers = [192, 8, 2]
[loss]
type = "cross_entropy"
[data]
type = "image_folder"
size = [8]
flip = true
crop_padding = 2
train = { path = "train", batch_size = 8, shuffle = true }
val = { path = "val", batch_size = 8 }
[[metrics]]
type = "accuracy"
""" + TAIL


class OwnImages(HostTest):
    def setUp(self):
        super().setUp()
        for split, count in (("train", 16), ("val", 4)):
            for i in range(count):
                self.write(f"{split}/night/{i}.png", png((5 * i, 10, 20)))
                self.write(f"{split}/day/{i}.png", png((250 - 5 * i, 240, 230)))

    def predict(self, *words, code=0):
        done = self.host("predict", "runs/small", *words, code=code)
        return done.stderr, [(row["sample"], row["class"]) for row in csv.DictReader(io.StringIO(done.stdout))]

    def test_new_images_by_the_names_of_folders(self):
        self.assertEqual(self.train(IMAGES, "--set", "trainer.max_duration=30ep")["metrics"]["val/accuracy"], 1.0)
        self.write("new/a/light.png", png((240, 250, 250), 31))
        self.write("new/dark.PNG", png((1, 2, 3), 4))
        self.assertEqual(self.predict("new")[1], [("new/a/light.png", "day"), ("new/dark.PNG", "night")])
        self.assertEqual(self.predict("new/dark.PNG")[1], [("new/dark.PNG", "night")])
        # As the split that is not augmented, to the last digit.
        for words in (("val", "--out", "files.csv"), ("--split", "val", "--out", "split.csv")):
            self.host("predict", "runs/small", *words)
        files, split = ([list(row.values())[1:] for row in csv.DictReader((self.folder / name).open())] for name in ("files.csv", "split.csv"))
        self.assertEqual((files, len(files)), (split, 8))
        self.write("new/torn.png", png((1, 2, 3))[:60])
        errors, rows = self.predict("new")
        self.assertIn("new/torn.png: the PNG file cannot be decoded", errors)
        self.assertIn("1 of 3 files cannot be decoded, and are left out", errors)
        self.assertEqual(len(rows), 2)
        self.assertIn("nothing is left", self.predict("new/torn.png", code=4)[0])

    def test_broken_files_are_named_and_counted(self):
        self.write("train/day/torn.png", png((1, 2, 3))[:60])
        self.assertIn("train/day/torn.png: the PNG file cannot be decoded", self.train(IMAGES, code=4)["printed"])
        printed = self.train(IMAGES.replace("size = [8]", 'size = [8]\nbroken = "leave_out"'), "--overwrite")["printed"]
        self.assertIn("train/day/torn.png: the PNG file cannot be decoded", printed)
        self.assertIn("1 of 33 files cannot be decoded, and are left out", printed)

    def test_classes_are_those_of_the_training_split(self):
        shutil.rmtree(self.folder / "val/day")
        self.train(IMAGES)
        self.write("val/dusk/0.png", png((90, 90, 90)))
        self.assertRegex(self.train(IMAGES, "--overwrite")["printed"],
                         r'no sample of the class "dusk" \(1 sample, \S*val/dusk/0.png\)')
        named = IMAGES.replace("size = [8]", 'size = [8]\nclasses = ["day", "night"]')
        self.assertIn("val/dusk: `classes` does not have \"dusk\"", self.train(named, "--overwrite", code=4)["printed"])


NUMBERED = IMAGES.replace('type = "image_folder"\nsize = [8]\nflip = true\ncrop_padding = 2\n', "").replace(
    'path = "train", ', "").replace('path = "val", ', "").replace("layers = [192, 8, 2]", "layers = [WIDTH, 8, 3]")


# Fifty samples of a dataset that learns, those of some numbers made nonsense of a class of its own; gives the run file.
def of_csv(test, nonsense):
    lines = table(50).splitlines(keepends=True)
    for row in nonsense:
        lines[1 + row] = f"nonsense,{'' if row % 2 else 1e6},{-1e6},astronaut,never\n"
    test.write("data.csv", "".join(lines))
    return TABLE.replace('path = "train.csv", ', "").replace('path = "val.csv", ', "").replace(
        "[data]", '[data]\npath = "data.csv"')


def of_text(level, units, nonsense_unit, between):
    def write(test, nonsense):
        text = list(units)
        for sample in nonsense:  # one ends where the next one begins
            text[8 * sample + 1:8 * sample + 8] = [nonsense_unit] * 7
        test.write("data.txt", between.join(text))
        return TEXT.replace('"bpe"\nvocabulary = 270', f'"{level}"').replace(
            "seq_len = 16", 'seq_len = 8\npath = "data.txt"').replace('path = "train.txt", ', "").replace(
            'path = "val.txt", ', "")
    return write


def of_images(test, nonsense):
    shutil.rmtree(test.folder / "data", ignore_errors=True)
    for i in range(50):
        folder = "zebra" if i in nonsense else "day" if i < 25 else "night"
        test.write(f"data/{folder}/{i:02}.png", png((200, 0, 200) if i in nonsense else (5 * i, 10, 20)))
    return IMAGES.replace('path = "train", ', "").replace('path = "val", ', "").replace(
        "size = [8]", 'size = [8]\npath = "data"')


def of_cache(test, nonsense):
    text = of_images(test, nonsense)
    begin, end = text.index('type = "image_folder"'), text.index("train = {")
    options = text[begin:end].strip().replace("\n", ", ")
    return f'{text[:begin]}type = "cache"\nof = [{{ {options} }}]\n{text[end:]}'


def of_idx(test, nonsense):
    test.write("labels", struct.pack(">II", 0x801, 50) + bytes(9 if i in nonsense else i % 3 for i in range(50)))
    pixels = bytes(255 if i in nonsense else (i * 7 + p) % 50 for i in range(50) for p in range(16))
    test.write("images", struct.pack(">IIII", 0x803, 50, 4, 4) + pixels)
    return NUMBERED.replace("[data]", '[data]\ntype = "idx"\nimages = "images"\nlabels = "labels"').replace(
        "WIDTH", "16")


def of_cifar(test, nonsense):
    records = (bytes([9] + [255] * 3072 if i in nonsense else [i % 3] + [i] * 3072) for i in range(50))
    test.write("data.bin", b"".join(records))
    return NUMBERED.replace("[data]", '[data]\ntype = "cifar"\nfiles = ["data.bin"]').replace("WIDTH", "3072")


def of_graph(test, nonsense):
    """Every second node is for training; the class of the others may be nonsense, too."""
    def label(node):
        return 7 if node // 2 in nonsense else node % 3
    nodes = (f"{i}\t{label(i)}\t{('train', 'val')[i % 2]}\t{i % 5} {5 + i % 3}\n" for i in range(100))
    test.write("graph/g.nodes.tsv", "".join(nodes))
    test.write("graph/g.edges.tsv", "".join(f"{i}\t{i + 1}\n" for i in range(99)))
    return NUMBERED.replace('type = "mlp"\nlayers = [WIDTH, 8, 3]', 'type = "sage"\nlayers = 1\nhidden = 8').replace(
        "[data]", '[data]\ntype = "graph"\nlayout = "planetoid"\npath = "graph"\nfanouts = [-1]')


class Leaks(HostTest):
    """Whatever is in the samples that training leaves out, data.json and weights have the same bits."""
    LAST, FIRST = ("last 20%", range(45, 50)), ("first 10", range(5))
    SAID = ('the training split has no sample of the class "{}" (5 samples, the first of them {}): '
            "evaluations leave such samples out")
    CASES = {  # what of each, what is said of it, what is left out
        "csv": (of_csv, SAID.format("never", "in line 47"), LAST),
        "csv, its first rows": (of_csv, SAID.format("never", "in line 2"), FIRST),
        "text of characters": (of_text("char", (RHYME * 8)[:401], "\u00e9", ""),
                               "does not have the characters '\u00e9' (35 times, first at byte 361)", LAST),
        "text of words": (of_text("word", RHYME.replace(",", "").split() * 32, "plugh", " "), "become <unk>", FIRST),
        "image_folder": (of_images, SAID.format("zebra", "{}/data/zebra/45.png"), LAST),
        "cache": (of_cache, SAID.format("zebra", "{}/data/zebra/45.png"), LAST),
        "idx": (of_idx, SAID.format(9, "record 45"), LAST),
        "cifar": (of_cifar, SAID.format(9, "record 0"), FIRST),
        "graph": (of_graph, SAID.format(7, "sample 45"), LAST),
    }

    def trained(self, text, part):
        for split, take in (("train", f"all but {part}"), ("val", part)):
            text = text.replace(f"{split} = {{", f'{split} = {{ take = "{take}",')
        result = self.train(text, "--overwrite")
        learned = [path.read_text() for path in self.folder.glob("runs/small/data.json")]
        return (result["digest"], learned), result["printed"]

    def test_samples_that_are_left_out_teach_nothing(self):
        for name, (write, said, (part, nonsense)) in self.CASES.items():
            with self.subTest(name):
                expected, _ = self.trained(write(self, ()), part)
                learned, printed = self.trained(write(self, nonsense), part)
                self.assertEqual(learned, expected)
                self.assertIn(said.replace("{}", str(self.folder)), printed)
                self.assertEqual(printed.count(said[:40]), 1)


class RealTable(HostTest):
    def test_a_table_of_people_as_it_was_published(self):
        """The bank's customers (UCI, 45,211 rows, nine columns of text): what logistic regression makes of them, at least."""
        path = DATA / "tabular/pycaret/bank.csv.gz"
        if not path.exists():
            self.skipTest(f"no {path}")
        lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
        self.write("train.csv", "".join(line for i, line in enumerate(lines) if i == 0 or i % 5))
        self.write("val.csv", "".join(line for i, line in enumerate(lines) if i % 5 == 0))
        text = TABLE.replace('exclude = ["day"]', 'target = "deposit"').replace("layers = [6, 8, 3]", "layers = [51, 32, 2]").replace(
            "batch_size = 16", "batch_size = 256").replace('interval = "2ba"', 'interval = "1ep"')
        result = self.train(text, "--set", "optimizer.lr=0.003")
        self.assertGreater(result["metrics"]["val/accuracy"], 0.89)  # the larger class: 0.883
        done = self.host("predict", "runs/small", "val.csv")
        said = list(csv.DictReader(io.StringIO(done.stdout)))
        truth = [row["deposit"] for row in csv.DictReader(io.StringIO((self.folder / "val.csv").read_text()))]
        right = sum(row["class"] == kind for row, kind in zip(said, truth, strict=True)) / len(truth)
        self.assertAlmostEqual(right, result["metrics"]["val/accuracy"], places=6)


if __name__ == "__main__":
    unittest.main()
