"""docs/first-hour.md as it stands: its files are written and its commands typed, one after the other, in one folder."""
import csv
import json
import os
import re
import struct
import subprocess
import time
import unittest
import zlib

from support.host import BUILD, SOURCE, HostTest

try:
    import pandas
except ImportError:
    pandas = None

PARQUET = pandas is not None and (BUILD / "lib/trainyard/plugins/dataset/libparquet.so").exists()
TEXT = (SOURCE / "docs/first-hour.md").read_text()


def png(path, shade, odd):
    """Grey levels that rise from left to right, or from top to bottom; of odd sizes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = 33 + odd % 5, 30 + odd % 7
    rows = b"".join(b"\0" + bytes(min(255, 30 + 6 * (x if shade == "round" else y) + odd % 13) for x in range(width) for _ in range(3))
                    for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class FirstHour(HostTest):
    def files(self):
        for split, count in (("train", 24), ("val", 8)):
            for number in range(count):
                for shade in ("round", "square"):
                    png(self.folder / "photos" / split / shade / f"{number}.png", shade, number)
        (self.folder / "photos/train/round/broken.png").write_bytes(b"no picture")
        jobs = ("nurse", "smith", "clerk")
        for name, rows, target in (("people.csv", 300, True), ("new.csv", 12, False)):
            with open(self.folder / name, "w", newline="") as file:
                lines = csv.writer(file)
                lines.writerow(["day", "age", "income", "job"] + ["bought"] * target)
                for row in range(rows):
                    lines.writerow([f"2026-01-{1 + row % 28:02}", "" if row % 9 == 4 else 20 + row * 7 % 50, 1000 + 12 * (row * 7 % 50) + 200 * (row % 3), jobs[row % 3]] +
                                   ["yes" if jobs[row % 3] == "smith" else "no"] * target)
        if PARQUET:
            pandas.read_csv(self.folder / "people.csv").to_parquet(self.folder / "people.parquet")
        (self.folder / "book.txt").write_text("the ship went out and the sea was calm and the crew sang of the shore .\n" * 120)

    def environment(self):
        return {**os.environ, "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "TRAINYARD_DATA": str(self.folder)}

    def type(self, command, code=0):
        done = subprocess.run(command, shell=True, cwd=self.folder, env=self.environment(), text=True, capture_output=True, timeout=300)
        self.assertEqual(done.returncode != 0, code != 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def begun(self, run):
        """A command behind a `&` has a run to talk to by the time that a person types the next one."""
        for _ in range(600):
            if (self.folder / "runs" / run / "ctl.sock").exists():
                return
            time.sleep(0.1)
        self.fail(f"{run} has not begun")

    def test_as_it_stands(self):
        self.files()
        said, going, tasks = {}, [], 0
        for heading, language, fails, block in re.findall(r"^## (.*?)$|^```(\w+)( fails)?\n(.*?)^```$", TEXT, re.S | re.M):
            tasks += bool(heading)
            if language == "toml":
                (self.folder / re.match(r"# (\S+)", block)[1]).write_text(block)
            for command in block.splitlines() if language == "sh" else ():
                with self.subTest(command):
                    if "parquet" in command and not PARQUET:
                        self.skipTest("this build has no Arrow, or there is no pandas to write a file by")
                    if command.endswith("&"):
                        going.append(subprocess.Popen(command[:-1], shell=True, cwd=self.folder, env=self.environment()))
                        self.begun(re.search(r"run\.name=(\w+)", command)[1])
                        continue
                    said[command.split("#")[0].strip()] = self.type(command, code=2 if fails else 0)
        for process in going:
            self.assertEqual(process.wait(60), 0)
        self.assertEqual(tasks, 18)
        self.look_at(said)

    def look_at(self, said):
        """What the commands gave is what the document says of it."""
        one = lambda begin: next(text for command, text in said.items() if command.startswith(begin))
        self.assertIn("broken.png", one("trainyard train images"))
        self.assertIn("did you mean `weight_decay`?", one("trainyard validate people.toml --set"))
        study = one("trainyard study schedules.toml")
        for word in ("cosine", "rex", "constant"):
            self.assertIn(word, study)
        trials = [path for path in (self.folder / "runs/studies/schedules/runs").rglob("result.json")]
        self.assertEqual(len(trials), 18)
        report = (self.folder / "report.html").read_text()
        self.assertIn("<svg", report)
        self.assertIn("best", one("trainyard ckpt ls kept"))
        self.assertGreater(float(re.search(r"val/accuracy\s+([\d.]+)", one("trainyard eval kept"))[1]), 0.9)
        with open(self.folder / "answers.csv") as file:
            answers = list(csv.DictReader(file))
        self.assertEqual(len(answers), 12)
        for row, answer in enumerate(answers):
            self.assertIn("yes" if row % 3 == 1 else "no", answer.values(), answer)
        self.assertEqual(len([json.loads(line) for line in (self.folder / "answers.jsonl").read_text().splitlines()]), 8)
        self.assertIn("What each learner had", one("trainyard study search.toml"))
        self.assertRegex(one("trainyard predict runs/studies"), r"samples +12\b")
        for name, count in (("odd.csv", 300), ("odd_new.csv", 12)):
            with open(self.folder / name) as file:
                self.assertEqual([row["row"] for row in csv.DictReader(file)], [str(1 + row) for row in range(count)])
        with open(self.folder / "bought.csv") as file:
            self.assertEqual(len(list(csv.DictReader(file))), 12)
        self.assertTrue(list((self.folder / "runs/kept").rglob("*.onnx")))
        self.assertGreater(float(re.search(r"val/r2\s+([\d.]+)", one("trainyard train income.toml"))[1]), 0.8)
        with open(self.folder / "incomes.csv") as file, open(self.folder / "new.csv") as new:
            said, given = list(csv.DictReader(file)), list(csv.DictReader(new))
        self.assertEqual([row["day"] for row in said], [row["day"] for row in given])
        if PARQUET:  # the same rows, the same bits
            digests = [json.loads((self.folder / "runs" / run / "result.json").read_text())["digest"]["model"] for run in ("people", "parquet")]
            self.assertEqual(*digests)
        self.assertGreater(float(json.loads((self.folder / "runs/vit/result.json").read_text())["metrics"]["val/accuracy"]), 0.5)
        journal = (self.folder / "runs/live/journal.jsonl").read_text()
        self.assertIn('"swap"', journal)
        self.assertIn("cosine", journal)


if __name__ == "__main__":
    unittest.main()
