"""One's own tables, text and images: trained, killed, resumed, evaluated, and asked of new data with the real executable."""
import ast
import csv
import gzip
import io
import json
import shutil
import struct
import subprocess
import tomllib
import unittest
import zipfile

from support.host import BUILD, DATA, SMALL, HostTest
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

    def test_a_target_in_thousands_is_learned_about_1_and_predicted_in_thousands(self):
        text = TABLE.replace('loss]\ntype = "cross_entropy"', 'loss]\ntype = "mse"').replace("8, 3]", "8, 1]").replace(
            "[data]", '[data]\ntask = "regression"\ntarget = "income"\nstandardize_target = true').replace('type = "accuracy"', 'type = "mae"').replace(
            "layers = [6", "layers = [8")
        within = excluding(text.replace('path = "train.csv", ', "").replace('path = "val.csv", ', "").replace("[data]", '[data]\npath = "train.csv"'))
        for name, run in (("csv", text), ("csv within another dataset", within)):
            with self.subTest(name):
                self.assertLess(self.train(run, "--overwrite")["metrics"]["val/loss"], 10)
                self.write("new.csv", table(11))
                values = [float(row["value"]) for row in self.rows(self.predict("new.csv").stdout)]
                self.assertTrue(all(950 < value < 1060 for value in values), values)

    def test_one_class_alone_is_warned_of_before_anything_is_trained(self):
        text = TABLE.replace("[6, 8, 3]", "[6, 8, 1]")
        self.write("run.toml", text)
        for name in ("train.csv", "val.csv"):
            self.write(name, table(30).replace("may be", "yes").replace(",no", ",yes"))
        self.assertIn("all rows that training has are of one class, 'yes'", self.host("validate", "run.toml").stderr)


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

    def test_json_lines_are_a_text(self):
        sentences = [f"the {who} sat on the {what}, and \u00e9t\u00e9 \"came\"." for who in ("cat", "dog", "ox") for what in ("mat", "log")] * 30
        lines = [json.dumps({"id": i, "body": each}, ensure_ascii=i % 2 == 0) for i, each in enumerate(sentences)]
        self.write("new.jsonl", json.dumps({"body": RHYME * 3}) + "\n")
        self.write("new.txt", RHYME * 3)
        for between, option in ("\n", ""), ("<|end|>", 'between = "<|end|>"\n'):
            self.write("train.txt", between.join(sentences))
            plain = self.train(TEXT, "--overwrite")["digest"]
            said = self.host("predict", "runs/small", "new.txt").stdout
            self.write("train.jsonl", "\r\n".join([*lines[:7], "", *lines[7:]]) + "\n")
            self.write("val.jsonl", json.dumps({"body": RHYME * 20}) + "\n")
            text = TEXT.replace(".txt", ".jsonl").replace('type = "text"\n', f'type = "text"\nfield = "body"\n{option}')
            self.assertEqual(self.train(text, "--overwrite")["digest"]["model"], plain["model"])
            self.assertEqual(self.host("predict", "runs/small", "new.jsonl").stdout, said)
        for line, message in (("{", "line 3 is not JSON"), ("[1]", "line 3 is no object {...}, but a JSON array"),
                              ('{"boddy": "x", "n": 1}', 'line 3 has no "body"; it has texts at: boddy'),
                              ('{"body": 5}', 'line 3 has at "body" no text, but a JSON number; it has no texts')):
            self.write("train.jsonl", "\n".join([*lines[:2], line, *lines[2:]]))
            self.write("run.toml", text)
            self.assertIn("train.jsonl: " + message, self.host("validate", "run.toml", code=4).stderr)
        self.write("run.toml", TEXT.replace('level = "bpe"', 'level = "bpe"\nbetween = "x"'))
        self.assertIn("say their key by field", self.host("validate", "run.toml", code=2).stderr)

    def test_words_that_training_never_saw_are_counted(self):
        self.write("val.txt", RHYME * 20 + "a pig sat on the log.\n")
        printed = self.train(TEXT.replace('level = "bpe"\nvocabulary = 270', 'level = "word"'))["printed"]
        self.assertIn("val.txt: 2 of 287 words are not in the vocabulary, and become <unk>", printed)

    def test_samples_cannot_be_taken_of_text_in_pairs(self):
        taken = 'take = "all but last 20%"'
        self.write("run.toml", TEXT.replace("train = {", f"train = {{ {taken},"))
        said = self.host("validate", "run.toml", code=2).stderr
        self.assertRegex(said, r'data\.train: the dataset "text" needs data\.train\.take = none where level = bpe, and it is "all but last 20%"')
        self.write("run.toml", TEXT.replace("val = {", f"val = {{ {taken},"))
        self.host("validate", "run.toml")

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


