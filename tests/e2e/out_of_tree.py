"""Installs the SDK, builds its template plugin outside the tree from the installation alone, and lists it.

out_of_tree.py BUILD LIST_PLUGINS
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

build, list_plugins = map(pathlib.Path, sys.argv[1:3])
template = pathlib.Path(__file__).resolve().parents[2] / "sdk/templates/schedule"


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    prefix = folder / "prefix"
    run("cmake", "--install", build, "--component", "sdk", "--prefix", prefix)
    source = folder / "my_schedule"
    shutil.copytree(template, source)
    # The package knows the LibTorch that it was built with.
    environment = {key: value for key, value in os.environ.items() if key != "TRAINYARD_LIBTORCH"}
    run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}", env=environment)
    run("cmake", "--build", source / "build", env=environment)
    listed = run(list_plugins, source / "build")
    expected = ["schedule", "my_schedule", "1.0.0"]
    if [line.split()[:3] for line in listed.splitlines()] != [expected]:
        sys.exit(f"expected one line that begins with {' '.join(expected)}, found:\n{listed}")

    # A plugin that describes itself wrongly fails its build, and does so again when nothing has changed.
    text = (source / "my_schedule.cpp").read_text()
    (source / "my_schedule.cpp").write_text(text.replace("power = 2.0", "power = -2.0"))
    for attempt in ("first", "second"):
        failed = subprocess.run(["cmake", "--build", str(source / "build")], text=True, capture_output=True,
                                env=environment)
        message = "option `power`: has the default -2, below its own minimum 0"
        if failed.returncode == 0 or message not in failed.stdout + failed.stderr:
            sys.exit(f"the {attempt} build of a wrong plugin should fail with `{message}`, it ended with "
                     f"{failed.returncode}:\n{failed.stdout}{failed.stderr}")
print("built, sealed and listed outside the tree")
