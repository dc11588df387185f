"""What a step of many ranks takes, from what its parts cost: m nodes of n ranks, P = m n.

An exchange between p ranks goes around a ring; a message of b bytes takes alpha + b beta. So take
  all_reduce      2 (p - 1) (alpha + bytes / p beta)
  reduce_scatter    (p - 1) (alpha + bytes / p beta); Gloo's sends twice as much: it sums all on all ranks
  all_gather        (p - 1) (alpha + own beta)
The n ranks of a node share its card: where all of them send, beta is n times as large. A step of d parameters:
  flat          all_reduce of 4 d bytes among P; by nodes, as hierarchical, what is short (faster_by_nodes)
  topk          select(d), all_gather of 8 k bytes among P, k = density d, add(P k)
  hierarchical  reduce_scatter and all_gather of 4 d within nodes, between them all_reduce of 4 d / n among m
  hitopk        the same, but between nodes select(d / n), all_gather of 8 k among m, k = density d / n, add(m k)

A step is played through rank by rank and exchange by exchange: an exchange begins when the last of its ranks is there and
the one before it is through; it begins in the order and at the time that the host's does (core/engine/distributed,
plugins/compressor/hitopk.cpp): sums, and those within a node, while backward runs, the rest after it. The last bucket, which
no compressor takes, has the tail with it: whatever the method, it is summed as a flat one is."""
import dataclasses
import random

FLOAT, PAIR = 4, 8  # bytes
TAIL = 28  # floats that go with the last bucket, and one for each parameter


@dataclasses.dataclass(frozen=True)
class Link:
    alpha: float  # seconds a message
    beta: float   # seconds a byte

    def all_reduce(self, ranks, size, sharing=1):
        return 2 * self.all_gather(ranks, size / ranks, sharing)

    def all_gather(self, ranks, own, sharing=1):
        return (ranks - 1) * (self.alpha + own * self.beta * sharing)


@dataclasses.dataclass(frozen=True)
class Costs:
    inside: Link
    between: Link
    forward: float        # seconds, with all of a step that is neither backward nor exchange
    backward: float
    select: float = 0.0   # seconds an element that is looked at
    add: float = 0.0      # seconds a pair that has come
    scatter: float = 2.0  # of a reduce_scatter, over a ring's: Gloo's
    spread: tuple = (1.0,)  # what compute takes over what it says here, one of these a rank and step


@dataclasses.dataclass(frozen=True)
class Network:
    buckets: tuple  # parameters in each, in the order in which their gradients are ready
    rest: int       # in the last one, which is summed as it is when backward is through

    @property
    def elements(self):
        return sum(self.buckets) + self.rest


def network(parameters, bucket_bytes=25 << 20, least=None):
    """As core/engine/distributed lays out parameters of so many elements each, given in the network's order. `least`: elements
    that a compressor takes; None: there is none."""
    buckets, room = [], min(1 << 20, bucket_bytes)
    taken = [size for size in reversed(parameters) if least is not None and size >= least]
    others = [size for size in reversed(parameters) if least is None or size < least]
    for group in (taken, others):
        if not group and group is taken:
            continue
        if buckets:
            room = bucket_bytes
        buckets.append(0)
        for size in group:
            if buckets[-1] > 0 and FLOAT * (buckets[-1] + size) > room:
                buckets.append(0)
                room = bucket_bytes
            buckets[-1] += size
    return Network(tuple(buckets[:-1]), buckets[-1] + TAIL + len(parameters))


METHODS = ("flat", "topk", "hierarchical", "hitopk")


def kept(elements, density):
    return min(max(1, int(density * elements)), elements)


def between_nodes(costs, nodes, local, elements, density=None):
    """Seconds that a shard of so many elements takes between nodes; of a density: pairs."""
    if nodes == 1:
        return 0.0
    if density is None:
        return costs.between.all_reduce(nodes, FLOAT * elements, local)
    k = kept(elements, density)
    return costs.select * elements + costs.between.all_gather(nodes, PAIR * k, local) + costs.add * nodes * k


def bytes_between(nodes, elements, density=None):
    """That leave each node for a network of so many parameters."""
    return PAIR * density * elements * (nodes - 1) if density is not None else 2 * FLOAT * elements * (nodes - 1) / nodes


