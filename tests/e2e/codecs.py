"""Checkpoints that a codec stores: what they give back, to the bit, to Trainyard and to readers that share no code with it."""
import hashlib
import json
import shutil
import subprocess
import unittest

from support.boveda import decode
from support.host import BUILD, SMALL, HostTest, tensors

WIDER = SMALL.replace("layers = [8, 16, 3]", "layers = [8, 96, 96, 3]")


def with_codec(name, codec, more=""):
    return WIDER.replace('"small"', f'"{name}"').replace("[optimizer]", f'[checkpoint]\ntype = "full"\n{codec}{more}\n[optimizer]')


class Containers(HostTest):
    def test_a_reader_written_from_the_description(self):
        printed = subprocess.run([BUILD / "bin" / "boveda_containers", self.folder], check=True, capture_output=True, text=True).stdout
        self.assertGreater(int(printed), 100)
        for number in range(int(printed)):
            self.assertEqual(decode((self.folder / f"{number}.code").read_bytes()), (self.folder / f"{number}.values").read_bytes(), number)


class Stored(HostTest):
    def train(self, name, codec, more=""):
        self.write(f"{name}.toml", with_codec(name, codec, more))
        self.host("train", f"{name}.toml")
        return self.folder / "runs" / name

    def newest(self, run):
        return max((run / "checkpoints").glob("step-*"))

    def manifest(self, run):
        return json.loads((self.newest(run) / "manifest.json").read_text())

    def codes(self, run):
        """Manifest entry and code of each tensor that a codec stored."""
        for entry in self.manifest(run)["tensors"]:
            if "codec" in entry:
                bare = ("" if entry["owner"] == "model" else entry["owner"] + ":") + entry["name"]
                yield entry, tensors(self.newest(run) / entry["file"])[f"{bare}|{entry['codec']}"]

    def test_boveda_and_zstd(self):
        plain = self.train("plain", "")
        boveda = self.train("boveda", 'codec = { type = "boveda", group = 16 }')
        zstd = self.train("zstd", 'codec = [{ type = "zstd", level = 3 }]')
        digests = {(each["owner"], each["name"]): each["digest"] for each in self.manifest(plain)["tensors"] if each["owner"] != "host"}
        for run in (boveda, zstd):
            manifest = self.manifest(run)
            self.assertEqual({(each["owner"], each["name"]): each["digest"] for each in manifest["tensors"] if each["owner"] != "host"}, digests)
            self.assertEqual(manifest["format"], 3)
            size = sum(each["size"] for each in manifest["files"])
            self.assertLess(size, 0.95 * sum(each["size"] for each in self.manifest(plain)["files"]))
            self.assertIn("whole", self.host("ckpt", "verify", run).stdout)
            self.assertNotIn("tensor", self.host("ckpt", "diff", plain, run).stdout)
            self.host("ckpt", "convert", plain, "a.safetensors")
            self.host("ckpt", "convert", run, "b.safetensors")
            self.assertEqual((self.folder / "a.safetensors").read_bytes(), (self.folder / "b.safetensors").read_bytes())
            found = [self.host("eval", f"{name}.toml", "--weights", self.newest(folder), "--format", "json").stdout
                     for name, folder in (("plain", plain), (run.name, run))]
            self.assertEqual(json.loads(found[0])["val/loss"], json.loads(found[1])["val/loss"])
        self.assertRegex(self.host("ckpt", "inspect", boveda).stdout, r"F32 \[96, 96\]  .* by boveda, of 36.0 KiB")
        seen = 0
        for entry, code in self.codes(boveda):
            self.assertEqual(hashlib.sha256(decode(code)).hexdigest(), entry["digest"])
            seen += 1
        self.assertGreater(seen, 3)
        if shutil.which("zstd"):
            for entry, code in self.codes(zstd):
                told = subprocess.run(["zstd", "-dc"], input=code, check=True, capture_output=True).stdout
                self.assertEqual(hashlib.sha256(told).hexdigest(), entry["digest"])

    def test_a_run_goes_on_to_the_bit(self):
        for kind in ("full", "async"):
            codec = 'codec = { type = "boveda" }'
            whole = self.train(f"whole-{kind}", codec)
            short = with_codec(f"short-{kind}", codec).replace('"full"', f'"{kind}"')
            self.write("short.toml", short.replace('"2ep"', '"1ep"'))
            self.host("train", "short.toml")
            self.assertTrue(list(self.codes(self.folder / f"runs/short-{kind}")))
            self.write("short.toml", short.replace("seed = 3", 'seed = 3\nresume = "must"'))
            self.host("train", "short.toml")
            results = [json.loads((self.folder / "runs" / name / "result.json").read_text())["digest"] for name in
                       (f"short-{kind}", whole.name)]
            self.assertEqual(*results)

    def test_a_bandwidth_decides(self):
        """No link is so fast, or so slow, that a measurement could err."""
        plain = self.train("plain", 'codec = { type = "boveda" }')
        slow = self.train("slow", 'codec = { type = "boveda", bandwidth = 1e-4 }')
        fast = self.train("fast", 'codec = { type = "boveda", bandwidth = 1e4 }')
        self.assertGreater(len(list(self.codes(plain))), 3)
        self.assertEqual(list(self.codes(slow)), list(self.codes(plain)))
        self.assertEqual(list(self.codes(fast)), [])
        log = (slow / "run.log").read_text()
        self.assertRegex(log, r"F32 is encoded at [\d.]+ and decoded at [\d.]+ GB/s here: at a bandwidth of 0.0001 GB/s it is packed where that saves 5.0 % or more")
        self.assertIn("saves 100.0 % of it: never", (fast / "run.log").read_text())
        self.assertNotIn("GB/s", (plain / "run.log").read_text())

    def test_damage_is_named(self):
        run = self.train("small", 'codec = { type = "boveda" }')
        entry, code = next(self.codes(run))
        file = self.newest(run) / entry["file"]
        data = bytearray(file.read_bytes())
        data[entry["offset"] + len(code) // 2] ^= 4
        file.write_bytes(data)
        said = self.host("ckpt", "verify", run, code=4).stdout
        self.assertIn(entry["name"], said)
        self.assertIn("XXH3 differs", said)

    def test_an_absent_codec_is_named(self):
        run = self.train("small", 'codec = { type = "boveda" }')
        path = self.newest(run) / "manifest.json"
        text = path.read_text().replace('"codec":"boveda"', '"codec":"absent"')
        digest = json.loads(text)["digest"]
        text = text.replace(digest, "0" * len(digest))
        path.write_text(text.replace("0" * len(digest), hashlib.sha256(text.encode()).hexdigest()))
        said = self.host("ckpt", "verify", run, code=4).stdout
        self.assertIn('stored by the codec "absent", which is not among the plugins here: put its file, libabsent.so, into', said)

    def test_options_that_do_not_go_together(self):
        for codec, message in (('codec = { type = "boveda", layout = "plane", group = 16 }', "plane 64"),
                               ('codec = [{ type = "boveda" }, { type = "zstd" }]', "several codecs")):
            self.write("run.toml", with_codec("run", codec))
            self.assertIn(message, self.host("train", "run.toml", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
