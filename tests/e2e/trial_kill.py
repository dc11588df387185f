"""A run that is killed leaves a trial that can be read, its last complete step whole; one that goes on leaves no gap.
`TRAINYARD_KILLS=100 python3 tests/e2e/trial_kill.py` kills it a hundred times."""
import json
import os
import random
import signal
import struct
import subprocess
import time
import unittest

from support.host import SMALL, HostTest

RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace('max_duration = "2ep"', 'max_duration = "100000ba"').replace(
    'eval_interval = "1ep"', 'eval_interval = "70ba"') + """
[checkpoint]
type = "full"
interval = "50ba"
[recorder]
save_interval = 4
collections = [{ name = "weights" }, { name = "gradients", reductions = ["l2", "abs_mean"] }]
"""
KILLS = int(os.environ.get("TRAINYARD_KILLS", "6"))


def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
            table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read(trial):
    """Steps of the trial, each of whose records is there and has the right checksums."""
    steps = {}
    for path in sorted(trial.glob("index/*/*.json")):
        index = json.loads(path.read_text())
        steps[int(path.name.split("_")[0])] = (index["meta"]["mode"], index["meta"]["mode_step"])
        if not index["tensor_payload"]:
            continue
        data = (trial / index["meta"]["event_file_name"]).read_bytes()
        for place in index["tensor_payload"]:
            record = data[place["start_idx"]:place["start_idx"] + place["length"]]
            (length, check) = struct.unpack_from("<QI", record)
            assert length + 16 == place["length"] and crc32c(record[:8]) == check, path
            assert crc32c(record[12:12 + length]) == struct.unpack_from("<I", record, 12 + length)[0], path
    return steps


class Killed(HostTest):
    def test_at_any_moment(self):
        self.write("run.toml", RUN)
        chance = random.Random(11)
        trial = self.folder / "runs" / "small" / "trial"
        seen = kill = 0
        while kill < KILLS or seen <= 10:  # a busy machine does not come far between two kills
            kill += 1
            process = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            before = time.monotonic()
            while not (trial / "index").exists() and time.monotonic() - before < 60:
                time.sleep(0.005)
            time.sleep(chance.uniform(0.05, 0.6))
            process.send_signal(signal.SIGKILL)
            error = process.communicate()[1].decode()
            self.assertEqual(process.returncode, -signal.SIGKILL, error)
            steps = read(trial)
            self.assertFalse((trial / "training_job_end.ts").exists())
            # Records come in order, and a checkpoint waits for them: there is no gap.
            trained = [step for mode, step in steps.values() if mode == "TRAIN"]
            self.assertEqual(trained, list(range(0, 4 * len(trained), 4)), f"after kill {kill}")
            seen = max(seen, len(steps))
        last = max(int(path.name.split("-")[1]) for path in (self.folder / "runs/small/checkpoints").glob("step-????????")) + 20
        self.host("train", "run.toml", "-q", "--set", f"trainer.max_duration={last}ba")
        steps = read(trial)
        self.assertTrue((trial / "training_job_end.ts").exists())
        self.assertEqual([step for mode, step in steps.values() if mode == "TRAIN"], list(range(0, last, 4)))


if __name__ == "__main__":
    unittest.main()
