"""Several ranks on GPUs: what is said where one cannot train there, and that two train as one where they can."""
import re
import shutil
import subprocess
import unittest

from support.host import BUILD, SOURCE, TRAINYARD
from support.ranks import RUN, RankTest

NCCL = BUILD / "lib/trainyard/trainyard_nccl.so"
CONFIG = 2


def cached(name):
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    return found and found.group(1)


def gpus():
    found = re.search(r"^CUDA +(\d+) usable GPUs", subprocess.run([TRAINYARD, "doctor"], text=True, capture_output=True).stdout, re.M)
    return int(found.group(1)) if found else 0


class Library(unittest.TestCase):
    def test_it_is_built_where_all_that_it_needs_is_there(self):
        libtorch = cached("TRAINYARD_LIBTORCH")
        needed = [cached("CUDAToolkit_NVCC_EXECUTABLE"), cached("TRAINYARD_NCCL_INCLUDE")]
        if not all(needed) or any(each.endswith("NOTFOUND") for each in needed):
            self.assertFalse(NCCL.exists())
            self.skipTest("no CUDA toolkit with NCCL here")
        self.assertTrue(NCCL.exists())
        read = lambda *words: subprocess.run(words, text=True, capture_output=True, check=True).stdout
        self.assertEqual(re.findall(r" T (\S+)", read("nm", "-D", "--defined-only", NCCL)), ["trainyard_nccl"])
        self.assertIn("[libtorch_cuda.so]", read("readelf", "-d", NCCL))
        # Each of its symbols of c10d is one of LibTorch's.
        wanted = set(re.findall(r" U (_ZN\w*4c10d\w+)", read("nm", "-D", "--undefined-only", NCCL)))
        self.assertGreaterEqual(len(wanted), 2)
        known = "".join(read("nm", "-D", "--defined-only", f"{libtorch}/lib/{each}") for each in ("libtorch_cuda.so", "libtorch_cpu.so"))
        self.assertEqual({each for each in wanted if each not in known}, set())

    def test_nothing_else_needs_cuda(self):
        for library in (BUILD / "lib/libtrainyard_engine.so", TRAINYARD):
            self.assertNotRegex(subprocess.run(["readelf", "-d", library], text=True, capture_output=True, check=True).stdout,
                                r"NEEDED.*(torch_cuda|c10_cuda|nccl|cudart)")


class Refused(RankTest):
    def refused(self, ranks, device, *words, **environment):
        self.write("run.toml", RUN)
        return self.host("train", "run.toml", "-q", "--ranks", ranks, "--set", f"run.device={device}", *words, code=CONFIG, **environment).stderr

    def test_one_gpu_for_several_ranks(self):
        message = self.refused(2, "cuda:1")
        self.assertIn('run.device: "cuda:1" is one GPU, and 2 ranks train on this machine', message)
        self.assertIn('set run.device = "cuda"', message)

    def test_nccl_that_does_not_load(self):
        """Of the libraries that LibTorch names, this is the first one that is no library."""
        beside = SOURCE / ".deps/nvidia/nccl/lib/libnccl.so.2"
        if beside.exists():
            self.skipTest(f"LibTorch takes {beside}")
        folder = self.folder / "libraries"
        folder.mkdir()
        for name in ("libcufile.so.0", "libcusparseLt.so.0"):
            shutil.copy(BUILD / "lib/libtrainyard.so", folder / name)
        (folder / "libnccl.so.2").write_text("no library")
        message = self.refused(2, "cuda", LD_LIBRARY_PATH=folder)
        self.assertIn('run.device = "cuda": LibTorch\'s CUDA library does not load', message)
        self.assertIn("libnccl.so.2", message)
        self.assertIn('install it (pip install nvidia-nccl-cu13) and name its folder in LD_LIBRARY_PATH, or set run.device = "cpu"', message)

    def test_fewer_gpus_than_ranks(self):
        count = gpus()
        if count == 0:
            self.skipTest("no GPU here, or LibTorch's CUDA half does not load")
        self.assertIn(f"each of the {count + 1} ranks of this machine needs a GPU, and it has {count} usable GPUs", self.refused(count + 1, "cuda"))


class Trained(RankTest):
    def test_two_ranks_on_two_gpus_train_as_one_does(self):
        if gpus() < 2:
            self.skipTest("it takes 2 GPUs")
        text = RUN.replace('deterministic = "strict"', 'device = "cuda"')  # which cuBLAS is not without more memory
        self.on(1, text)
        alone = self.weights()
        self.on(2, text)
        self.assertLess(self.furthest(self.weights(), alone), 1e-6)


if __name__ == "__main__":
    unittest.main()
