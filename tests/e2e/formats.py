"""Data as other programs save it, trained on, predicted for and refused: NumPy's arrays, Parquet's and Arrow's tables. What these
programs read of the same files is the oracle."""
import datetime
import decimal
import json
import shutil
import sys
import unittest

try:
    import numpy as np
    import pyarrow as arrow
    import pyarrow.csv
    import pyarrow.parquet as parquet
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from support.host import BUILD, SMALL, HostTest

ARRAYS = SMALL.replace("layers = [8, 16, 3]", "layers = [6, 3]").replace(
    'type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3', 'type = "npy"\nOPTIONS').replace(
    "size = 64, ", 'inputs = "x.npy", targets = "y.npy", ').replace("size = 32, ", 'inputs = "vx.npy", targets = "vy.npy", ') + (
    '[checkpoint]\ntype = "full"\ninterval = "2ba"\n')


def run(options="", task="classification"):
    text = ARRAYS.replace("OPTIONS", options)
    if task == "regression":
        text = text.replace('"cross_entropy"', '"mse"').replace('[[metrics]]\ntype = "accuracy"\n', "")
    return text


def samples(count=48, seed=0, of=(6,)):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 9, (count, *of)), generator.integers(0, 3, count)


class Arrays(HostTest):
    def save(self, x, y, prefix=""):
        np.save(self.folder / f"{prefix}x.npy", x)
        np.save(self.folder / f"{prefix}y.npy", y)

    def both(self, x, y, vx=None, vy=None):
        self.save(x, y)
        self.save(x[:32] if vx is None else vx, y[:32] if vy is None else vy, "v")

    def predicted(self, *words):
        """The network's outputs as NumPy reads them: log-odds cannot be told from probabilities, so those of its softmax."""
        (self.folder / "out.npy").unlink(missing_ok=True)
        self.host("predict", "runs/small", *words, "--out", "out.npy")
        return np.load(self.folder / "out.npy")

    def expected(self, x, task="classification"):
        weights = load_file(self.folder / "runs/small/model.safetensors")
        (weight,), (bias,) = ([value for value in weights.values() if value.ndim == rank] for rank in (2, 1))
        outputs = x.reshape(len(x), -1).astype(np.float64) @ weight.T.astype(np.float64) + bias
        if task == "regression":
            return outputs
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def test_every_type_and_order_says_the_same(self):
        x, y = samples()
        self.both(x.astype(np.float32), y)
        self.train(run())
        digest = self.result()["digest"]
        names = []
        for kind in ("<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "|i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8", "|u1", "<u2", ">u2",
                     "<u4", ">u4", "<u8", ">u8"):
            for order in "CF":
                names.append(f"{len(names)}.npy")
                np.save(self.folder / names[-1], np.asarray(x.astype(kind), order=order))
        for version in ((1, 0), (2, 0), (3, 0)):
            names.append(f"{len(names)}.npy")
            with open(self.folder / names[-1], "wb") as file:
                np.lib.format.write_array(file, x, version)
        for name, found in zip(names, self.predicted(*names).reshape(len(names), 48, 3)):
            np.testing.assert_allclose(found, self.expected(x), rtol=1e-5, atol=1e-6, err_msg=name)
        truths = x > 4
        np.save(self.folder / "new.npy", truths)
        np.testing.assert_allclose(self.predicted("new.npy"), self.expected(truths), rtol=1e-5, atol=1e-6)
        # Trained on in other forms the weights have the same bits.
        for form in (lambda a: np.asfortranarray(a.astype(">f8")), lambda a: a.astype(np.uint8)):
            self.both(form(x), form(y))
            self.assertEqual(self.train(run('task = "classification"'), "--overwrite")["digest"], digest)

    def test_archives_stored_and_deflated(self):
        x, y = samples()
        self.both(x, y)
        digest = self.train(run())["digest"]
        for save in (np.savez, np.savez_compressed):
            save(self.folder / "all.npz", x_train=np.asfortranarray(x), y_train=y)
            save(self.folder / "val.npz", x_train=x[:32], y_train=y[:32])
            text = run('arrays = ["x_train", "y_train"]')
            for name, archive in (("", "all"), ("v", "val")):
                text = text.replace(f'inputs = "{name}x.npy", targets = "{name}y.npy"', f'inputs = "{archive}.npz"')
            self.assertEqual(self.train(text, "--overwrite")["digest"], digest)
            np.testing.assert_allclose(self.predicted("val.npz"), self.expected(x[:32]), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(self.predicted(), self.expected(x[:32]), rtol=1e-5, atol=1e-6)

    def test_images_are_standardised_by_channel_as_training_had_them(self):
        x, y = samples(of=(2, 3, 1))
        x[:, 1] *= 50
        self.both(x.astype(np.uint8), y, x[:32].astype(np.uint8) // 2)
        text = run("standardize = true").replace('type = "mlp"\nlayers = [6, 3]', 'type = "sequential"\nlayers = [{ type = "flatten" }, { type = "linear", out = 3 }]')
        self.train(text)
        x = x.astype(np.uint8).astype(np.float64)
        mean, deviation = (each.reshape(1, 2, 1, 1) for each in (x.mean(axis=(0, 2, 3)), x.std(axis=(0, 2, 3))))
        np.save(self.folder / "new.npy", (x * 2).astype(np.float32))
        np.testing.assert_allclose(self.predicted("new.npy"), self.expected((x * 2 - mean) / deviation), rtol=1e-4, atol=1e-6)
        halves = (x[:32] // 2 - mean) / deviation
        np.testing.assert_allclose(self.predicted(), self.expected(halves), rtol=1e-4, atol=1e-6)
        learned = json.loads((self.folder / "runs/small/data.json").read_text())["learned"]
        np.testing.assert_allclose(learned["mean"], mean.ravel())
        np.testing.assert_allclose(learned["deviation"], deviation.ravel())
        text = text.replace("standardize = true", f"mean = {mean.ravel().tolist()}\nstd = {deviation.ravel().tolist()}")
        digest = self.result()["digest"]
        self.assertEqual(self.train(text, "--overwrite")["digest"], digest)
        shaped = run("standardize = true\nshape = [6]")  # which makes six channels of the same numbers
        self.train(shaped, "--overwrite")
        flat = x.reshape(48, 6)
        np.testing.assert_allclose(self.predicted("x.npy"), self.expected((flat - flat.mean(0)) / flat.std(0)), rtol=1e-4, atol=1e-6)

    def test_rows_of_numbers_are_regressed(self):
        x, _ = samples()
        y = (x[:, :3] * 0.5 + 1).astype(np.float64)
        self.both(x, y)
        self.train(run(task="regression"), "--set", "trainer.max_duration=200ep")
        np.testing.assert_allclose(self.predicted("vx.npy"), self.expected(x[:32], "regression"), rtol=1e-4, atol=1e-4)
        self.assertLess(self.result()["metrics"]["val/loss"], 1.0)
        one = run(task="regression").replace("[6, 3]", "[6, 1]")
        for y in (x.sum(axis=1, keepdims=True), x.sum(axis=1)):
            self.both(x, y)
            self.train(one, "--set", "data.task=regression", "--overwrite")
            np.testing.assert_allclose(self.predicted("vx.npy").reshape(-1), self.expected(x[:32], "regression").reshape(-1), rtol=1e-4, atol=1e-4)

    def test_killed_resumed_and_on_two_ranks(self):
        x, y = samples()
        self.both(x.astype(np.float32), y)
        text = run("standardize = true")
        expected = self.train(text)["digest"]
        learned = (self.folder / "runs/small/data.json").read_text()
        shutil.rmtree(self.folder / "runs")
        self.train(text, "--set", "trainer.max_wall_time=0.000001s", code=75)
        self.host("resume", "runs/small", "--set", "trainer.max_wall_time=1h", "-q")
        self.assertEqual(self.result()["digest"], expected)
        self.assertEqual((self.folder / "runs/small/data.json").read_text(), learned)
        self.assertIn("val", self.host("eval", "runs/small").stdout)
        self.train(text, "--ranks", "2", "--overwrite")
        self.assertEqual((self.folder / "runs/small/data.json").read_text(), learned)

    def refused(self, message, x=None, y=None, vx=None, options="", task="classification", code=4):
        good = samples()
        self.both(good[0] if x is None else x, good[1] if y is None else y, vx)
        self.write("run.toml", run(options, task))
        self.assertIn(message, self.host("validate", "--level", "build", "run.toml", code=code).stderr)

    def test_what_cannot_be_read_is_refused(self):
        x, y = samples()
        for message, change in (
                ("its type is '|O', expected integers, floating point", {"x": np.array([[1, None]] * 48, dtype=object)}),
                ("its type is [('a', '<f4'), ('b', '<i4')], expected", {"x": np.zeros(48, dtype=[("a", "<f4"), ("b", "<i4")])}),
                ("its type is '<c8'", {"x": x.astype(np.complex64)}),
                ("its type is '<f16'", {"x": x.astype(np.longdouble)}),
                ("its type is '<U1'", {"y": y.astype("<U1")}),
                ("y.npy: its shape is [47], expected [48] or [48, numbers], as ", {"y": y[:47]}),
                ("there is no sample", {"x": x[:0]}),
                ("it is a single number", {"x": np.float32(3), "vx": x[:32]}),
                ("the label of row 5 is -1.000000, expected an integer from 0", {"y": np.where(np.arange(48) == 5, -1, y)}),
                ("the label of row 5 is 0.500000", {"y": np.where(np.arange(48) == 5, 0.5, y), "options": 'task = "classification"'}),
                ("expected an integer from 0 to 1", {"options": "classes = 2"}),
                ("number 1 of row 3 is not finite", {"x": np.where((np.arange(48) == 3)[:, None] & (np.arange(6) == 1), np.nan, x)}),
                ("number 1 of row 3 is too large for a float", {"x": np.where((np.arange(48) == 3)[:, None] & (np.arange(6) == 1), 1e300, x)}),
                ("number 0 of row 3 is not finite", {"y": np.where(np.arange(48) == 3, np.inf, y), "task": "regression"}),
                ("set task = \"regression\" where these are numbers", {"y": np.zeros((48, 3), int)})):
            with self.subTest(message):
                self.refused(message, **change)
        for message, options in (("arrays takes two names", 'arrays = ["x"]'), ("give either standardize", "standardize = true\nmean = [1.0]"),
                                 ("shape holds 5 numbers", "shape = [5]"), ("mean has 2 numbers, a sample has 6 channels", "mean = [1.0, 2.0]")):
            with self.subTest(message):
                self.refused(message, options=options, code=2)

    def test_samples_of_another_form_are_refused(self):
        x, y = samples()
        self.both(x, y, x[:32, :5])
        self.write("run.toml", run())
        self.assertIn("a sample is [5], and the run was trained with [6]", self.host("train", "run.toml", "-q", code=4).stderr)
        self.both(x, y)
        self.train(run(), "--overwrite")
        np.save(self.folder / "new.npy", x[:, :5])
        self.assertIn("a sample is [5], and the run was trained with [6]", self.host("predict", "runs/small", "new.npy", code=4).stderr)
        self.assertIn("give a file", self.host("predict", "runs/small", "-", code=4).stderr)


TABLE = SMALL.replace("layers = [8, 16, 3]", "layers = [WIDTH, 3]").replace(
    'type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
    'type = "FORMAT"\nmissing = "median"\nindicator = true\nstandardize = true\nexclude = ["day"]').replace(
    "size = 64, ", 'path = "train.FORMAT", ').replace("size = 32, ", 'path = "val.FORMAT", ') + (
    '[checkpoint]\ntype = "full"\ninterval = "2ba"\n')


def table(count=96, seed=0):
    """Numbers of several types, one with gaps, truth values as 0 and 1, texts, dates and a class that is a text."""
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 80, count).astype(np.float64)
    return arrow.table({
        "day": [datetime.date(2020, 1, 1 + i % 28) for i in range(count)],
        "age": arrow.array(age, mask=generator.random(count) < 0.2),
        "small": arrow.array(generator.integers(-100, 100, count), arrow.int8()),
        "large": arrow.array(generator.integers(-2**40, 2**40, count), arrow.int64()),
        "unsigned": arrow.array(generator.integers(0, 2**16, count), arrow.uint16()),
        "real": generator.normal(size=count),
        "flag": arrow.array(generator.integers(0, 2, count), arrow.uint8()),
        "job": [("clerk", "nurse", "smith")[each] if each < 3 else None for each in generator.integers(0, 4, count)],
        "answer": [("yes", "no", "may be")[each] for each in generator.integers(0, 3, count)]})


@unittest.skipUnless((BUILD / "lib/trainyard/plugins/dataset/libparquet.so").exists(), "this build has no Arrow")
class Tables(HostTest):
    def run_of(self, form="parquet", train=None, val=None, width=11):
        text = TABLE.replace("WIDTH", str(width)).replace('"FORMAT"', f'"{form}"')
        return text.replace("train.FORMAT", train or f"train.{form}").replace("val.FORMAT", val or f"val.{form}")

    def save(self, whole, save=parquet.write_table, form="parquet", val=None):
        save(whole, self.folder / f"train.{form}")
        save(whole.slice(0, 48) if val is None else val, self.folder / f"val.{form}")

    def learned(self):
        return json.loads((self.folder / "runs/small/data.json").read_text())["learned"]

    def predicted(self, *words):
        return self.host("predict", "runs/small", *words).stdout

    def setUp(self):
        super().setUp()
        self.table = table()
        self.save(self.table, arrow.csv.write_csv, "csv")
        self.csv = self.train(self.run_of("csv"))["digest"]
        self.facts = self.learned()

    def test_every_format_trains_as_csv_does(self):
        def whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return folder

        def stream(rows, path, **more):
            with arrow.ipc.new_stream(path, rows.schema, **more) as writer:
                writer.write_table(rows, 20)

        def file(rows, path, **more):
            with arrow.ipc.new_file(path, rows.schema, **more) as writer:
                writer.write_table(rows, 20)

        def shards(rows, path):
            for i in range(3):
                parquet.write_table(rows.slice(i * len(rows) // 3, (i + 1) * len(rows) // 3 - i * len(rows) // 3), whole(path) / "0.parquet" if i == 0 else path / f"{i}.parquet")

        def saved(rows, path):
            """As Hugging Face's datasets.save_to_disk does."""
            names = [f"data-{i:05}-of-00002.arrow" for i in range(2)]
            whole(path)
            for i, name in enumerate(names):
                stream(rows.slice(i * len(rows) // 2, len(rows) // 2), path / name)
            (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names], "_split": "train"}))
            (path / "dataset_info.json").write_text("{}")

        def with_(save, **more):
            return lambda rows, path: save(rows, path, **more)

        job = self.table.schema.get_field_index("job")
        coded = self.table.set_column(job, "job", self.table["job"].dictionary_encode())
        wide = self.table.set_column(job, "job", self.table["job"].cast(arrow.large_string()))
        options = arrow.ipc.IpcWriteOptions
        cases = {"parquet": (parquet.write_table, self.table), "of many row groups": (with_(parquet.write_table, row_group_size=7), self.table),
                 "of version 1, plain": (with_(parquet.write_table, version="1.0", use_dictionary=False, compression="none"), self.table),
                 "zstd": (with_(parquet.write_table, compression="zstd", data_page_version="2.0"), self.table),
                 "gzip": (with_(parquet.write_table, compression="gzip"), self.table), "lz4": (with_(parquet.write_table, compression="lz4"), self.table),
                 "dictionaries": (parquet.write_table, coded), "large texts": (parquet.write_table, wide), "arrow": (file, self.table),
                 "arrow, packed": (with_(file, options=options(compression="zstd")), self.table), "stream": (stream, self.table),
                 "dictionaries in a stream": (stream, coded), "folder": (shards, self.table), "saved by datasets": (saved, self.table),
                 "dictionaries in arrow": (file, coded)}
        for name, (save, rows) in cases.items():
            with self.subTest(name):
                for path in (self.folder / "train.parquet", self.folder / "val.parquet"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                self.save(rows, save)
                self.assertEqual(self.train(self.run_of(), "--overwrite")["digest"], self.csv)
                self.assertEqual(self.learned(), self.facts)

    def test_new_rows_are_predicted_as_those_of_csv(self):
        new = table(40, seed=1).drop_columns(["answer", "day"])
        arrow.csv.write_csv(new, self.folder / "new.csv")
        expected = self.predicted("new.csv")
        self.save(self.table)
        self.train(self.run_of(), "--overwrite")
        parquet.write_table(new.select(list(reversed(new.column_names))), self.folder / "new.parquet", row_group_size=9)
        self.assertEqual(self.predicted("new.parquet"), expected)
        parquet.write_table(new.drop_columns(["age"]), self.folder / "new.parquet")
        self.assertIn('new.parquet: it lacks the column "age"', self.host("predict", "runs/small", "new.parquet", code=4).stderr)
        self.assertIn("give a file", self.host("predict", "runs/small", "-", code=4).stderr)

    def test_killed_resumed_and_on_two_ranks(self):
        self.save(self.table)
        self.train(self.run_of(), "--overwrite", "--set", "trainer.max_wall_time=0.000001s", code=75)
        self.host("resume", "runs/small", "--set", "trainer.max_wall_time=1h", "-q")
        self.assertEqual(self.result()["digest"], self.csv)
        self.assertEqual(self.learned(), self.facts)
        ranks = [self.train(self.run_of(form), "--overwrite", "--ranks", "2")["digest"] for form in ("csv", "parquet")]
        self.assertEqual(*ranks)

    def test_types_become_numbers_and_categories(self):
        count = 64
        numbers = [i % 7 for i in range(count)]
        rows = arrow.table({
            "half": arrow.array(np.array(numbers, np.float16)), "single": arrow.array(numbers, arrow.float32()),
            "nan": arrow.array([np.nan if i % 5 == 0 else float(i % 7) for i in range(count)]), "truth": [i % 2 == 0 for i in range(count)],
            "price": arrow.array([decimal.Decimal(i % 7) / 4 for i in range(count)], arrow.decimal128(9, 2)),
            "wide": arrow.array([decimal.Decimal(i % 7) / 4 for i in range(count)], arrow.decimal256(40, 2)),
            "code": arrow.array([2**60 + i % 3 for i in range(count)]), "key": arrow.array([10 + i % 3 for i in range(count)], arrow.int32()),
            "number": arrow.array([i % 4 for i in range(count)]).dictionary_encode(), "y": [i % 3 for i in range(count)]})
        self.save(rows)
        text = self.run_of(width=14).replace('exclude = ["day"]', 'categorical = ["code", "key"]').replace("standardize = true\n", "")
        self.train(text, "--overwrite")
        found = {each["name"]: each for each in self.learned()["features"]}
        self.assertEqual(found["code"]["levels"], [str(2**60 + i) for i in range(3)])
        self.assertEqual(found["key"]["levels"], ["10", "11", "12"])
        self.assertEqual([name for name in found if "levels" in found[name]], ["code", "key"])
        self.assertTrue(found["nan"]["indicator"])
        self.assertEqual(self.learned()["labels"], ["0", "1", "2"])

    def test_what_cannot_be_read_is_refused(self):
        def add(name, values):
            return self.table.add_column(0, name, [values])
        count = len(self.table)
        for message, rows, change in (
                ('column 1 "list" holds list', add("list", arrow.array([[1]] * count)), ()),
                ('column 1 "raw" holds binary', add("raw", arrow.array([b"x"] * count)), ()),
                ('column 1 "both" holds struct', add("both", arrow.array([{"a": 1}] * count)), ()),
                ("'2020-01-01' is a date, which is no number", self.table, ('exclude = ["day"]\n', "")),
                ("'2020-01-01 10:20:00.000' is a date", add("time", arrow.array([datetime.datetime(2020, 1, 1, 10, 20)] * count, arrow.timestamp("s"))), ()),
                ("is not a finite number", add("far", arrow.array([np.inf] * count)), ()),
                ("the field is empty; say what takes its place", self.table, ('missing = "median"\nindicator = true\n', "")),
                ("it has no value in the training split", add("none", arrow.nulls(count)), ()),
                ('no column \'other\'', self.table, ('exclude = ["day"]', 'exclude = ["day"]\ntarget = "other"')),
                ("there is no row of data", self.table.slice(0, 0), ())):
            with self.subTest(message):
                self.save(rows)
                text = self.run_of()
                self.write("run.toml", text.replace(*change) if change else text)
                done = self.host("validate", "--level", "build", "run.toml", code=2 if "other" in message else 4)
                self.assertIn(message, done.stderr)
        for name, content in (("empty", b""), ("text", b"a,b\n1,2\n3,4\n"), ("cut", (self.folder / "val.parquet").read_bytes()[:200])):
            with self.subTest(name):
                self.write("train.parquet", content)
                self.write("run.toml", self.run_of())
                self.assertIn("train.parquet: ", self.host("validate", "--level", "build", "run.toml", code=4).stderr)
        for name, message in (("nothing", "no .parquet file lies there"), ("state.json", "it lists no _data_files"), ("dataset_dict.json", "it holds a folder a split")):
            with self.subTest(name):
                self.write(f"folder {name}/{name}", "{}")
                self.write("run.toml", self.run_of(train=f"folder {name}"))
                self.assertIn(message, self.host("validate", "--level", "build", "run.toml", code=4).stderr)
        self.write("two/0.parquet", b"")
        parquet.write_table(self.table, self.folder / "two/0.parquet")
        parquet.write_table(self.table.drop_columns(["age"]), self.folder / "two/1.parquet")
        self.write("run.toml", self.run_of(train="two", val="two"))
        self.assertIn("two/1.parquet: its columns are", self.host("validate", "--level", "build", "run.toml", code=4).stderr)


if __name__ == "__main__":
    unittest.main()
