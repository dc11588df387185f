"""Emulated clusters (tools/cluster): a slow link is slow and carries what it should, trainings over it are the same trainings,
and the simulation is what its formulas say. Nothing here asserts that something is fast."""
import dataclasses
import random
import subprocess
import sys
import unittest
import unittest.mock

from support.host import DATA, SOURCE

sys.path.insert(0, str(SOURCE / "tools/cluster"))
import links  # noqa: E402
import model  # noqa: E402
import training  # noqa: E402

training.DATA = DATA
RECEIVES = """
import socket, sys, time
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
    began, count = time.monotonic(), 0
    while got := peer.recv(1 << 20):
        count += len(got)
print(count, began, time.monotonic())
"""
SENDS = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    peer.sendall(bytes(int(sys.argv[3])))
"""
# A matrix of 327,680 elements, one of 16,384 and one of 5120 are taken by a compressor, with the bias of 1280; the rest is not.
LAYERS = (64, 256, 1280, 4)
PARAMETERS = [64 * 256, 256, 256 * 1280, 1280, 1280 * 4, 4]
NETWORK = model.network(PARAMETERS, least=1024)


class Emulated(unittest.TestCase):
    def cluster(self, nodes, rate, kind=links.Cluster):
        cluster = kind(nodes, rate)
        try:
            cluster.__enter__()
        except links.NotHere as why:
            self.skipTest(str(why))
        self.addCleanup(cluster.__exit__)
        return cluster

    def train(self, where, *tables, **how):
        return training.train(where, training.made_up(LAYERS, 16), *tables, **how)


class Links(Emulated):
    def send(self, cluster, count, *ways):
        """Seconds until so many bytes have gone all ways, (from, to), at a time."""
        receivers = [subprocess.Popen(cluster.command(to, [sys.executable, "-c", RECEIVES, str(5000 + port)]), stdout=subprocess.PIPE, text=True)
                     for port, (_, to) in enumerate(ways)]
        for receiver in receivers:
            self.assertEqual(receiver.stdout.readline(), "ready\n")
        senders = [subprocess.Popen(cluster.command(origin, [sys.executable, "-c", SENDS, cluster.address(to), str(5000 + port), str(count)]))
                   for port, (origin, to) in enumerate(ways)]
        came = [receiver.communicate(timeout=60)[0].split() for receiver in receivers]
        self.assertEqual([sender.wait() for sender in senders], [0] * len(ways))
        self.assertEqual([int(each[0]) for each in came], [count] * len(ways))
        return max(float(end) for *_, end in came) - min(float(began) for _, began, _ in came)

    def test_a_link_takes_what_its_rate_says_and_counts_what_it_carries(self):
        cluster, count = self.cluster(3, "40mbit"), 2_500_000
        least = 0.9 * count / links.bytes_per_second("40mbit")
        before = cluster.sent(0)
        self.assertGreater(self.send(cluster, count, (0, 1)), least)
        self.assertGreaterEqual(cluster.sent(0) - before, count)
        self.assertLess(cluster.sent(0) - before, 1.03 * count)
        self.assertGreater(self.send(cluster, count, (0, 1), (0, 2)), 2 * least)  # one card sends to both
        self.assertGreater(self.send(cluster, count, (0, 2), (1, 2)), 2 * least)  # one card receives from both
        before = cluster.sent(0)
        self.send(cluster, count, (0, 0))  # within a node nothing leaves it, but for what networks say of themselves
        self.assertLess(cluster.sent(0) - before, 10_000)

    def test_nothing_is_left_of_it(self):
        cluster = links.Cluster(2, "1gbit")
        try:
            with cluster:
                holders = [each.pid for each in cluster._holders]
        except links.NotHere as why:
            self.skipTest(str(why))
        for holder in holders:
            self.assertFalse(subprocess.run(["ps", "-p", str(holder)], stdout=subprocess.DEVNULL).returncode == 0)

    def test_what_is_missing_is_said(self):
        with unittest.mock.patch.dict("os.environ", PATH="/nowhere"), self.assertRaisesRegex(links.NotHere, "there is no unshare and no nsenter"):
            links.Cluster(2, "1gbit").__enter__()
        for rate in ("100", "0mbit", "fast", "-1gbit"):
            with self.assertRaisesRegex(ValueError, f"{rate} is no rate"):
                links.Cluster(2, rate)


class OneMachine(links.Cluster):
    """Ranks that take themselves for those of several machines, side by side on one."""

    def command(self, node, words):
        return super().command(0, words)


class Trainings(Emulated):
    def test_the_weights_are_those_of_a_run_without_it(self):
        cluster, plain = self.cluster(2, "200mbit"), self.cluster(2, None, OneMachine)
        for tables in ((), (training.hierarchical(),), (training.hierarchical(0.05),)):
            with self.subTest(tables=tables):
                here, there = (self.train(where, *tables, local=2, duration="12ba") for where in (cluster, plain))
                self.assertEqual(here.result["digest"], there.result["digest"])
        self.assertLess(plain.sent(0), 100_000)

    def test_a_node_sends_what_the_formula_says_and_takes_as_long(self):
        """The nodes are known by LOCAL_WORLD_SIZE alone. What the host sums itself goes by nodes where it is short, and else in a ring
        of all ranks, which leaves each node once."""
        cluster, rate = self.cluster(2, "100mbit"), links.bytes_per_second("100mbit")
        plain = model.network(PARAMETERS)
        self.assertTrue(model.faster_by_nodes(2, 2, model.FLOAT * plain.buckets[0]) and not model.faster_by_nodes(2, 2, model.FLOAT * plain.rest))
        host = model.bytes_between(2, plain.buckets[0]) + 2 * 3 / 4 * model.FLOAT * plain.rest
        for density, table in ((None, training.hierarchical()), (0.1, training.hierarchical(0.1)), (None, "")):
            with self.subTest(table=table):
                shards = [-(-elements // 2) for elements in NETWORK.buckets]
                own = sum(model.PAIR * model.kept(shard, density) if density else model.FLOAT * shard for shard in shards)
                formula = 2 * own + model.bytes_between(2, NETWORK.rest) if table else host
                sent = []
                for steps in (5, 25):
                    before = [cluster.sent(node) for node in range(2)]
                    result = self.train(cluster, table, local=2, duration=f"{steps}ba")
                    self.assertEqual(result.train[-1].get("wire_bytes_between_nodes"), own if table else None)
                    sent.append([cluster.sent(node) - before[node] for node in range(2)])
                for few, many in zip(*sent):
                    step = (many - few) / 20
                    self.assertGreater(step, formula)
                    self.assertLess(step, 1.02 * formula + 3000 * 2 * (len(NETWORK.buckets) + 1))  # two ranks a node
                self.assertGreater(5 * sum(result.steps), 0.9 * 20 * formula / rate)

    def test_the_host_has_the_buckets_that_are_simulated(self):
        result = self.train(2, training.hierarchical(0.1, auto_dense="measured", local_world_size=1), duration="10ba", interval=1)
        self.assertEqual(len(result.measured), len(NETWORK.buckets))

    def test_a_rank_that_fails_is_named(self):
        with self.assertRaisesRegex(RuntimeError, r"process \d ended with 2: .*no_such"):
            self.train(self.cluster(2, "1gbit"), "[no_such]\n")


class Simulated(unittest.TestCase):
    CARD = model.Costs(inside=model.Link(0.0, 0.0), between=model.Link(0.0, 8 / 25e9), forward=0.0, backward=0.0)

    def test_figures_of_the_family_s_description(self):
        """16 nodes of 8, ResNet-50's parameters, 25 Gb/s."""
        elements = 25_557_032
        for density, megabytes, milliseconds in ((None, 191.7, 61.3), (0.1, 306.7, 98.1), (0.01, 30.7, 9.8), (0.001, 3.07, 0.98)):
            self.assertAlmostEqual(1e-6 * model.bytes_between(16, elements, density), megabytes, delta=0.05)
            self.assertAlmostEqual(1e3 * model.between_nodes(self.CARD, 16, 8, elements // 8, density), milliseconds, delta=0.05)
            network, method = model.Network((elements,), 0), "hitopk" if density else "hierarchical"
            self.assertAlmostEqual(1e3 * model.step_time(self.CARD, network, 16, 8, method, density), milliseconds, delta=0.05)
        for nodes in (2, 4, 16, 128):
            self.assertAlmostEqual(model.bytes_between(nodes, elements, 1 / nodes), model.bytes_between(nodes, elements))

    def test_a_step_of_one_bucket_is_the_sum_of_its_parts(self):
        costs = model.Costs(inside=model.Link(2e-5, 1e-10), between=model.Link(1e-4, 1e-8), forward=0.01, backward=0.02, select=3e-9, add=2e-8)
        d = 800_000
        for m, n in ((2, 1), (2, 2), (16, 8), (128, 8)):
            p = m * n
            within = (n - 1) * (2e-5 + 4 * d / n * 1e-10)
            nodes = 3 * within + 2 * (m - 1) * (1e-4 + 4 * d / n / m * n * 1e-8)
            ring = 2 * (p - 1) * (1e-4 + 4 * d / p * 1e-8)
            pairs = 3e-9 * d / n + (m - 1) * (1e-4 + 8 * (d // n // 100) * n * 1e-8) + 2e-8 * m * (d // n // 100)
            # Without bytes. The sum within the nodes goes beside what is before it, where that is longer.
            tail, beside = 2 * (m - 1) * 1e-4 + (n - 1) * 2e-5, 2 * (n - 1) * 2e-5
            expected = {("flat", None): (nodes if m * n > 4 else ring) + tail,
                        ("topk", 0.01): 3e-9 * d + max((p - 1) * (1e-4 + 8 * 8000 * 1e-8) + 2e-8 * p * 8000, beside) + tail,
                        ("hierarchical", None): nodes + tail,
                        ("hitopk", 0.01): 2 * within + max(within + pairs, beside) + tail}
            if n == 1:  # the tail goes in a ring, behind another or beside what is no ring
                expected["hierarchical", None] = max(tail, nodes)
                expected["hitopk", 0.01] = max(tail, pairs)
            for (method, density), seconds in expected.items():
                found = model.step_time(costs, model.Network((d,), 0), m, n, method, density)
                self.assertAlmostEqual(found, 0.03 + seconds, places=12, msg=f"{m} x {n} {method}")

    def test_buckets_are_laid_out_as_the_host_does(self):
        self.assertEqual(NETWORK, model.Network((6400, 344064), 4 + 256 + 28 + 6))
        self.assertEqual(model.network(PARAMETERS), model.Network((6404,), 327680 + 256 + 16384 + 28 + 6))
        self.assertEqual(model.network([10, 10], least=1024), model.Network((), 20 + 28 + 2))

    def test_buckets_leave_while_backward_runs(self):
        def takes(beta, buckets=(1, 1), spread=(1.0,)):
            costs = model.Costs(inside=model.Link(0.0, 0.0), between=model.Link(0.0, beta), forward=1.0, backward=2.0, spread=spread)
            return model.step_time(costs, model.Network(buckets, 0), 2, 1, "flat")

        self.assertAlmostEqual(takes(5 / 4), 2 + 5 + 5)  # the first is ready at 2 and takes 5, the next waits for it
        self.assertAlmostEqual(takes(0.5 / 4), 3 + 0.5)  # the first is through by 2.5; the last is not ready before 3
        self.assertAlmostEqual(takes(5 / 4, (2,)), 3 + 10)
        self.assertAlmostEqual(takes(0.5 / 4, spread=(2.0,)), 6 + 0.5)

    def test_the_slowest_rank_is_waited_for(self):
        costs = model.Costs(inside=model.Link(0.0, 0.0), between=model.Link(0.0, 0.0), forward=1.0, backward=2.0, spread=(1.0,) * 99 + (3.0,))
        for method in model.METHODS:
            few, many = (model.step_time(costs, model.Network((10,), 0), nodes, 8, method, 0.5 if "top" in method else None, steps=50)
                         for nodes in (1, 128))
            self.assertGreater(many, 8.9)  # of 1024 ranks one is slow
            self.assertLess(few, 5.0)

    def test_one_slow_rank_holds_up_those_that_need_it(self):
        """Of four, twice as slow: forward and backward take it 6 instead of 3."""
        def takes(slow, method, inside=0.0, between=0.0, buckets=(1, 1), nodes=2, local=2):
            costs = model.Costs(inside=model.Link(inside, 0.0), between=model.Link(between, 0.0), forward=1.0, backward=2.0)
            step = model.Step(costs, model.Network(buckets, 0), nodes, local, random.Random(0))
            step.slow = slow
            return step.takes(method)

        self.assertAlmostEqual(takes([1, 2], "flat", between=2.5, nodes=2, local=1), 4 + 5 + 5 + 5)  # ready at 4; the rest last
        for place in range(4):
            slow = [2 if rank == place else 1 for rank in range(4)]
            # A bucket: 2 within, between nodes 2 x 0.5, 1 within; the tail the same, its first 2 beside that.
            self.assertAlmostEqual(takes(slow, "hierarchical", inside=1.0, between=0.5, buckets=(1,)), 6 + 2 + 1 + 1 + 1 + 1)
            self.assertAlmostEqual(takes(slow, "hierarchical", inside=0.0, between=0.5, buckets=(1,)), 6 + 1 + 1)
            self.assertAlmostEqual(takes(slow, "flat", inside=0.1, between=0.5, buckets=(20_000,)), 6 + 6 * 0.5 + 2 * 0.5 + 0.1)

        # Of two buckets, ready at 2 and 3: what is within nodes first goes one after the other, each 2 x 3; the rest once backward is through.
        self.assertAlmostEqual(takes([1] * 4, "hierarchical", inside=3.0), max(max(2 + 6 + 3, 2 + 6 + 6) + 3, 2 + 6 + 6 + 6) + 3)
        self.assertAlmostEqual(takes([1] * 4, "hierarchical", between=0.5), 3 + 1 + 1 + 1)

    def test_the_host_sums_by_nodes_what_is_short(self):
        for nodes, local, most in ((1, 8, 0), (8, 1, 0), (2, 2, 32_768), (2, 8, 7 * 32_768), (128, 8, 1771 * 32_768)):
            for size in filter(None, (4, max(0, most - 4), most, most + 4)):
                self.assertEqual(model.faster_by_nodes(nodes, local, size), size < most)
        costs = dataclasses.replace(self.CARD, inside=model.Link(1e-4, 0.0), between=model.Link(1e-3, 0.0))
        # 2 (128 - 1) between nodes, 3 (8 - 1) within one, where a ring of all has 2 (1024 - 1).
        self.assertAlmostEqual(model.step_time(costs, model.Network((), 1000), 128, 8, "flat"), 254e-3 + 21e-4, places=12)
        self.assertAlmostEqual(model.step_time(costs, model.Network((), 1000), 1024, 1, "flat"), 2046e-3, places=12)

    def test_what_it_cannot_is_refused(self):
        with self.assertRaisesRegex(ValueError, "hitopk needs a density"):
            model.step_time(self.CARD, NETWORK, 2, 2, "hitopk")
        with self.assertRaisesRegex(ValueError, "ring is none of"):
            model.step_time(self.CARD, NETWORK, 2, 2, "ring")


if __name__ == "__main__":
    unittest.main()