def flat(costs, nodes, local, elements, density=None):
    """A ring of all ranks leaves each node once, and goes as fast as its slowest link. Of a density: pairs, once they are selected."""
    ranks, link = nodes * local, costs.between if nodes > 1 else costs.inside
    if density is None:
        return link.all_reduce(ranks, FLOAT * elements)
    k = kept(elements, density)
    return link.all_gather(ranks, PAIR * k) + costs.add * ranks * k


def faster_by_nodes(nodes, local, size):
    """Whether the host sums a bucket of so many bytes by nodes (sdk/include/trainyard/helpers/nodes.hpp)."""
    spared = 2 * (nodes * local - 1) - 2 * (nodes - 1) - 3 * (local - 1)
    return size < 32768 * spared


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Of a bucket: by nodes, or in a ring of all ranks."""
    elements: int
    by_nodes: bool
    density: float = None  # that goes between nodes, or to all ranks, as pairs; None: all


class Step:
    """One step of all ranks. Times are seconds since it began."""

    def __init__(self, costs, network, nodes, local, chance, rings=False):
        self.costs, self.network, self.nodes, self.local, self.rings = costs, network, nodes, local, rings
        self.slow = [chance.choice(costs.spread) for _ in range(nodes * local)]

    def ready(self, rank, elements):
        """When the gradients of so many parameters are there: backward takes its time in proportion."""
        return self.slow[rank] * (self.costs.forward + self.costs.backward * elements / max(1, self.network.elements))

    def exchanges(self, method, density):
        """A bucket each, in the order in which they leave; the last one with the tail, when backward is through."""
        def by_host(elements):
            return Exchange(elements, not self.rings and faster_by_nodes(self.nodes, self.local, FLOAT * elements))

        def by_compressor(elements):
            return Exchange(elements, method != "topk", density)

        return [*map(by_host if method == "flat" else by_compressor, self.network.buckets), by_host(self.network.rest)]

    def takes(self, method, density=None):
        """When all ranks are through."""
        exchanges, local = self.exchanges(method, density), self.local
        now = [self.ready(rank, self.network.elements) for rank in range(self.nodes * local)]
        for exchange, done in zip(exchanges, self.leave(exchanges)):
            now = [max(time, done[rank // local]) for rank, time in enumerate(now)]
            if exchange.by_nodes:
                shard = -(-exchange.elements // local)
                across = between_nodes(self.costs, self.nodes, local, shard, exchange.density)
                now = [max(now) + across + self.costs.inside.all_gather(local, FLOAT * shard)] * len(now)
        return max(now)

    def leave(self, exchanges):
        """When each node has of each exchange what needs no thread that waits: while backward runs, a ring of all ranks goes its
        way, or the sum within a node. What is between nodes comes once backward is through, a bucket after the other."""
        costs, local, ranks = self.costs, self.local, range(self.nodes * self.local)
        elements, selecting, ring, within, done = 0, 0.0, 0.0, [0.0] * self.nodes, []
        for exchange in exchanges:
            elements += exchange.elements
            if exchange.density is not None and not exchange.by_nodes:  # selected on the thread of backward, which is held up by it
                selecting += costs.select * exchange.elements
            now = [self.ready(rank, elements) + selecting for rank in ranks]
            if exchange.by_nodes:
                takes = costs.scatter * costs.inside.all_gather(local, FLOAT * exchange.elements / local)
                within = [max(free, *now[node * local:(node + 1) * local]) + takes for node, free in enumerate(within)]
            else:
                ring = max(ring, *now) + flat(costs, self.nodes, local, exchange.elements, exchange.density)
            done.append(within if exchange.by_nodes else [ring] * self.nodes)
        return done


def step_time(costs, network, nodes, local, method, density=None, steps=1, seed=0, rings=False):
    """Mean seconds of a step. `rings`: as if the host summed nothing by nodes."""
    if method not in METHODS:
        raise ValueError(f"{method} is none of {', '.join(METHODS)}")
    if (density is not None) != (method in ("topk", "hitopk")):
        raise ValueError(f"{method} {'has no' if density is not None else 'needs a'} density")
    chance = random.Random(seed)
    return sum(Step(costs, network, nodes, local, chance, rings).takes(method, density) for _ in range(steps)) / steps