# Each of these writes fifty training samples of a dataset that learns, some of them nonsense of a class of its own, and
# gives the run file.
def of_csv(test, nonsense):
    lines = table(50).splitlines(keepends=True)
    for row in nonsense:
        lines[1 + row] = f"nonsense,{'' if row % 2 else 1e6},{-1e6},astronaut,never\n"
    test.write("data.csv", "".join(lines))
    return TABLE.replace('path = "train.csv", ', "").replace('path = "val.csv", ', "").replace(
        "[data]", '[data]\npath = "data.csv"')


def excluding(text):
    """The same run with its dataset within another one."""
    table_of = text.partition("[data]\n")[2].partition("train = {")[0]
    return text.replace(table_of, 'type = "excluding"\nof = [{ ' + table_of.strip().replace("\n", ", ") + " }]\n")


def of_excluding(test, nonsense):
    return excluding(of_csv(test, nonsense))


def of_csv_without_header(test, nonsense):
    text = of_csv(test, nonsense)
    test.write("data.csv", (test.folder / "data.csv").read_text().partition("\n")[2])
    return text.replace('exclude = ["day"]', 'exclude = ["0"]\nheader = "no"')


def of_csv_for_regression(test, nonsense):
    return of_csv(test, nonsense).replace('loss]\ntype = "cross_entropy"', 'loss]\ntype = "mse"').replace(
        "[6, 8, 3]", "[8, 8, 1]").replace('[data]', '[data]\ntask = "regression"\ntarget = "income"').replace(
        '"accuracy"', '"mae"')


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


