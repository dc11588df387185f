"""The dataset corrupted: what it makes of images, against NumPy, Pillow, SciPy and Python's colorsys, where each is there."""
import colorsys
import io
import os
import unittest

import numpy
from safetensors.numpy import load_file

from support.corrupted_images import CorruptedTest
from support.host import SMALL
from support.images import png

try:
    import PIL.Image
except ImportError:
    PIL = None
try:
    import scipy.ndimage
except ImportError:
    scipy = None

LONGER = bool(os.environ.get("TRAINYARD_LONGER"))
SEVERITIES = range(1, 6) if LONGER else (5,)


class Corrupted(CorruptedTest):
    def test_moments_of_noise_are_those_of_the_closed_forms(self):
        p = 102 / 255
        within = {"rtol": 0.02}
        self.flat(300, 102, 102, 102)
        for name, deviations in {"gaussian_noise": (.04, .06, .08, .09, .10),
                                 "shot_noise": [(p / c) ** 0.5 for c in (500, 250, 100, 75, 50)],
                                 "speckle_noise": [p * c for c in (.06, .1, .12, .16, .2)]}.items():
            for severity in SEVERITIES:
                deviation = deviations[severity - 1]
                with self.subTest(name, severity=severity):
                    seen = self.seen(name, severity)
                    numpy.testing.assert_allclose(seen.mean(), p, rtol=0.005)
                    numpy.testing.assert_allclose(seen.std(), deviation, **within)
                    third = ((seen - seen.mean()) ** 3).mean() / seen.std() ** 3
                    skew = deviation / p if name == "shot_noise" else 0.0  # a count of mean m has 1 / sqrt(m)
                    self.assertAlmostEqual(third, skew, delta=0.05)
                    if name == "shot_noise":
                        photons = seen.astype(float) * (500, 250, 100, 75, 50)[severity - 1]
                        numpy.testing.assert_allclose(photons, photons.round(), atol=1e-3)
        for severity in SEVERITIES:
            share = (.01, .02, .03, .05, .07)[severity - 1]
            with self.subTest("impulse_noise", severity=severity):
                seen = self.seen("impulse_noise", severity)
                numpy.testing.assert_allclose([(seen == 0).mean(), (seen == 1).mean()], share / 2, rtol=0.02)
                numpy.testing.assert_allclose(seen[(seen != 0) & (seen != 1)], p, atol=1e-6)
        with self.subTest("uniform_noise"):
            seen = self.seen("uniform_noise", eps=0.5, scale=", mean = [0.25], std = [0.5]")
            numpy.testing.assert_allclose(seen.mean(), (p - 0.25) / 0.5, rtol=0.005)
            numpy.testing.assert_allclose(seen.std(), 0.5 / 3 ** 0.5, **within)
            self.assertLess(abs(seen - (p - 0.25) / 0.5).max(), 0.5 + 1e-6)
        # Neighbours, channels and samples are drawn apart.
        seen = self.seen("gaussian_noise", 3) - p
        for other in (numpy.roll(seen, 1, 0), numpy.roll(seen, 1, 1), numpy.roll(seen, 1, 2), numpy.roll(seen, 1, 3)):
            self.assertLess(abs((seen * other).mean()) / seen.var(), 0.01)

    def test_what_is_not_random_is_what_others_make_of_it(self):
        for channels in (1, 3):
            pixels = self.some(6, channels)
            for severity in SEVERITIES:
                with self.subTest(severity=severity, channels=channels):
                    self.contrast_brightness_saturate(pixels, severity)
                    self.defocus(pixels, severity)

    def contrast_brightness_saturate(self, pixels, severity):
        kept = (.75, .5, .4, .3, .15)[severity - 1]
        mean = pixels.mean((2, 3), keepdims=True)
        with self.subTest("contrast"):
            numpy.testing.assert_allclose(self.seen("contrast", severity), (pixels - mean) * kept + mean, atol=1e-6)

        def in_hsv(change):
            """By Python's colorsys, a pixel at a time."""
            three = numpy.repeat(pixels, 3, 1) if pixels.shape[1] == 1 else pixels
            made = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*colour))) for colour in three.transpose(0, 2, 3, 1).reshape(-1, 3)]
            made = numpy.array(made).reshape(three.transpose(0, 2, 3, 1).shape).transpose(0, 3, 1, 2)
            return made[:, :pixels.shape[1]]
        added = (.05, .1, .15, .2, .3)[severity - 1]
        with self.subTest("brightness"):
            numpy.testing.assert_allclose(self.seen("brightness", severity), in_hsv(lambda h, s, v: (h, s, min(v + added, 1))), atol=1e-6)
        if pixels.shape[1] == 1:
            return
        with self.subTest("saturate"):
            a, b = ((.3, 0), (.1, 0), (1.5, 0), (2, .1), (2.5, .2))[severity - 1]
            expected = in_hsv(lambda h, s, v: (h, min(s * a + b, 1), v))
            numpy.testing.assert_allclose(self.seen("saturate", severity), expected, atol=2e-6)

    def defocus(self, pixels, severity):
        radius, sigma = ((.3, .4), (.4, .5), (.5, .6), (1, .2), (1.5, .1))[severity - 1]
        y, x = numpy.mgrid[-3:4, -3:4]
        rim = numpy.exp(-numpy.array([1, 0, 1]) / (2 * sigma ** 2))
        kernel = numpy.zeros((9, 9))
        for dy, dx in numpy.argwhere(x ** 2 + y ** 2 <= radius ** 2):
            kernel[dy:dy + 3, dx:dx + 3] += numpy.outer(rim, rim)
        kernel /= kernel.sum()
        padded = numpy.pad(pixels, ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
        windows = numpy.lib.stride_tricks.sliding_window_view(padded, (9, 9), (2, 3))
        with self.subTest("defocus_blur"):
            numpy.testing.assert_allclose(self.seen("defocus_blur", severity), (windows * kernel).sum((-1, -2)), atol=1e-6)

    @unittest.skipUnless(scipy, "there is no SciPy here")
    def test_blur_is_scipys(self):
        for channels in (1, 3):
            pixels = self.some(4, channels)
            for severity in SEVERITIES:
                sigma = (.4, .6, .7, .8, 1)[severity - 1]
                with self.subTest(severity=severity, channels=channels):
                    expected = scipy.ndimage.gaussian_filter(pixels, (0, 0, sigma, sigma), mode="nearest", truncate=4)
                    numpy.testing.assert_allclose(self.seen("gaussian_blur", severity), expected, atol=1e-6)

    def test_blur_spreads_a_point_as_its_kernel_does(self):
        pixels = numpy.zeros((1, 1, 17, 17))
        pixels[0, 0, 8, 8] = 255
        self.images(pixels)
        for severity in SEVERITIES:
            sigma = (.4, .6, .7, .8, 1)[severity - 1]
            with self.subTest(severity=severity):
                seen = self.seen("gaussian_blur", severity)[0, 0]
                self.assertAlmostEqual(seen.sum(), 1, places=5)
                places = numpy.arange(-8, 9)
                near = abs(places) <= int(4 * sigma + 0.5)
                expected = near * numpy.exp(-places ** 2 / (2 * sigma ** 2))
                numpy.testing.assert_allclose(seen.sum(0), expected / expected.sum(), atol=1e-6)
                if sigma >= 0.7:  # from there on samples of the curve have its variance
                    self.assertAlmostEqual((seen.sum(0) * places ** 2).sum() / sigma ** 2, 1, delta=0.02)

    @unittest.skipUnless(PIL, "there is no Pillow here")
    def test_compression_and_coarse_pixels_are_pillows(self):
        for channels, side in ((1, 28), (3, 32), (3, 17)) if LONGER else ((3, 17),):
            pixels = self.some(3, channels, side)
            images = [PIL.Image.fromarray((image.transpose(1, 2, 0) * 255).round().astype(numpy.uint8).squeeze()) for image in pixels]

            def planes(image):
                return numpy.asarray(image, dtype=float).reshape(side, side, channels).transpose(2, 0, 1)
            for severity in SEVERITIES:
                with self.subTest(severity=severity, channels=channels, side=side):
                    few = int(side * (.95, .9, .85, .75, .65)[severity - 1])
                    expected = [planes(image.resize((few, few), PIL.Image.BOX).resize((side, side), PIL.Image.BOX)) for image in images]
                    with self.subTest("pixelate"):
                        numpy.testing.assert_allclose(255 * self.seen("pixelate", severity), expected, atol=1.01)
                    expected = []
                    for image in images:
                        file = io.BytesIO()
                        image.save(file, "JPEG", quality=(80, 65, 58, 50, 40)[severity - 1])
                        expected.append(planes(PIL.Image.open(file)))
                    numpy.testing.assert_allclose(255 * self.seen("jpeg_compression", severity), expected, atol=1.01)

    def test_it_comes_ahead_of_mean_and_std(self):
        self.some(8, 3)
        for name in ("gaussian_noise", "contrast", "jpeg_compression") if LONGER else ("gaussian_noise",):
            plain = self.seen(name, 5)
            self.assertTrue((plain >= 0).all() and (plain <= 1).all())
            for mean, std in (([.4, .5, .6], [.2, .25, .3]), ([.5], [.25]))[:2 if LONGER else 1]:
                scaled = self.seen(name, 5, scale=f", mean = {mean}, std = {std}")
                expected = (plain - numpy.array(mean)[:, None, None]) / numpy.array(std)[:, None, None]
                numpy.testing.assert_allclose(scaled, expected, atol=1e-5)
        numpy.testing.assert_allclose(self.seen(None, scale=", mean = [0.5]"), self.seen("contrast", 0, scale=", mean = [0.5]"), atol=1e-6)

    def test_pixels_of_a_table(self):
        self.shape = (1, 8, 8)
        random = numpy.random.default_rng(1)
        rows = random.integers(0, 17, (12, 64))
        rows[0] = 16 * (numpy.arange(64) % 2)
        self.write("rows.csv", "".join(",".join(map(str, row)) + f",{i % 3}\n" for i, row in enumerate(rows)))
        table = 'type = "csv", path = "rows.csv", classes = 3, shape = [1, 8, 8], scale = 16.0'
        pixels = rows.reshape(12, 1, 8, 8) / 16
        means = pixels.mean((2, 3), keepdims=True)
        idx_table = 'type = "idx", images = "images", labels = "labels", classes = 3SCALE'
        text = self.text("contrast", 3).replace(idx_table.replace("SCALE", ""), table + ", mean = [0.5], std = [0.25]")
        self.write("table.toml", text)
        self.host("predict", "table.toml", "--weights", "initial", "--set", "data.train.batch_size=2", "--inputs", "true", "--out", "seen.safetensors")
        seen = load_file(self.folder / "seen.safetensors")["input/0"]
        numpy.testing.assert_allclose(seen, ((pixels - means) * .4 + means - .5) / .25, atol=1e-6)
        for change, words in ((("mean = [0.5], std = [0.25]", "standardize = true"), "give its mean and std"),
                              (("shape = [1, 8, 8], ", ""), "give it a shape"), (("scale = 16.0", "scale = 2.0"), "set its scale"))[:3 if LONGER else 2]:
            with self.subTest(change):
                self.write("table.toml", text.replace(*change))
                said = self.host("predict", "table.toml", "--weights", "initial", "--set", "data.train.batch_size=2", "--out", "seen.safetensors", code=2).stderr
                self.assertIn(words, said)

    def test_a_sample_is_corrupted_in_the_same_way_whatever_reads_it(self):
        self.some(40, 3)
        mix = ["gaussian_noise", "contrast", "pixelate", "impulse_noise"]
        seen = self.seen(mix, [0, 5])
        for words in (("--set", "data.val.batch_size=7", "--set", "run.seed=99"), ("--set", "data.workers=2"))[:2 if LONGER else 1]:
            self.assertTrue((self.seen(mix, [0, 5], *words) == seen).all(), words)
        self.assertGreater(abs(self.seen(mix, [0, 5], seed=1) - seen).max(), 0.1)
        clean = self.seen(None)
        changed = (seen != clean).any((1, 2, 3))
        self.assertTrue(20 < changed.sum() < 40)  # a sixth of them stays clean
        half = self.seen(mix, [0, 5], "--set", 'data.val.take="last 20"')
        self.assertTrue((half == seen[20:]).all())
        # The training split, in the order of the epoch.
        train = self.seen(mix, [0, 5], "--batches", "2", split="train")
        self.assertTrue((self.seen(mix, [0, 5], "--batches", "4", "--set", "data.train.batch_size=8", split="train") == train).all())
        self.assertGreater(abs(self.seen(mix, [0, 5], "--batches", "2", "--set", "run.seed=99", split="train") - train).max(), 0.1)

    def test_training_is_the_same_for_any_workers_and_goes_on_to_the_same_bits(self):
        self.some(40, 1)
        killer = '[[hooks]]\ntype = "killer"\nplace = "place"\n'
        text = self.text(["gaussian_noise", "shot_noise", "uniform_noise"], [0, 5], eps=0.2, scale=", crop_padding = 2, flip = true").replace(
            "seed = 3", 'seed = 3\nresume = "auto"', 1).replace("2ep", "4ep") + '[checkpoint]\ntype = "full"\ninterval = "2ba"\n[logging]\ninterval = "1ba"\n' + killer
        expected = self.whole(text)
        self.assertEqual(self.whole(text.replace("[data]", "[data]\nworkers = 2")), expected)
        self.assertEqual(self.killed(text, *(("before_step 3", "before_step 9") if LONGER else ("before_step 7",))), expected)
        if not LONGER:
            return
        # Ranks read the same samples; sums are rounded in another order.
        plain = text.replace(killer, "")
        one = self.train(plain, "--overwrite")["metrics"]["val/loss"]
        two = self.train(plain, "--overwrite", "--ranks", "2")["metrics"]["val/loss"]
        self.assertAlmostEqual(two, one, places=5)
        losses = [line["values"]["train/loss"] for line in self.lines("metrics.jsonl", "train") if "train/loss" in line["values"]]
        self.assertEqual(len(set(losses)), len(losses))

    def test_an_epoch_draws_anew(self):
        self.flat(16, 128)
        steps = []
        for epochs in (1, 2):  # weights stand still: a step's loss is of its images alone
            self.train(self.text("gaussian_noise", 5).replace("lr = 0.01", "lr = 1e-30").replace("2ep", f"{epochs}ep").replace(
                "shuffle = true", "shuffle = false") + '[logging]\ninterval = "1ba"\n', "--overwrite")
            steps = [line["values"]["train/loss"] for line in self.lines("metrics.jsonl", "train") if "train/loss" in line["values"]]
        self.assertEqual(len(steps), 2)
        self.assertNotEqual(*steps)

    def test_within_a_cache(self):
        self.shape = (3, 8, 8)
        for i in range(8):
            self.write(f"data/{'day' if i < 4 else 'night'}/{i}.png", png((20 * i, 30, 200 - 20 * i)))
        text = self.text("gaussian_noise").replace(
            'type = "idx", images = "images", labels = "labels", classes = 3', 'type = "image_folder", path = "data", size = [8], mean = [0.5], std = [0.25]').replace(
                "4, 3]", "4, 2]").replace("batch_size = 16, shuffle", "batch_size = 1, shuffle")
        begin, end = text.index('type = "corrupted"'), text.index("train = {")
        options = text[begin:end].strip().replace("\n", ", ")
        seen = []
        for each in (text, f'{text[:begin]}type = "cache"\nof = [{{ {options} }}]\n{text[end:]}'):
            self.write("run.toml", each)
            self.host("predict", "run.toml", "--weights", "initial", "--inputs", "true", "--out", "seen.safetensors")
            seen.append(load_file(self.folder / "seen.safetensors")["input/0"])
        self.assertTrue((seen[0] == seen[1]).all())
        # New images are scaled, and not corrupted.
        said = self.host("predict", "run.toml", "data/day/0.png", "--weights", "initial").stdout
        self.write("run.toml", text.replace('corruptions = ["gaussian_noise"]', ""))
        clean = self.host("predict", "run.toml", "data/day/0.png", "--weights", "initial").stdout
        self.assertEqual(said.split(",")[-3:], clean.split(",")[-3:])

    def test_what_cannot_be_done_is_refused(self):
        self.flat(8, 100)
        refused = (({"name": "saturate"}, "1 channel, of grey"), ({"name": "uniform_noise"}, "set eps"), ({"name": "contrast", "eps": 0.1}, "leave eps out"),
                   ({"name": "contrast", "scale": ", scale = 1.0"}, "set its scale"), ({"name": "contrast", "severity": [4, 2]}, "give 3, say, or [0, 5]"),
                   ({"name": "contrast", "severity": []}, "give 3, say, or [0, 5]"), ({"name": "contrast", "severity": 6}, "severity"),
                   ({"name": "frost"}, "frost"), ({"name": "contrast", "scale": ", mean = [1, 2]"}, "mean has 2 numbers"))
        for options, words in refused[:None if LONGER else 5]:
            with self.subTest(options):
                self.write("run.toml", self.text(**options))
                said = self.host("predict", "run.toml", "--weights", "initial", "--set", "data.train.batch_size=2", code=2).stderr
                self.assertIn(words, said)
        self.write("run.toml", SMALL.replace("[data]\ntype = \"synthetic\"\nkind = \"classification\"\nshape = [8]\nclasses = 3", '[data]\ntype = "corrupted"\n'
                   'corruptions = ["contrast"]\nof = [{ type = "synthetic", kind = "classification", shape = [8], classes = 3, size = 16 }]').replace(
                       "size = 64, ", "").replace("size = 32, ", ""))
        self.assertIn("images [channels, height, width]", self.host("train", "run.toml", "-q", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
