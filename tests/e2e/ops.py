"""ops on the real executable: sweeps and their database, findings that a query derives again, advice, refusals, and a signal in the middle."""
import csv
import json
import signal
import sqlite3
import subprocess
import unittest

from support.host import SMALL, HostTest

QUICK = ("--rounds", "2", "--round_ms", "0.01", "--weights", "initial")
LAYERS = [("conv2d", 'name = "a"\nout = 17\nkernel = 3\npadding = 1'), ("batch_norm", ""), ("relu", ""), ("conv2d", 'name = "b"\nout = 9\nkernel = 3\npadding = 1'),
          ("relu", ""), ("max_pool", "kernel = 2"), ("flatten", ""), ("linear", 'name = "head"\nout = 3')]
CONV = SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "sequential"').replace("shape = [8]", "shape = [3, 8, 8]") + "".join(
    f'[[model.layers]]\ntype = "{kind}"\n{options}\n' for kind, options in LAYERS)


class Ops(HostTest):
    def call(self, *words, code=0):
        done = subprocess.run(self.command("ops", "run.toml", *QUICK, *words), cwd=self.folder, env=self.environment(), text=True, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, *words):
        return json.loads(self.call(*words, "--format", "json").stdout)

    def rows(self, path):
        lines = [line for line in (self.folder / path).read_text().splitlines() if not line.startswith("#")]
        return list(csv.DictReader(lines))

    def test_findings_are_what_their_queries_derive_from_the_database(self):
        self.write("run.toml", SMALL)
        report = self.report("--sweeps", '["all"]', "--samples", "100", "--held_out", "5", "--network", "false")
        facts = report["facts"]
        rows = self.rows(facts["database"])
        database = sqlite3.connect(":memory:")
        names = list(rows[0])
        text = {"sweep", "op", "type", "phase", "library", "pages", "cache", "machine"}
        database.execute("CREATE TABLE rows (%s)" % ", ".join(f"{name} {'TEXT' if name in text else 'REAL'}" for name in names))
        database.executemany(f"INSERT INTO rows VALUES ({','.join('?' * len(names))})", [list(row.values()) for row in rows])
        findings = json.loads((self.folder / facts["findings with their queries"]).read_text())
        self.assertEqual([each["name"] for each in findings], ["H1", "H2", "H3", "H4", "H5", "H6", "H7"])
        for each in findings:
            with self.subTest(each["name"]):
                self.assertTrue(each["decided"], each)
                (value,), = database.execute(each["query"]).fetchall()
                self.assertAlmostEqual(value / each["value"], 1.0, places=6, msg=each)
                self.assertEqual(each["holds"], each["value"] >= each["bound"])
        self.assertEqual({row["pages"] for row in rows if row["sweep"].startswith("pages")}, {"kept", "given_back"})
        self.assertIn("<svg", (self.folder / facts["page"]).read_text())
        self.assertEqual(len(facts["machine"]), 16)
        sweeps = {row["sweep"]: row["points"] for row in report["rows"]}
        self.assertEqual(sweeps["cout"], 160)

        # What is there is not measured again, and nothing of it changes.
        before = (self.folder / facts["database"]).read_bytes()
        self.report("--sweeps", '["all"]', "--samples", "100", "--held_out", "5", "--network", "false")
        self.assertEqual((self.folder / facts["database"]).read_bytes(), before)
        self.report("--network", "false", "--sweeps", '["kernel"]', "--again", "true")
        self.assertNotEqual((self.folder / facts["database"]).read_bytes(), before)
        self.assertEqual([row for row in self.rows(facts["database"]) if row["sweep"] != "kernel"], [row for row in rows if row["sweep"] != "kernel"])

    def test_a_network_is_timed_predicted_and_advised(self):
        self.write("run.toml", CONV)
        report = self.report("--sweeps", '["samples"]', "--samples", "100", "--held_out", "20", "--network_samples", "40", "--apply", "free")
        facts = report["facts"]
        self.assertEqual(facts["model, held out"], 20)
        self.assertEqual(facts["network, batch"], 16)
        self.assertEqual(facts["widths timed"], 2)
        self.assertEqual(facts["network, nodes without a prediction"], 1)  # the flattening
        self.assertGreater(facts["network, nodes by themselves / training"], 0)
        self.assertGreater(facts["network, predicted / measured training"], 0)
        self.assertIn("applied", facts)
        # A sequential model has its widths in tables, which are changed by hand.
        for text in facts["not applied"]:
            self.assertIn("change it by hand", text)

    def test_a_network_whose_dropout_computes_layers_is_timed_without_it(self):
        text = SMALL.replace("layers = [8, 16, 3]", 'layers = [8, 16, 3]\ndropout = { type = "blockwise", p = 0.5 }')
        self.write("run.toml", text)
        facts = self.report()["facts"]
        self.assertEqual(facts["network"], "timed without its dropout")
        self.assertGreater(facts["network, training us"], 0)
        self.write("run.toml", SMALL)
        self.assertNotIn("network", self.report()["facts"])

    def test_it_leaves_nothing_in_the_run(self):
        self.write("run.toml", SMALL)
        subprocess.run(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment(), check=True, timeout=120)
        files = lambda: {path: path.read_bytes() for path in (self.folder / "runs").rglob("*") if path.is_file() and "tools" not in path.parts}
        before = files()
        self.report("--sweeps", '["kernel"]')
        self.assertEqual(files(), before)

    def test_a_signal_ends_it_with_what_it_has(self):
        self.write("run.toml", SMALL)
        path = self.folder / "rows.csv"
        process = subprocess.Popen(self.command("ops", "run.toml", "--weights", "initial", "--database", "rows.csv", "--sweeps", '["all"]'), cwd=self.folder, env=self.environment(),
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.until(path.exists, 120)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75)
        had = self.rows("rows.csv")
        self.assertTrue(had)
        self.report("--database", "rows.csv", "--sweeps", '["kernel", "stride"]', "--network", "false")
        now = self.rows("rows.csv")
        self.assertEqual(now[:len(had)], had)
        self.assertGreater(len(now), len(had))

    def test_a_sweep_of_another_machine_is_put_behind_the_own_one(self):
        self.write("run.toml", SMALL)
        words = ("--database", "own.csv", "--sweeps", '["kernel"]', "--network", "false")
        done = self.call(*words)
        self.assertIn("own.csv is not there: a new database is made", done.stderr)
        own = (self.folder / "own.csv").read_text()
        (machine,) = {row["machine"] for row in self.rows("own.csv")}
        other = own.replace(machine, "f" * len(machine))
        self.write("own.csv", own + other)  # as `cat` makes it of the files of two machines
        done = self.call(*words, "--format", "json")
        self.assertNotIn("a new database", done.stderr)
        self.assertEqual(json.loads(done.stdout)["facts"]["rows of other machines"], len(own.splitlines()) - 2)
        self.call(*words[:-4], "--sweeps", '["stride"]', "--network", "false")
        merged = (self.folder / "own.csv").read_text()
        self.assertEqual(merged.count("\nsweep,"), 1)
        rows = self.rows("own.csv")
        for line in [*own.splitlines()[2:], *other.splitlines()[2:]]:
            self.assertIn(line, merged.splitlines())
        self.assertEqual(len({row["machine"] for row in rows}), 2)

    def test_bad_input_is_refused_with_its_place(self):
        self.write("run.toml", SMALL)
        self.assertIn('sweeps has "cuot": expected some of all, samples, cout, cin', self.call("--sweeps", '["cuot"]', code=2).stderr)
        self.write("bad.csv", "a,b\n1,2\n")
        self.assertIn("bad.csv:1: expected the columns", self.call("--database", "bad.csv", code=4).stderr)
        self.assertEqual((self.folder / "bad.csv").read_text(), "a,b\n1,2\n")
        self.call("--rounds", "1", code=2)


if __name__ == "__main__":
    unittest.main()
