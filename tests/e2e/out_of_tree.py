"""Installs the SDK, builds its template plugin outside the tree from the installation alone, and lists it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

build = pathlib.Path(os.environ["TRAINYARD_BINARY_DIR"])
template = pathlib.Path(os.environ["TRAINYARD_SOURCE_DIR"]) / "sdk/templates/schedule"


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
    listed = json.loads(run(build / "bin/trainyard", "plugins", "list", "--format", "json", "--plugins",
                            source / "build"))
    mine = [(plugin["kind"], plugin["name"], plugin["version"]) for plugin in listed["plugins"]
            if plugin["path"].startswith(str(source))]
    if mine != [("schedule", "my_schedule", "1.0.0")]:
        sys.exit(f"expected one plugin of {source} in the list, found {mine}; refused: {listed['refused']}")

    # A plugin that describes itself wrongly fails its build, and does so again when nothing has changed; one that
    # calls what nobody defines is not even linked (loader-facts P7).
    text = (source / "my_schedule.cpp").read_text()

    def fails(text, message):
        (source / "my_schedule.cpp").write_text(text)
        for attempt in ("first", "second"):
            failed = subprocess.run(["cmake", "--build", str(source / "build")], text=True, capture_output=True,
                                    env=environment)
            if failed.returncode == 0 or message not in failed.stdout + failed.stderr:
                sys.exit(f"the {attempt} build should fail with `{message}`, it ended with {failed.returncode}:\n"
                         f"{failed.stdout}{failed.stderr}")

    fails(text.replace("power = 2.0", "power = -2.0"),
          "option `power`: has the default -2, below its own minimum 0")
    fails(text.replace("class MySchedule", "double nowhere(double);\nclass MySchedule")
              .replace("std::pow(1.0 - at.progress, options_.power)", "nowhere(at.progress)"), "nowhere(double)")
print("built, sealed and listed outside the tree")
