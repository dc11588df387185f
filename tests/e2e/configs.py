"""Every run file of configs/ trains, for a moment, with the real executable. Files whose data is not on this machine are
skipped by name (TRAINYARD_DATA names the folder of the data)."""
import re
import subprocess
import unittest

from support.host import SOURCE, HostTest

# All but parts of others and studies, which are no run files.
FILES = sorted(path for path in (SOURCE / "configs").rglob("*.toml")
               if path.parent.name != "base" and "\nschema = 1\n" in path.read_text())
# Of those that are large, what makes them small.
SMALL = {"synthetic_products": [word for change in ("vars.nodes=20000", "vars.edges=200000", "model.hidden=32", "data.train.batch_size=128")
                                for word in ("--set", change)],
         **{stem: ["--set", "data.train.batch_size=16", "--set", "data.val.take=first 256"]
            for stem in ("preact_resnet", "fashion_mnist_resnet20", "shakespeare_lstm", "shakespeare_lstm_zoneout")},
         **{stem: ["--set", "data.val.take=first 256"] for stem in ("fashion_mnist_two_conv", "shakespeare_gpt")}}
SHORT = ("--set", "trainer.max_duration=4ba", "--set", "schedule.warmup=1ba")


class Configs(HostTest):
    pass


def trains(path):
    def test(self):
        words = [str(path), "-q", "--set", f"run.output_dir={self.folder}/run", *SHORT, *SMALL.get(path.stem, [])]
        done = subprocess.run(self.command("train", *words), cwd=self.folder, text=True, capture_output=True, timeout=300, env=self.environment())
        absent = re.search(r"E401 (\S+: \S+ does not exist)", done.stderr)
        if absent:
            self.skipTest(absent.group(1))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.result("run")
        self.assertEqual((result["status"], result["steps"]), ("completed", 4))
        self.assertTrue(any(name.startswith("val/") for name in result["metrics"]))

    return test


for file in FILES:
    setattr(Configs, "test_" + "_".join(file.relative_to(SOURCE / "configs").with_suffix("").parts), trains(file))


class Coverage(unittest.TestCase):
    def test_there_are_run_files_and_the_digits_need_no_other_data(self):
        self.assertGreaterEqual(len(FILES), 5)
        self.assertIn("digits_mlp", [file.stem for file in FILES])
        self.assertNotIn("${run.data}", (SOURCE / "configs/digits_mlp.toml").read_text())


if __name__ == "__main__":
    unittest.main()
