"""Installs the SDK, builds its template plugin outside the tree from the installation alone, and lists it. Then with an
installation whose headers say something else: the host takes the plugin where it saw none of these."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from support.host import SMALL

build = pathlib.Path(os.environ["TRAINYARD_BINARY_DIR"])


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
    run(build / "bin/trainyard", "plugins", "new", "schedule", "my_schedule", "--dir", folder)
    # The package knows the LibTorch that it was built with.
    environment = {key: value for key, value in os.environ.items() if key != "TRAINYARD_LIBTORCH"}
    run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}", env=environment)
    run("cmake", "--build", source / "build", env=environment)
    listed = json.loads(run(build / "bin/trainyard", "plugins", "list", "--format", "json", "--plugins",
                            source / "build"))
    mine = [(plugin["kind"], plugin["name"], plugin["version"]) for plugin in listed["plugins"]
            if plugin["path"].startswith(str(source))]
    if mine != [("schedule", "my_schedule", "0.1.0")]:
        sys.exit(f"expected one plugin of {source} in the list, found {mine}; refused: {listed['refused']}")

    # Headers that changed, as the ones of another release would.
    headers, trainyard = prefix / "include/trainyard", build / "bin/trainyard"
    (folder / "run.toml").write_text(SMALL.replace("2ep", "1ba") + """
[schedule]
type = "my_schedule"
""")
    arguments = [folder / "run.toml", "--plugins", source / "build", "--set", f"run.output_dir={folder}/run"]

    def built_with(changes):
        """Built with these texts in place of those of the headers, which are as before afterwards."""
        old = {name: (headers / name).read_text() for name in changes if (headers / name).exists()}
        for name, text in changes.items():
            (headers / name).write_text(text)
        run("cmake", "--build", source / "build", "--clean-first", env=environment)
        for name in changes:
            (headers / name).write_text(old[name]) if name in old else (headers / name).unlink()

    def taken(changes):
        built_with(changes)
        run(trainyard, "validate", *arguments)
        run(trainyard, "train", *arguments, "--overwrite")

    def refused(changes, *messages):
        built_with(changes)
        for code, *words in ((2, "validate", *arguments), (3, "plugins", "inspect", source / "build/libmy_schedule.so")):
            done = subprocess.run([str(word) for word in (trainyard, *words)], text=True, capture_output=True)
            for message in ("libmy_schedule.so: was built for another host: header trainyard/", "cmake --build", *messages):
                if done.returncode != code or message not in done.stderr:
                    sys.exit(f"{words[0]} should end with {code} and `{message}`, it ended with {done.returncode}:\n{done.stderr}")

    def changed(name, old, new):
        text = (headers / name).read_text()
        if old not in text:
            sys.exit(f"{name} has no `{old}`")
        return {name: text.replace(old, new)}

    virtual = "virtual double nobody_asked() { return 0.0; }\n\n"
    schedule = changed("schedule.hpp", "  virtual double factor(", "  " + virtual + "  virtual double factor(")
    loss = changed("loss.hpp", "  virtual ", "  " + virtual + "  virtual ")
    added = changed("schedule.hpp", "#include <trainyard/plugin.hpp>",
                    "#include <trainyard/extra.hpp>\n#include <trainyard/plugin.hpp>")
    extra = {"extra.hpp": '#pragma once\n#include <trainyard/contract.hpp>\nTRAINYARD_CONTRACT("extra.hpp");\n'}
    taken(changed("schedule.hpp", "virtual double factor(", "// A \"new\" remark.\n/* Another. */ virtual   double factor("))
    taken(loss)
    refused(schedule, "header trainyard/schedule.hpp is ", ", the host has ", "both say SDK 1.0, yet their headers differ")
    refused({**added, **extra}, "header trainyard/extra.hpp is ", ", the host has none of that name", "header trainyard/schedule.hpp")
    # So are interfaces that are found by cast, and what they give by value.
    text = (source / "my_schedule.cpp").read_text()
    mixins = ("#include <trainyard/helpers/sparse_rows.hpp>\n"
              "#include <trainyard/mixins/halves.hpp>\n#include <trainyard/mixins/reads_rows.hpp>\n")
    (source / "my_schedule.cpp").write_text(mixins + text)
    rows = changed("mixins/reads_rows.hpp", "  virtual void on_read(", "  virtual void nobody_asked() {}\n\n  virtual void on_read(")
    halves = changed("mixins/halves.hpp", "  at::Tensor upper, lower;", "  at::Tensor upper, lower, nobody_asked;")
    # So is the order of the inputs that a dataset and a model agree on.
    order = changed("helpers/sparse_rows.hpp", "{batch.inputs[0], batch.inputs[1],", "{batch.inputs[1], batch.inputs[0],")
    refused({**rows, **halves, **order}, "header trainyard/helpers/sparse_rows.hpp is ", "header trainyard/mixins/halves.hpp is ", "header trainyard/mixins/reads_rows.hpp is ")
    (source / "my_schedule.cpp").write_text(text)
    # They are seen as well where they came precompiled.
    with (source / "CMakeLists.txt").open("a") as lists:
        lists.write("target_precompile_headers(my_schedule PRIVATE <trainyard/schedule.hpp>)\n")
    taken(loss)
    refused(schedule, "header trainyard/schedule.hpp is ")

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
print("built, sealed, listed and held to its headers outside the tree")
