"""Nodes of an emulated cluster on one machine, with slow links between them.

A node is a network and a host name of its own (Linux namespaces), with one network card: a pair of virtual Ethernet devices
whose other end is in a switch, a network, too. A token bucket of the kernel (tc tbf) at each end gives the card its rate,
the same out and in. Processes of a node reach each other on its loopback, at the machine's speed. Whatever runs there
is what runs on machines: the kernel's TCP, with nothing in between. Needs root, or user namespaces for everybody.

Emulated is the rate alone: no latency is added (the kernel's own is some 50 us), nothing gets lost, and all nodes
share the processors of this machine."""
import json
import os
import re
import shutil
import subprocess

BUCKET = 12000     # bytes that may leave at once: little more than a packet has, or a small message would cross for nothing,
WAKING = 150e-6    # but as many as the rate is for so many seconds, after which the kernel wakes for more
QUEUE = 32 << 20   # bytes: more than TCP has under way, so that nothing is dropped
MTU = 9000
UNITS = {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


class NotHere(Exception):
    """This machine has not what emulated links need."""


def bytes_per_second(rate):
    """Of a rate as tc takes it: 100mbit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", rate)
    if not found or float(found[1]) <= 0.0:
        raise ValueError(f"{rate} is no rate: a number and bit, kbit, mbit or gbit, as in 100mbit")
    return float(found[1]) * UNITS[found[2]] / 8


class Cluster:
    """With `with`: afterwards nothing of it is left. `rate`: of each node's card; None: no limit."""

    def __init__(self, nodes, rate):
        self.nodes, self.rate = nodes, rate
        if rate is not None:
            bytes_per_second(rate)
        self._holders = []

    def __enter__(self):
        missing = [tool for tool in ("unshare", "nsenter", "ip", "tc") if not shutil.which(tool)]
        if missing:
            raise NotHere(f"no emulated links here: there is no {' and no '.join(missing)} (util-linux, iproute2)")
        try:
            user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
            self._switch = self._hold(["unshare", *user, "--net"], "a network of its own")
            self._ask(self._enter(self._switch, []), "ip link add switch type bridge", "ip link set switch up")
            for node in range(self.nodes):
                self._add(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """Namespaces go with the last process in them, and devices with their namespace."""
        for holder in self._holders:
            holder.kill()
            holder.communicate()
        self._holders = []

    @staticmethod
    def address(node):
        return f"10.77.{(node + 1) // 250}.{(node + 1) % 250}"

    def command(self, node, words):
        """The same, for a process of that node."""
        return [*self._enter(self._holders[1 + node].pid, ["--uts"]), *map(str, words)]

    def sent(self, node):
        """Bytes that have left it by its card: the kernel's count, headers of TCP, IP and Ethernet among them."""
        done = subprocess.run(self.command(node, ["ip", "-s", "-j", "link", "show", "eth0"]), check=True, text=True, capture_output=True)
        return json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]

    def _hold(self, words, what):
        """Keeps namespaces there until this process ends, however it does: `cat` reads from it. Gives the process."""
        holder = subprocess.Popen([*words, "sh", "-c", "echo ready; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self._holders.append(holder)
        if holder.stdout.readline() != "ready\n":
            raise NotHere(f"no emulated links here: this machine does not allow {what} ({holder.stderr.read().strip()})")
        return holder.pid

    @staticmethod
    def _enter(process, more):
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(process), *user, "--net", *more, "--"]

    @staticmethod
    def _ask(before, *commands):
        for command in commands:
            done = subprocess.run([*before, *command.split()], text=True, capture_output=True)
            if done.returncode != 0:
                raise NotHere(f"no emulated links here: `{command}`: {(done.stderr or done.stdout).strip()}")

    def _add(self, node):
        switch = self._enter(self._switch, [])
        self._hold([*switch, "unshare", "--net", "--uts"], "networks within a network")
        # nsenter and unshare become the shell, and that `cat`: the process is still the one that was started.
        process, port, address = self._holders[-1].pid, f"port{node}", self.address(node)
        self._ask(switch, f"ip link add name {port} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {process}",
                  f"ip link set {port} master switch up")
        # A host name that is an address needs no file of names: c10d takes the device that it stands for.
        self._ask(self.command(node, []), f"hostname {address}", "ip link set lo up", f"ip address add {address}/16 dev eth0",
                  "ip link set eth0 up")
        if self.rate is not None:
            burst = max(BUCKET, int(WAKING * bytes_per_second(self.rate)))
            bucket = f"root tbf rate {self.rate} burst {burst} limit {QUEUE}"
            self._ask(switch, f"tc qdisc add dev {port} {bucket}")
            self._ask(self.command(node, []), f"tc qdisc add dev eth0 {bucket}")
