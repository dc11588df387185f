"""Corruptions of the dataset corrupted that draw what they do to an image, and the zoom: each against NumPy, SciPy and OpenCV, with the
same random numbers; where SciPy is not there, against NumPy alone."""
import math
import os
import unittest

import numpy

from support.corrupted_images import CorruptedTest
from support.random_numbers import Stream

try:
    import scipy.ndimage
except ImportError:
    scipy = None
try:
    import cv2
except ImportError:
    cv2 = None

LONGER = bool(os.environ.get("TRAINYARD_LONGER"))
LUMA = numpy.array([.299, .587, .114])


def blurred(values, sigma, mode="edge", truncate=4.0):
    """The last two axes, by samples of a normal curve."""
    radius = int(truncate * sigma + .5)
    if radius == 0:
        return values
    curve = numpy.exp(-numpy.arange(-radius, radius + 1) ** 2 / (2 * sigma ** 2))
    for axis in (-1, -2):
        wide = numpy.pad(values, [(0, 0)] * (values.ndim - 2) + [(radius, radius) if axis == each else (0, 0) for each in (-2, -1)], mode=mode)
        values = numpy.apply_along_axis(numpy.convolve, axis, wide, curve / curve.sum(), mode="valid")
    return values


def enlarged(plane, factor):
    """The middle of a square, by lines between neighbours."""
    side = len(plane)
    part = math.ceil(side / factor)
    made, begin = round(part * factor), (side - part) // 2
    middle = plane[begin:begin + part, begin:begin + part]
    if scipy:
        larger = scipy.ndimage.zoom(middle, factor, order=1)
        assert len(larger) == made
    else:
        places = numpy.linspace(0, part - 1, made)
        larger = numpy.array([numpy.interp(places, range(part), row) for row in middle])
        larger = numpy.array([numpy.interp(places, range(part), column) for column in larger.T]).T
    cut = (made - side) // 2
    return larger[cut:cut + side, cut:cut + side]


def moved(plane, radius, sigma, degrees):
    """ImageMagick's motion blur."""
    curve = numpy.exp(-numpy.arange(2 * radius + 1) ** 2 / (2 * sigma ** 2))
    y, x = numpy.indices(plane.shape)
    made = numpy.zeros(plane.shape)
    for i, weight in enumerate(curve / curve.sum()):
        down, right = (math.ceil(i * side(math.radians(degrees)) - .5) for side in (math.sin, math.cos))
        made += weight * plane[numpy.clip(y + down, 0, len(plane) - 1), numpy.clip(x + right, 0, plane.shape[1] - 1)]
    return made


def between(plane, y, x, mode):
    """Values between four pixels; mode as SciPy calls it."""
    if scipy:
        return scipy.ndimage.map_coordinates(plane, [y, x], order=1, mode=mode)
    wide = numpy.pad(plane, 40, mode={"reflect": "symmetric", "mirror": "reflect"}[mode])
    top, left = numpy.floor(y).astype(int), numpy.floor(x).astype(int)
    down, right = y - top, x - left
    at = lambda dy, dx: wide[top + 40 + dy, left + 40 + dx]  # noqa: E731
    return (at(0, 0) * (1 - right) + at(0, 1) * right) * (1 - down) + (at(1, 0) * (1 - right) + at(1, 1) * right) * down


class Draws(Stream):
    """Where in the stream of a sample a corruption finds its numbers."""

    def field(self, count, which):
        return self.floats(count, (which + 1) * 2 ** 32)

    def number(self, which, low, high):
        return low + (high - low) * self.uniform(2 ** 41 + which)


