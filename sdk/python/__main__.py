"""Starts the host with the LibTorch of the package torch, unless the environment names another."""
import importlib.util
import os
import pathlib
import sys

from . import prefix


def main():
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        os.environ.setdefault("TRAINYARD_LIBTORCH", str(pathlib.Path(torch.origin).parent))
    # Plugins look for libraries of the machine there, too.
    os.environ["LD_LIBRARY_PATH"] = ":".join([str(prefix / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    host = prefix / "bin/trainyard"
    os.execv(host, [str(host), *sys.argv[1:]])


if __name__ == "__main__":
    main()
