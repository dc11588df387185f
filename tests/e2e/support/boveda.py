"""Reads a container of the codec boveda: written from plugins/codec/boveda/README.md alone, with Python's long integers as bits."""
import struct


class Bits:
    def __init__(self, data):
        self.number, self.left = int.from_bytes(data, "little"), 8 * len(data)

    def take(self, count):
        assert count <= self.left, "too few bits"
        found = self.number & ((1 << count) - 1)
        self.number >>= count
        self.left -= count
        return found


def groups_of(data, count, width, layout, bitmap, size):
    """The small numbers of a packed block, and the bytes that they took."""
    whole = -(-count // size) * size
    at = whole // 8 if bitmap else 0
    there = [data[i // 8] >> i % 8 & 1 if bitmap else 1 for i in range(whole)]
    tag = 4 if width == 8 else 5
    tags = -(-(whole // size) * tag // 8)
    bits = Bits(data[at:at + tags])
    widths = [bits.take(tag) for _ in range(whole // size)]
    assert max(widths) <= width
    at += tags
    values = [0] * whole
    if layout == 2:
        row, lanes, used = 2 * width, [0] * 16, [0] * 16
        for lane in range(16):
            column = b"".join(data[i + lane * width // 8:i + (lane + 1) * width // 8] for i in range(at, len(data) - row + 1, row))
            bits = Bits(column)
            for i in range(lane, whole, 16):
                values[i] = bits.take(widths[i // size])
                used[lane] += widths[i // size]
        assert len(set(used)) == 1
        return values[:count], at + -(-used[0] // width) * row
    bits = Bits(data[at:])
    before = bits.left
    for group, w in enumerate(widths):
        places = [i for i in range(group * size, (group + 1) * size) if there[i]]
        if layout == 0:
            for i in places:
                values[i] = bits.take(w)
        else:
            for plane in range(w):
                for i in places:
                    values[i] |= bits.take(1) << plane
    return values[:count], at + -(-(before - bits.left) // 8)


def block_of(data, count, element, mapped, layout, bitmap, size):
    if element in (1, 2):
        width = 8 * element
        small, taken = groups_of(data, count, width, layout, bitmap, size)
        assert taken == len(data)
        plain = [(each >> 1 ^ -(each & 1)) % (1 << width) if mapped else each for each in small]
        return b"".join(each.to_bytes(element, "little") for each in plain)
    exponent_bits, low_bytes, top_bits = {3: (8, 2, 8), 4: (8, 0, 8), 5: (5, 1, 3), 6: (11, 6, 5)}[element]
    wide = 2 if element == 6 else 1
    groups = -(-count // size)
    small, taken = groups_of(data[wide * groups:], count, 8 * wide, layout, bitmap, size)
    rest = data[wide * groups + taken:]
    assert len(rest) == low_bytes * count + -(-top_bits * count // 8)
    tops = Bits(rest[low_bytes * count:])
    found = b""
    for i, each in enumerate(small):
        largest = int.from_bytes(data[i // size * wide:(i // size + 1) * wide], "little")
        exponent = largest - each if not bitmap else largest + 1 - each if each else 0
        top = tops.take(top_bits)
        mantissa = top & (1 << top_bits - 1) - 1
        for plane in reversed(range(low_bytes)):
            mantissa = mantissa << 8 | rest[plane * count + i]
        bits = 8 * low_bytes + top_bits - 1
        number = (top >> top_bits - 1) << bits + exponent_bits | exponent << bits | mantissa
        found += number.to_bytes((bits + exponent_bits + 1) // 8, "little")
    return found


def decode(data):
    magic, version, element, mapped, layout, bitmap, zero, size, block, count, length, _ = struct.unpack_from("<4s6BHIQQQ", data)
    assert (magic, version, zero, length) == (b"BVDA", 1, 0, len(data))
    width = [1, 1, 2, 4, 2, 2, 8][element]
    blocks = -(-count // block)
    places = [struct.unpack_from("<QQ", data, 40 + 16 * i)[0] for i in range(blocks)]
    begins = [each & ~(1 << 63) for each in places] + [length]
    found = b""
    for i, place in enumerate(places):
        piece, here = data[begins[i]:begins[i + 1]], min(block, count - i * block)
        if place >> 63:
            assert len(piece) == here * width
            found += piece
        else:
            found += block_of(piece, here, element, mapped, layout, bitmap, size)
    return found
