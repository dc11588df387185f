"""Every test ends, however it ends: its waits have a limit, and the processes that it has started go with it."""
import atexit
import ctypes
import os
import pathlib
import signal
import time

LIMIT = int(os.environ.get("TRAINYARD_TEST_LIMIT", 1200))  # seconds for a test, below those of ctest for all of a script
PR_SET_CHILD_SUBREAPER = 36


def children():
    """Processes that this one has started, and those whose own parents have ended: they come to this one."""
    found = set()
    for thread in pathlib.Path("/proc/self/task").iterdir():
        try:
            found.update(map(int, (thread / "children").read_text().split()))
        except OSError:
            continue  # the thread has ended
    return found


def end_children(but=frozenset()):
    """Kills them, and what they leave behind, and so on."""
    end = time.monotonic() + 10
    while (left := children() - but) and time.monotonic() < end:
        for child in left:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except OSError:
                continue  # somebody has waited for it, or it is another user's


def limit_wait():
    """From now on. Once it is over, the test is told so again and again: a subtest may be followed by others."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT, 60)


def too_long(*_):
    end_children()  # other threads may wait for them
    raise TimeoutError(f"the test takes longer than {LIMIT} s (TRAINYARD_TEST_LIMIT)")


def told_to_end(*_):
    raise KeyboardInterrupt("the test was told to end")


ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
signal.signal(signal.SIGALRM, too_long)
signal.signal(signal.SIGTERM, told_to_end)
atexit.register(end_children)
limit_wait()