class Weather(CorruptedTest):
    def check(self, name, expected, channels=(1, 3), atol=2e-6, side=16, severities=range(1, 6)):
        for each in channels:
            pixels = self.some(5, each, side)
            for severity in severities if LONGER else severities[-1:]:
                with self.subTest(name, severity=severity, channels=each, side=side):
                    made = [expected(image, severity, Draws(7, f"corrupted/{name}", sample)) for sample, image in enumerate(pixels)]
                    seen = self.seen(name, severity, seed=7)
                    numpy.testing.assert_allclose(seen, numpy.clip(made, 0, 1), atol=atol)
                    self.assertGreater(abs(seen - pixels).mean(), .003)

    @unittest.skipUnless(scipy, "there is no SciPy here")
    def test_what_stands_in_for_scipy_here_is_scipys(self):
        values = numpy.random.default_rng(1).random((3, 11, 11))
        for sigma in (.25, .7, 2.1):
            for mode, scipys in (("edge", "nearest"), ("symmetric", "reflect")):
                expected = scipy.ndimage.gaussian_filter(values, (0, sigma, sigma), mode=scipys, truncate=3)
                numpy.testing.assert_allclose(blurred(values, sigma, mode, 3), expected, atol=1e-12)

    def test_glass(self):
        def expected(image, severity, draws):
            sigma, rounds = ((.05, 1), (.25, 1), (.4, 1), (.25, 2), (.4, 2))[severity - 1]
            image = blurred(image, sigma).copy()
            side = image.shape[-1]
            words = draws.words(rounds * side * side).reshape(rounds, side, side)
            for each in words:
                for y in range(side - 1, 1, -1):
                    for x in range(side - 1, 1, -1):
                        up, left = y - int(each[y, x]) // 2 ** 31, x - int(each[y, x]) // 2 ** 30 % 2
                        image[:, [y, up], [x, left]] = image[:, [up, y], [left, x]]
            return blurred(image, sigma)
        self.check("glass_blur", expected)

    def test_glass_exchanges_pixels(self):
        """Without a blur the pixels are those of the image, at most one place up or left of where they were once, and further down right."""
        self.images(numpy.broadcast_to(numpy.arange(256, dtype=numpy.uint8).reshape(1, 1, 16, 16), (60, 1, 16, 16)))
        seen = (255 * self.seen("glass_blur", 1)).round().astype(int).reshape(60, 256)
        self.assertTrue((numpy.sort(seen) == numpy.arange(256)).all())
        y, x = numpy.divmod(seen, 16)
        down, right = numpy.arange(256) // 16 - y, numpy.arange(256) % 16 - x
        self.assertEqual((down.max(), right.max()), (1, 1)) if (down < 0).any() else self.fail("no pixel went up")
        inner = numpy.zeros((16, 16), dtype=bool)
        inner[4:-1, 4:-1] = True
        self.assertAlmostEqual((seen != numpy.arange(256))[:, inner.ravel()].mean(), .9, delta=.1)

    def test_motion(self):
        def expected(image, severity, draws):
            radius, sigma = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))[severity - 1]
            degrees = draws.number(0, -45, 45)
            return [moved(plane, radius, sigma, degrees) for plane in image]
        self.check("motion_blur", expected)
        self.check("motion_blur", expected, (1,), side=5)

    def test_zoom(self):
        def expected(image, severity, draws):
            factors = numpy.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], .01)
            return (image + sum(numpy.array([enlarged(plane, factor) for plane in image]) for factor in factors)) / (len(factors) + 1)
        for side in (16, 28, 32):
            self.check("zoom_blur", expected, (1,) if side < 32 else (3,), side=side)

    def test_snow(self):
        def expected(image, severity, draws):
            mean, deviation, factor, least, radius, sigma, kept = ((.1, .2, 1, .6, 8, 3, .95), (.1, .2, 1, .5, 10, 4, .9), (.15, .3, 1.75, .55, 10, 4, .9),
                                                                   (.25, .3, 2.25, .6, 12, 6, .85), (.3, .3, 1.25, .65, 14, 12, .8))[severity - 1]
            side = image.shape[-1]
            layer = enlarged(mean + deviation * draws.normal(side * side).reshape(side, side), factor)
            layer = moved(numpy.clip(numpy.where(layer < least, 0, layer), 0, 1), radius, sigma, draws.number(0, -135, -45))
            grey = image[0] if len(image) == 1 else numpy.tensordot(LUMA, image, 1)
            return kept * image + (1 - kept) * numpy.maximum(image, grey * 1.5 + .5) + layer + numpy.rot90(layer, 2)
        self.check("snow", expected)

    def test_fog(self):
        def expected(image, severity, draws):
            amount, decay = ((.2, 3), (.5, 3), (.75, 2.5), (1, 2), (1.5, 1.75))[severity - 1]
            side = 2 ** math.ceil(math.log2(image.shape[-1]))
            drawn = 2 * draws.field(side * side, 0).reshape(side, side) - 1
            clouds, step, reach = numpy.zeros((side, side)), side, 100.0
            while step > 1:
                half = step // 2
                for places, corners in (([(half, half)], ((-half, -half), (-half, half), (half, -half), (half, half))),
                                        ([(0, half), (half, 0)], ((-half, 0), (half, 0), (0, -half), (0, half)))):
                    around = sum(numpy.roll(clouds, (dy, dx), (0, 1)) for dy, dx in corners) / 4
                    for y, x in places:
                        clouds[y::step, x::step] = (around + reach ** 2 * drawn)[y::step, x::step]
                step, reach = half, reach / decay
            clouds = (clouds - clouds.min()) / (clouds.max() - clouds.min())
            clouds = clouds[:image.shape[-2], :image.shape[-1]]
            return (image + amount * clouds) * image.max() / (image.max() + amount)
        self.check("fog", expected)
        self.check("fog", expected, (3,), side=20)

    @staticmethod
    def liquid(severity, side, draws):
        """The drops, 0 beside them."""
        mean, deviation, sigma, least = ((.62, .1, .7, .7), (.65, .1, .8, .7), (.65, .3, 1, .69), (.65, .1, .7, .69), (.65, .1, .5, .68))[severity - 1]
        layer = blurred(mean + deviation * draws.normal(side * side).reshape(side, side), sigma)
        return numpy.where(layer < least, 0, layer)

    @staticmethod
    def coloured(colour, channels):
        """A colour as images have it, of grey ones its grey."""
        colour = numpy.array(colour) / 255
        return (colour if channels == 3 else numpy.array([colour @ LUMA]))[:, None, None]

    def test_spatters_of_mud(self):
        def expected(image, severity, draws):
            amount = blurred((self.liquid(severity, image.shape[-1], draws) > 0).astype(float), .6)
            amount[amount < .8] = 0
            return image * (1 - amount) + amount * self.coloured((63, 42, 20), len(image))
        self.check("spatter", expected, severities=(4, 5))

    @unittest.skipUnless(cv2, "there is no OpenCV here")
    def test_spatters_of_water_are_opencvs(self):
        def expected(image, severity, draws):
            drops = numpy.minimum(self.liquid(severity, image.shape[-1], draws) * 255, 255).astype(numpy.uint8)
            far = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
            depth = cv2.equalizeHist(cv2.blur(numpy.minimum(far, 20), (3, 3)).astype(numpy.uint8))
            depth = cv2.filter2D(depth, cv2.CV_8U, numpy.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
            amount = drops * cv2.blur(depth, (3, 3)).astype(float)
            return image + .5 * amount / amount.max() * self.coloured((175, 238, 238), len(image))
        self.check("spatter", expected, side=32, severities=(1, 2, 3))  # weak edges are rare in smaller images

    def test_elastic(self):
        def expected(image, severity, draws):
            side = image.shape[-1]
            amount, sigma, corner = (side * each for each in ((0, 0, .08), (.05, .2, .07), (.08, .06, .06), (.1, .04, .05), (.1, .03, .03))[severity - 1])
            middle, size = side // 2, side // 3
            corners = numpy.array([[middle + size, middle + size], [middle + size, middle - size], [middle - size, middle - size]], float)
            then = corners + numpy.array([draws.number(i, -corner, corner) for i in range(6)]).reshape(3, 2)
            back = numpy.linalg.solve(numpy.column_stack([then, numpy.ones(3)]), corners)  # places of the result to those of the image
            y, x = numpy.mgrid[:side, :side].astype(float)
            from_x, from_y = numpy.tensordot(back.T, numpy.stack([x, y, numpy.ones_like(x)]), 1)
            fields = [2 * draws.field(side * side, which).reshape(side, side) - 1 for which in (0, 1)]
            right, down = (amount * blurred(each, sigma, "symmetric", 3) if sigma else 0 for each in fields)
            return [between(between(plane, from_y, from_x, "mirror"), y + down, x + right, "reflect") for plane in image]
        self.check("elastic_transform", expected, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
