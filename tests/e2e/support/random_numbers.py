"""The random numbers of a run, in NumPy: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) keyed by
seed and owner, as sdk/include/trainyard/random.hpp says."""
import numpy

WORD = 2 ** 32
MASK = numpy.uint64(WORD - 1)


def mixed(seed, owner):
    """The key: FNV-1a of the name and the finalizer of SplitMix64."""
    name = 0xCBF29CE484222325
    for byte in owner.encode():
        name = (name ^ byte) * 0x100000001B3 % 2 ** 64
    key = 0
    for word in (seed, name):
        key = (key + word + 0x9E3779B97F4A7C15) % 2 ** 64
        key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2 ** 64
        key = (key ^ key >> 27) * 0x94D049BB133111EB % 2 ** 64
        key ^= key >> 31
    return key % WORD, key // WORD


class Stream:
    def __init__(self, seed, owner, step=0, lane=0):
        self.key, self.step, self.lane = mixed(seed, owner), step, lane

    def words(self, count, first_block=0):
        """The first `count` words from a block on, four a block."""
        blocks = numpy.arange(first_block, first_block + (count + 3) // 4, dtype=numpy.uint64)
        high = blocks >> numpy.uint64(32) & numpy.uint64(0xFFFF) | numpy.uint64(self.step // WORD << 16)
        x = [blocks & MASK, high, numpy.full_like(blocks, self.step % WORD), numpy.full_like(blocks, self.lane)]
        key = list(self.key)
        for _ in range(10):
            a, b = x[0] * numpy.uint64(0xD2511F53), x[2] * numpy.uint64(0xCD9E8D57)
            x = [b >> numpy.uint64(32) ^ x[1] ^ numpy.uint64(key[0]), b & MASK, a >> numpy.uint64(32) ^ x[3] ^ numpy.uint64(key[1]), a & MASK]
            key = [(key[0] + 0x9E3779B9) % WORD, (key[1] + 0xBB67AE85) % WORD]
        return numpy.stack(x, 1).ravel()[:count]

    def floats(self, count, first_block=0):
        """Numbers in [0, 1) with 24 bits."""
        return (self.words(count, first_block) >> numpy.uint64(8)) * 2.0 ** -24

    def normal(self, count):
        """By Box and Muller, pairs of words."""
        words = self.words(count + count % 2).astype(float).reshape(-1, 2)
        radius, angle = numpy.sqrt(-2 * numpy.log((words[:, 0] + 1) / WORD)), 2 * numpy.pi * words[:, 1] / WORD
        return numpy.stack([radius * numpy.cos(angle), radius * numpy.sin(angle)], 1).ravel()[:count]

    def uniform(self, index):
        """One number in [0, 1) with 53 bits."""
        low, high = self.words(2 + 2 * (index % 2), index // 2)[-2:]
        return int(high * numpy.uint64(WORD) + low >> numpy.uint64(11)) * 2.0 ** -53