def of_bpe(test, nonsense):
    text = RHYME * 40
    test.write("data.txt", text[:len(text) * 4 // 5] + ("zqzqzq " * 70)[:len(text) // 5] if nonsense else text)
    return TEXT.replace('path = "train.txt", ', "").replace('path = "val.txt", ', "").replace(
        "[data]", '[data]\npath = "data.txt"')


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


def of_corrupted(test, nonsense):
    text = of_idx(test, nonsense)
    begin, end = text.index('type = "idx"'), text.index("train = {")
    options = text[begin:end].strip().replace("\n", ", ")
    return f'{text[:begin]}type = "corrupted"\ncorruptions = ["contrast"]\nof = [{{ {options} }}]\n{text[end:]}'


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


GRAPH = NUMBERED.replace('type = "mlp"\nlayers = [WIDTH, 8, 3]', 'type = "sage"\nlayers = 1\nhidden = 8').replace(
    "[data]", '[data]\ntype = "graph"\nlayout = "npz"\npath = "graph.npz"\nfanouts = [-1]')


def array(kind, size, values, *shape):
    """An array as NumPy saves it."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{size}", *values)


def of_npy(test, nonsense):
    inputs = [1e9 if i in nonsense else (i * 7 + k) % 50 for i in range(50) for k in range(16)]
    test.write("x.npy", array("<f4", "f", inputs, 50, 16))
    test.write("y.npy", array("<i8", "q", [9 if i in nonsense else i % 3 for i in range(50)], 50))
    return NUMBERED.replace("[data]", '[data]\ntype = "npy"\ninputs = "x.npy"\ntargets = "y.npy"\nstandardize = true').replace("WIDTH", "16")


def of_parquet(test, nonsense):
    import pyarrow as arrow
    import pyarrow.parquet as parquet
    text = of_csv(test, nonsense)
    names, *lines = csv.reader(io.StringIO((test.folder / "data.csv").read_text()))
    columns = {name: [line[i] or None for line in lines] for i, name in enumerate(names)}
    for name in ("age", "income"):
        columns[name] = [each and float(each) for each in columns[name]]
    parquet.write_table(arrow.table(columns), test.folder / "data.parquet")
    return text.replace('"csv"', '"parquet"').replace("data.csv", "data.parquet")


def of_npz_graph(test, nonsense):
    """As of_graph, in NumPy's format."""
    labels = [7 if i // 2 in nonsense else i % 3 for i in range(100)]
    arrays = {"x": array("<f4", "f", [each for i in range(100) for each in (i % 5, i % 3)], 100, 2),
              "y": array("<i8", "q", labels, 100),
              "edges": array("<i8", "q", [end for i in range(99) for end in (i, i + 1)], 99, 2),
              "train_mask": array("|b1", "?", [i % 2 == 0 for i in range(100)], 100),
              "val_mask": array("|b1", "?", [i % 2 == 1 for i in range(100)], 100)}
    with zipfile.ZipFile(test.folder / "graph.npz", "w") as file:
        for name, content in arrays.items():
            file.writestr(f"{name}.npy", content)
    return GRAPH


def of_tu(test, nonsense):
    """A hundred graphs of three nodes, half of them for training; of the last ten, which may be nonsense, split_seed gives it five."""
    def strange(graph):
        return graph // 2 in nonsense
    test.write("graphs/T_graph_indicator.txt", "".join(f"{i}\n" * 3 for i in range(1, 101)))
    test.write("graphs/T_A.txt", "".join(f"{3 * i + 1}, {3 * i + k}\n" for i in range(100) for k in (2, 3)))
    test.write("graphs/T_graph_labels.txt", "".join(f"{-5 if strange(i) else (-1, 1, 4)[i % 3]}\n" for i in range(100)))
    test.write("graphs/T_node_labels.txt", "".join(f"{99 if strange(i) else (i + k) % 4}\n" for i in range(100) for k in range(3)))
    return GRAPH.replace("sage", "gin").replace('"npz"', '"tu"').replace("graph.npz", "graphs").replace(
        "fanouts = [-1]", 'task = "graph"\nshares = [0.5, 0.5, 0.0]\nsplit_seed = 7')


PARQUET = BUILD / "lib/trainyard/plugins/dataset/libparquet.so"  # which a build without Arrow has not


class Leaks(HostTest):
    """Whatever is in the samples that training leaves out, data.json and weights have the same bits."""
    LAST = ('take = "all but last 20%"', 'take = "last 20%"'), range(45, 50)
    FIRST = ('take = "all but first 10"', 'take = "first 10"'), range(5)
    FOLD = ('take = "all but fold 0 of 5"', 'take = "fold 0 of 5"'), None  # the test finds out which rows these are
    FRACTION = ("fraction = [0.0, 0.8]", "fraction = [0.8, 1.0]"), None
    SAID = ('the training split has no sample of the class "{}" (5 samples, the first of them {}): '
            "evaluations leave such samples out")
    CASES = {  # what of each, what is said of it, what is left out
        "csv": (of_csv, SAID.format("never", "in line 47"), LAST),
        "csv, its first rows": (of_csv, SAID.format("never", "in line 2"), FIRST),
        "csv, a fold": (of_csv, SAID.format("never", "in line {line}"), FOLD),
        "csv without a header": (of_csv_without_header, SAID.format("never", "in line 1"), FIRST),
        "csv for regression": (of_csv_for_regression, '"job": 5 rows have levels that the training split does not have', FRACTION),
        "excluding": (of_excluding, SAID.format("never", "in line 47"), LAST),
        "npy": (of_npy, SAID.format(9, "row 45"), LAST),
        **({"parquet": (of_parquet, SAID.format("never", "in row 46"), LAST)} if PARQUET.exists() else {}),
        "text of characters": (of_text("char", (RHYME * 8)[:401], "\u00e9", ""),
                               "does not have the characters '\u00e9' (35 times, first at byte 361)", LAST),
        "text of words": (of_text("word", RHYME.replace(",", "").split() * 32, "plugh", " "), "become <unk>", FIRST),
        "text of pairs": (of_bpe, None, FRACTION),
        "image_folder": (of_images, SAID.format("zebra", "{folder}/data/zebra/45.png"), LAST),
        "cache": (of_cache, SAID.format("zebra", "{folder}/data/zebra/45.png"), LAST),
        "idx": (of_idx, SAID.format(9, "record 45"), LAST),
        "corrupted": (of_corrupted, SAID.format(9, "record 45"), LAST),
        "cifar": (of_cifar, SAID.format(9, "record 0"), FIRST),
        "graph": (of_graph, SAID.format(7, "sample 45"), LAST),
        "graph, npz": (of_npz_graph, SAID.format(7, "sample 45"), LAST),
        "graph, tu": (of_tu, SAID.format(-5, "sample 45"), LAST),
    }

    def left_out(self, option):
        """Which of fifty rows a training split with this option leaves out, by the names of rows that it learns."""
        names = [f"row {row}" for row in range(50)]
        self.write("data.csv", "row,answer\n" + "".join(f"{name},{KINDS[row % 3]}\n" for row, name in enumerate(names)))
        self.write("run.toml", TABLE.replace('exclude = ["day"]\n', "").replace("train.csv\"", f'data.csv", {option}').replace(
            "val.csv", "data.csv"))
        self.host("train", "run.toml", "-q", "--overwrite", code=2)  # the network has another width; data.json is written by then
        learned = json.loads((self.folder / "runs/small/data.json").read_text())["learned"]["features"][0]["levels"]
        left = [row for row, name in enumerate(names) if name not in learned]
        self.assertGreaterEqual(len(left), 5)
        return left

    def trained(self, text, parts):
        for split, part in zip(("train", "val"), parts):
            text = text.replace(f"{split} = {{", f"{split} = {{ {part},")
        result = self.train(text, "--overwrite")
        learned = [path.read_text() for path in self.folder.glob("runs/small/data.json")]
        return (result["digest"], learned), result["printed"]

    def test_samples_that_are_left_out_teach_nothing(self):
        for name, (write, said, (parts, nonsense)) in self.CASES.items():
            with self.subTest(name):
                if nonsense is None:
                    nonsense = self.left_out(parts[0])[-5:]
                expected, _ = self.trained(write(self, ()), parts)
                learned, printed = self.trained(write(self, nonsense), parts)
                self.assertEqual(learned, expected)
                if said is not None:
                    said = said.replace("{folder}", str(self.folder)).replace("{line}", str(nonsense[0] + 2))
                    self.assertIn(said, printed)
                    self.assertEqual(printed.count(said[:40]), 1)

    def test_folds_of_a_study_teach_nothing_of_what_they_leave_out(self):
        (train, val), _ = self.FOLD
        take = [f"data.train.{train}", f"data.val.{val}"]
        folds = [[each.replace('"', "").replace(" = ", "=").replace("fold 0", f"fold {fold}") for each in take] for fold in (0, 1)]
        found = []
        for nonsense in ((), self.left_out(train)[-5:]):
            self.write("folds.toml", of_csv(self, nonsense) + '[study]\ntype = "compare"\nmetric = "val/loss"\nseeds = 1\ncompare = ['
                       + ", ".join(f'{{ name = "{fold}", set = {json.dumps(changes)} }}' for fold, changes in enumerate(folds)) + "]\n")
            out = f"out {len(found)}"
            self.host("study", "folds.toml", "--out", out)
            rows = csv.DictReader((self.folder / out / "folds/runs.csv").read_text().splitlines())
            runs = {row["strategy"]: self.folder / out / "folds/runs" / row["trial"] for row in rows}
            found.append([(json.loads((runs[fold] / "result.json").read_text())["digest"], (runs[fold] / "data.json").read_text())
                          for fold in ("0", "1")])
        self.assertEqual(found[0][0], found[1][0])
        self.assertNotEqual(found[0][1], found[1][1])  # which learns from the nonsense

    def test_each_dataset_that_learns_is_tried(self):
        """Those whose seal names the interface, and of those that read several formats each that has something to learn."""
        tried, learning = set(), set()
        for write, _, _ in self.CASES.values():
            data = tomllib.loads(write(self, ()))["data"]
            tried.add((data["type"], data.get("layout", data.get("level"))))
        for plugin in json.loads(self.host("plugins", "list", "--format", "json").stdout)["plugins"]:
            if plugin["kind"] != "dataset":
                continue
            (facts,) = json.loads(self.host("plugins", "inspect", f"dataset/{plugin['name']}", "--format", "json").stdout)
            if "learns.hpp=" in facts["build"]["headers"]:
                choices = [each["choices"] for each in facts["options"] if each["name"] in ("layout", "level")] or [[None]]
                learning |= {(plugin["name"], choice) for choice in choices[0]}
        nothing_of_its_own = {("graph", "ogb"), ("graph", "synthetic"), ("text", "byte")}  # classes as of npz; none; none
        self.assertEqual(tried, learning - nothing_of_its_own)


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
