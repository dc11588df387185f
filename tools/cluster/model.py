"""What a step of many ranks takes, from what its parts cost: m nodes of n ranks, P = m n.

An exchange between p ranks goes around a ring; a message of b bytes takes alpha + b beta. So take
  all_reduce      2 (p - 1) (alpha + bytes / p beta)
  reduce_scatter    (p - 1) (alpha + bytes / p beta); Gloo's sends twice as much: it sums all on all ranks
  all_gather        (p - 1) (alpha + own beta)
The n ranks of a node share its card: where all of them send, beta is n times as large. A step of d parameters:
  flat          all_reduce of 4 d bytes among P
  topk          select(d), all_gather of 8 k bytes among P, k = density d, add(P k)
  hierarchical  reduce_scatter and all_gather of 4 d within nodes, between them all_reduce of 4 d / n among m
  hitopk        the same, but between nodes select(d / n), all_gather of 8 k among m, k = density d / n, add(m k)

A step is played through rank by rank and exchange by exchange: an exchange begins when the last of its ranks is there and
the one before it is through; it begins in the order and at the time that the host's does (core/engine/distributed,
plugins/compressor/hitopk.cpp): sums, and those within a node, while backward runs, the rest after it."""
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


def flat(costs, nodes, local, size):
    """An all-reduce of all ranks; the ring leaves each node once, and goes as fast as its slowest link."""
    return (costs.between if nodes > 1 else costs.inside).all_reduce(nodes * local, size)


def flat_pairs(costs, nodes, local, elements, density):
    ranks, k = nodes * local, kept(elements, density)
    link = costs.between if nodes > 1 else costs.inside
    return costs.select * elements + link.all_gather(ranks, PAIR * k) + costs.add * ranks * k


class Step:
    """One step of all ranks. Times are seconds since it began."""

    def __init__(self, costs, network, nodes, local, chance):
        self.costs, self.network, self.nodes, self.local = costs, network, nodes, local
        self.slow = [chance.choice(costs.spread) for _ in range(nodes * local)]

    def ready(self, rank, elements):
        """When the gradients of so many parameters are there: backward takes its time in proportion."""
        return self.slow[rank] * (self.costs.forward + self.costs.backward * elements / max(1, self.network.elements))

    def everyone(self, method, density=None):
        """When all ranks are through: of one exchange after the other among all of them."""
        ranks, link_free, elements, selecting = range(self.nodes * self.local), 0.0, 0, 0.0
        for bucket in self.network.buckets:
            elements += bucket
            takes = flat(self.costs, self.nodes, self.local, FLOAT * bucket)
            if method == "topk":  # selected on the thread of backward, which is held up by it
                select = self.costs.select * bucket
                selecting += select
                takes = flat_pairs(self.costs, self.nodes, self.local, bucket, density) - select
            begin = max(self.ready(rank, elements) for rank in ranks) + selecting
            link_free = max(begin, link_free) + takes
        return max(link_free, self.last() + selecting) + self.rest()

    def by_nodes(self, density=None):
        """When all ranks are through: within nodes, between them, within them."""
        costs, nodes, local = self.costs, self.nodes, self.local
        ranks, elements = range(nodes * local), 0
        scattered, free = [], [0.0] * nodes  # by bucket and node
        for bucket in self.network.buckets:
            elements += bucket
            for node in range(nodes):
                begin = max(self.ready(rank, elements) for rank in range(node * local, (node + 1) * local))
                free[node] = max(free[node], begin) + costs.scatter * costs.inside.all_gather(local, FLOAT * bucket / local)
            scattered.append(list(free))
        now = [self.ready(rank, self.network.elements) for rank in ranks]
        for bucket, done in zip(self.network.buckets, scattered):
            shard = -(-bucket // local)
            now = [max(now[rank], done[rank // local]) for rank in ranks]
            across = between_nodes(costs, nodes, local, shard, density)
            place = [max(now[place::local]) + across for place in range(local)]
            within = costs.inside.all_gather(local, FLOAT * shard)
            node = [max(place[rank % local] for rank in range(node * local, (node + 1) * local)) + within for node in range(nodes)]
            now = [node[rank // local] for rank in ranks]
        return max(*now, self.last() + self.rest())  # the rest goes beside the others: in a group of its own

    def last(self):
        return max(self.ready(rank, self.network.elements) for rank in range(len(self.slow)))

    def rest(self):
        return flat(self.costs, self.nodes, self.local, FLOAT * self.network.rest)

    def takes(self, method, density=None):
        return self.everyone(method, density) if method in ("flat", "topk") else self.by_nodes(density)


def step_time(costs, network, nodes, local, method, density=None, steps=1, seed=0):
    """Mean seconds of a step."""
    if method not in METHODS:
        raise ValueError(f"{method} is none of {', '.join(METHODS)}")
    if (density is not None) != (method in ("topk", "hitopk")):
        raise ValueError(f"{method} {'has no' if density is not None else 'needs a'} density")
    chance = random.Random(seed)
    return sum(Step(costs, network, nodes, local, chance).takes(method, density) for _ in range(steps)) / steps
