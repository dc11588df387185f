"""Two ranks with the executor `compiled`: gradients leave in stretches while the way back goes on, and what comes of it is what comes
of gradients that leave behind it, to the bit; also with micro-batches, clipping, compressors and swaps."""
import unittest

from support.host import FAULTY, planned
from support.ranks import RUN, RankTest, numpy


class EarlyGradients(RankTest):
    WIDE = (RUN.replace("layers = [8, 16, 3]", "layers = [8, 512, 512, 512, 3]").replace('max_duration = "50ba"', 'max_duration = "12ba"')
            + '[executor]\ntype = "compiled"\n')
    LOOKS = '[[hooks]]\ntype = "faulty"\n'  # at after_backward: no gradient leaves ahead of it

    def digests(self, text, *words):
        """Of a run whose gradients leave early, and of one where they leave late."""
        return [self.on(2, text + more, "--plugins", FAULTY, *words)["digest"]["model"] for more in ("", self.LOOKS)]

    def test_weights_are_those_of_gradients_that_leave_late(self):
        compressed = '[distributed.compressor]\ntype = "{}"\nmin_compress_elements = 1000\n'
        found = set()
        for more, words in (("", ()), ("", ("trainer.precision=bf16-mixed",)), ("", ('trainer.grad_clip={type="norm",max=0.1}',)),
                            ("", ("data.train.micro_batch_size=8",)), ("", ("distributed.bucket_cap_mb=0.5",)),
                            (compressed.format("fp16"), ()), (compressed.format("topk"), ()), (compressed.format("powersgd"), ()),
                            (planned(5, "executor", "eager", 0) + planned(9, "executor", "compiled", 0), ()),
                            (compressed.format("fp16") + planned(6, "distributed.compressor", "topk", 0), ())):
            with self.subTest(more, words=words):
                early, late = self.digests(self.WIDE + more, *(word for each in words for word in ("--set", each)))
                self.assertEqual(early, late)
                found.add(early)
        self.assertGreaterEqual(len(found), 8)  # the size of buckets may change no bit of two ranks' sums

    def test_weights_are_those_of_eager_and_of_one_rank(self):
        """Of all weights together: Adam makes much of a single one whose gradient is next to nothing."""
        self.on(2, self.WIDE)
        ours = self.weights()
        whole = sum(numpy.square(value, dtype=numpy.float64).sum() for value in ours.values())
        for ranks, words in ((2, ("--set", "executor.type=eager")), (1, ()), (1, ("--set", "executor.type=eager"))):
            self.on(ranks, self.WIDE, *words)
            theirs = self.weights()
            with self.subTest(ranks=ranks, words=words):
                apart = sum(numpy.square(value - theirs[name], dtype=numpy.float64).sum() for name, value in ours.items())
                self.assertLess((apart / whole) ** 0.5, 1e-4)

    def test_gradients_come_by_stretches_from_the_last_layer_on_both_ranks(self):
        hooks = "".join(f'[[hooks]]\ntype = "watchful"\nid = "of{rank}"\nfile = "{self.folder}/came{rank}"\nrank = {rank}\n' for rank in (0, 1))
        self.on(2, self.WIDE + hooks, "--plugins", FAULTY)
        layers = [name.removesuffix(".weight") for name in self.weights() if name.endswith(".weight")]
        orders = []
        for rank in (0, 1):
            for line in (self.folder / f"came{rank}").read_text().splitlines():
                step, *names = line.split() or [""]
                if not names:  # a smaller step, in which the second rank has no sample
                    continue
                passes, rest = divmod(len(names), 2 * len(layers))
                self.assertEqual(rest, 0)
                for i in range(passes):
                    came = [name.rsplit(".", 1)[0] for name in names[i * 2 * len(layers):(i + 1) * 2 * len(layers)]]
                    # The last layer has less than a message: it comes with the one ahead of it.
                    orders.append((set(came[:4]), set(came[4:6]), set(came[6:8]), set(came[8:])))
        self.assertGreater(len(orders), 40)
        for order in orders:
            self.assertEqual(order, ({layers[3], layers[2]}, {layers[1]}, {layers[0]}, set()))

    def test_an_error_in_the_middle_of_the_way_back_of_one_rank_ends_both(self):
        hook = f'[[hooks]]\ntype = "watchful"\nfile = "{self.folder}/came"\nrank = 1\nstep = 3\nthrows_behind = 4\n'
        (self.folder / "run.toml").write_text(self.WIDE + hook)
        said = self.host("train", "run.toml", "-q", "--ranks", 2, "--plugins", FAULTY, code=3, timeout=60).stderr
        self.assertIn("rank 1 failed: [model] mlp, step 3: thrown on purpose", said)


if __name__ == "__main__":
    unittest.main()
