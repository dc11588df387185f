"""Several plugins in one file, built outside the tree with the package's function: what a run, a resume, a swap, `plugins
dev`, `plugins check` and the quarantine make of one of them leaves the others as they are."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from support.host import BUILD, SMALL, HostTest

LISTS = """
cmake_minimum_required(VERSION 3.24)
project(family LANGUAGES CXX)
set(CMAKE_BUILD_TYPE Release)
find_package(Trainyard REQUIRED)
trainyard_add_plugin(family SOURCES family.cpp)
"""
SOURCE = """
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include <trainyard/hook.hpp>
#include <trainyard/pack.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/state.hpp>

using namespace trainyard;

constexpr double height = 0.5;

class Slope final : public Schedule {
 public:
  struct Options {
    double speed = 1.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("slope").version("1.0.0").summary("Falls from 1 to a half.");
    m.option("speed", &Options::speed, "of the fall");
    m.needs("steps");
  }
  explicit Slope(const Options& options) : options_(options) {}
  double factor(const SchedulePoint& at) const override { return 1.0 - height * options_.speed * at.progress; }

 private:
  Options options_;
};

class Plain final : public Schedule {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) { m.name("plain").version("1.0.0").summary("Stays."); }
  explicit Plain(const Options&) {}
  double factor(const SchedulePoint&) const override { return height; }
};

class Tally final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("tally").version("1.0.0").summary("Counts steps.");
    m.hook<&Tally::called>(Event::batch_end);
  }
  explicit Tally(const Options&) {}
  void called(StepContext&) { ++count_; }
  void save(StateWriter& writer) const override { writer.scalar("count", count_); }
  void load(const StateReader& reader) override { count_ = reader.integer("count"); }

 private:
  std::int64_t count_ = 0;
};

class Still final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("still").version("1.0.0").summary("Does nothing.");
    m.hook<&Still::called>(Event::batch_end);
  }
  explicit Still(const Options&) {}
  void called(StepContext&) {}
};

class Stumbler final : public Hook {
 public:
  struct Options {
    std::string way = "nothing";
    std::int64_t step = 7;
  };
  static void describe(Manifest<Options>& m) {
    m.name("stumbler").version("1.0.0").summary("Crashes where it is told.");
    m.option("way", &Options::way, "how").one_of({"nothing", "crash", "crash on a thread", "throw"});
    m.option("step", &Options::step, "when");
    m.hook<&Stumbler::called>(Event::batch_end);
  }
  explicit Stumbler(const Options& options) : options_(options) {}
  void called(StepContext& context) {
    if (context.step_number() < options_.step || options_.way == "nothing") return;
    if (options_.way == "crash") std::raise(SIGSEGV);
    if (options_.way == "throw") throw std::runtime_error("on purpose");
    std::thread([] { std::abort(); }).join();
  }

 private:
  Options options_;
};

TRAINYARD_PACK(Slope, Plain, Tally, Still, Stumbler)
"""
# Other code, and other manifests: two plugins lose an option that the run has, and one has one more.
CHANGED = (SOURCE.replace("height = 0.5", "height = 0.25").replace('"speed"', '"pace"').replace('"way"', '"manner"').replace("step = 7", "step = 9")
           .replace("""struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("tally")""", """struct Options { std::int64_t late = 0; };
  static void describe(Manifest<Options>& m) {
    m.option("late", &Options::late, "steps not counted");
    m.name("tally")"""))
SLOTS = """
[schedule]
type = "slope"
[checkpoint]
type = "full"
interval = "2ba"
[plugins]
paths = ["family/build"]
[[hooks]]
type = "tally"
"""
STUMBLER = '[[hooks]]\ntype = "stumbler"\nway = "{}"\n'
RUN = SMALL + SLOTS


class Packs(HostTest):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory(prefix="trainyard-pack-")
        cls.addClassCleanup(made.cleanup)
        cls.made = pathlib.Path(made.name)
        cls.environ = {**{key: value for key, value in os.environ.items() if key != "TRAINYARD_LIBTORCH"},
                       "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"}
        if shutil.which("ccache"):  # which CMake takes from the environment
            cls.environ["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
        for name, text in (("first", SOURCE), ("rebuilt", SOURCE.replace("height = 0.5", "height = 0.25")), ("changed", CHANGED)):
            cls.build(cls.made / name, text)

    @classmethod
    def build(cls, folder, source):
        folder.mkdir(exist_ok=True)
        (folder / "CMakeLists.txt").write_text(LISTS)
        (folder / "family.cpp").write_text(source)
        for words in (["-S", folder, "-B", folder / "build"], ["--build", folder / "build"]):
            done = subprocess.run(["cmake", *map(str, words)], env=cls.environ, text=True, capture_output=True)
            if done.returncode != 0:
                raise AssertionError(done.stdout + done.stderr)

    def setUp(self):
        super().setUp()
        self.install("first")

    def install(self, name):
        """As a user's build replaces the file."""
        (self.folder / "family/build").mkdir(parents=True, exist_ok=True)
        shutil.copy(self.made / name / "build/libfamily.so", self.folder / "family/build/new")
        (self.folder / "family/build/new").rename(self.folder / "family/build/libfamily.so")

    def digest(self):
        return json.loads(self.host("plugins", "inspect", "family/build/libfamily.so", "--format", "json").stdout)[0]["digest"]

    def test_each_plugin_of_the_file_is_listed_shown_and_checked(self):
        listed = json.loads(self.host("plugins", "list", "--format", "json", "--plugins", "family/build").stdout)
        own = [(each["kind"], each["name"]) for each in listed["plugins"] if each["path"].endswith("libfamily.so")]
        self.assertEqual(sorted(own), [("hook", "still"), ("hook", "stumbler"), ("hook", "tally"), ("schedule", "plain"), ("schedule", "slope")])
        shown = json.loads(self.host("plugins", "inspect", "family/build/libfamily.so", "--format", "json").stdout)
        self.assertEqual([each["name"] for each in shown], ["slope", "plain", "tally", "still", "stumbler"])
        only = ["--only", "static", "--only", "life.opens", "--only", "run.trains", "--format", "json"]
        whole = json.loads(self.host("plugins", "check", "family/build/libfamily.so", *only).stdout)
        self.assertEqual([(each["plugin"], each["passed"]) for each in whole],
                         [("schedule slope", True), ("schedule plain", True), ("hook tally", True), ("hook still", True),
                          ("hook stumbler", True)])
        one = json.loads(self.host("plugins", "check", "tally", "--plugins", "family/build", *only).stdout)
        self.assertEqual([each["plugin"] for each in one], ["hook tally"])
        text = self.host("plugins", "check", "family/build/libfamily.so", *only[:4]).stdout
        self.assertIn("family/build/libfamily.so: hook tally\n", text)

    def test_a_run_goes_on_to_the_bit(self):
        whole = self.train(RUN + STUMBLER.format("nothing"))
        files = {each["name"]: each["digest"] for each in whole["plugins"] if each["name"] in ("slope", "tally", "stumbler")}
        self.assertEqual(set(files.values()), {self.digest()})
        self.assertEqual(len(files), 3)
        shutil.rmtree(self.folder / "runs")
        # Killed and resumed.
        crash = RUN + STUMBLER.format("crash")
        self.host("train", self.write("run.toml", crash), "-q", code=-signal.SIGSEGV)
        self.host("train", "run.toml", "-q", "--set", "run.resume=auto", "--set", "hooks.1.way=nothing")
        self.assertEqual(self.result()["digest"], whole["digest"])

    def test_a_resume_takes_the_rebuilt_file_for_all_of_its_plugins(self):
        self.host("train", self.write("run.toml", RUN + STUMBLER.format("crash")), "-q", code=-signal.SIGSEGV)
        before = self.digest()
        self.install("rebuilt")
        self.host("train", "run.toml", "-q", "--set", "run.resume=auto", "--set", "hooks.1.way=nothing")
        result = self.result()
        self.assertEqual(result["steps"], 8)
        found = {each["digest"] for each in result["plugins"] if each["name"] in ("slope", "tally", "stumbler")}
        self.assertEqual(found, {self.digest()})
        self.assertNotEqual(found, {before})

    def test_a_plugin_that_crashes_is_left_out_and_the_others_stay(self):
        expected = self.train(RUN)["digest"]
        self.write("run.toml", RUN + STUMBLER.format("crash"))
        said = self.host("train", "run.toml", "-q", "--supervise", "--overwrite").stderr
        self.assertIn("[hooks[1]] stumbler", said)
        (entry,) = json.loads((self.folder / "runs/small/quarantine.json").read_text())
        self.assertEqual((entry["plugin"], entry["kind"], entry["digest"]), ("stumbler", "hook", self.digest()))
        result = self.result()
        self.assertEqual((result["status"], result["digest"]), ("completed", expected))
        names = [each["name"] for each in result["plugins"]]
        self.assertIn("tally", names)
        self.assertIn("slope", names)
        self.assertNotIn("stumbler", names)

    def test_a_plugin_that_is_disabled_stays_so_and_not_another_one_in_its_place(self):
        last = '[[hooks]]\nid = "last"\non_error = "disable"\ntype = '
        failing = last + '"stumbler"\nway = "throw"\n'
        for again, stays in ((failing, True), (last + '"still"\n', False)):
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
            self.train(RUN + failing)
            self.train((RUN + again).replace("2ep", "3ep"), "--set", "run.resume=auto")
            told = (self.folder / "runs/small/journal.jsonl").read_text()
            self.assertEqual("stays disabled" in told, stays, told)

    def test_a_thread_of_one_of_several_plugins_blames_none_of_them(self):
        self.write("run.toml", RUN + STUMBLER.format("crash on a thread"))
        said = self.host("train", "run.toml", "-q", code=-signal.SIGABRT).stderr
        report = json.loads((self.folder / "runs/small/report.json").read_text())
        self.assertEqual([report[key] for key in ("slot", "kind", "digest", "own_thread")], [None, None, None, True])
        path = str(self.folder / "family/build/libfamily.so")
        self.assertEqual(report["plugin"], path)
        self.assertIn(f"in one of the plugins of {path} after batch_end, step 7", said)
        self.assertIn("host().thread", report["suggestion"])
        # A part of a plugin is one that the run uses, too.
        part = SMALL + '[schedule]\ntype = "chain"\nparts = [{ type = "slope" }]\n[plugins]\npaths = ["family/build"]\n'
        self.host("train", self.write("run.toml", part + STUMBLER.format("crash on a thread")), "-q", "--overwrite", code=-signal.SIGABRT)
        report = json.loads((self.folder / "runs/small/report.json").read_text())
        self.assertEqual([report[key] for key in ("plugin", "slot", "own_thread")], [path, None, True])
        # Where the run uses a single one of them, it is that one.
        alone = SMALL + '[plugins]\npaths = ["family/build"]\n' + STUMBLER.format("crash on a thread")
        self.host("train", self.write("run.toml", alone), "-q", "--overwrite", code=-signal.SIGABRT)
        report = json.loads((self.folder / "runs/small/report.json").read_text())
        self.assertEqual([report[key] for key in ("plugin", "slot", "own_thread")], ["stumbler", "hooks[0]", True])

    def status(self):
        done = subprocess.run(self.command("ctl", "small", "status", "--format", "json"), cwd=self.folder, text=True,
                              capture_output=True, env=self.environment())
        return json.loads(done.stdout) if done.returncode == 0 else None

    def slots(self):
        own = ("schedule", "hooks.tally", "hooks.stumbler", "hooks.twin")
        return {each["slot"]: (each["digest"], each["swaps"]) for each in self.status()["slots"] if each["slot"] in own}

    def copies(self):
        """The copies of the file that the run has loaded."""
        maps = pathlib.Path(f"/proc/{self.status()['pid']}/maps").read_text()
        return set(re.findall(r"/family-[0-9a-f]{16}-\d+\.so", maps))

    def live(self, stumbler=STUMBLER.format("nothing"), *words, part='type = "slope"'):
        self.write("run.toml", (RUN + stumbler).replace('type = "slope"', part).replace("2ep", "1000000ep").replace('"1ep"', '"1000000ep"').replace(
            'interval = "2ba"', 'interval = "1000000ba"'))
        process = subprocess.Popen(self.command("train", "run.toml", "-q", *words), cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.until(self.status)

    def test_the_file_is_loaded_once_and_a_swap_to_a_rebuilt_one_leaves_the_others_on_the_old_copy(self):
        self.live()
        old = self.digest()
        self.assertEqual(set(self.slots().values()), {(old, 0)})
        self.assertEqual(len(self.copies()), 1)
        self.host("ctl", "small", "swap", "schedule", "plain")  # of the same file
        self.assertEqual(len(self.copies()), 1)
        self.install("rebuilt")
        self.host("ctl", "small", "swap", "schedule", "plain")
        new = self.digest()
        self.assertNotEqual(new, old)
        self.assertEqual(self.slots(), {"schedule": (new, 2), "hooks.tally": (old, 0), "hooks.stumbler": (old, 0)})
        self.assertEqual(len(self.copies()), 2)
        self.until(lambda: abs(self.status()["metrics"].get("lr", 0.0) - 0.01 * 0.25) < 1e-9)
        # The next one comes from the copy that is loaded already, with what the old one had counted.
        self.host("ctl", "small", "swap", "hooks.tally", "tally")
        self.assertEqual(len(self.copies()), 2)
        self.assertEqual(self.slots(), {"schedule": (new, 2), "hooks.tally": (new, 1), "hooks.stumbler": (old, 0)})
        self.host("ctl", "small", "stop")

    def test_a_swap_is_not_refused_for_what_became_of_the_others_of_a_rebuilt_file(self):
        """Those stay as they run: their code, and the options that they had."""
        self.live(STUMBLER.format("nothing") + '[[hooks]]\nid = "twin"\ntype = "tally"\n')
        old = self.digest()
        self.install("changed")
        new = self.digest()
        self.host("ctl", "small", "swap", "schedule", "plain")
        self.assertEqual(self.slots(), {"schedule": (new, 1), "hooks.tally": (old, 0), "hooks.stumbler": (old, 0), "hooks.twin": (old, 0)})
        # One of two slots with a plugin; then nothing is in the way of another swap.
        self.host("ctl", "small", "swap", "hooks.tally", "tally", "late=2")
        self.host("ctl", "small", "swap", "schedule", "plain")
        self.assertEqual(self.slots(), {"schedule": (new, 2), "hooks.tally": (new, 1), "hooks.stumbler": (old, 0), "hooks.twin": (old, 0)})
        # A swap of the plugin itself is checked against the new file.
        self.assertIn("way", self.host("ctl", "small", "swap", "hooks.stumbler", "stumbler", code=2).stderr)
        self.host("ctl", "small", "stop")

    def test_a_part_stays_as_it_runs_when_its_file_is_rebuilt(self):
        self.live(part='type = "chain"\nparts = [{ type = "slope", speed = 0.5 }]')
        self.install("changed")
        self.host("ctl", "small", "swap", "hooks.tally", "tally")
        self.assertEqual(self.slots()["hooks.tally"], (self.digest(), 1))
        self.host("ctl", "small", "stop")
        live = self.folder / "runs/small/swapped.toml"
        self.until(live.exists)
        options = live.read_text()
        for kept in ("speed = 0.5", 'way = "nothing"', "step = 7"):
            self.assertIn(kept, options)

    def test_what_was_left_out_at_the_start_stays_so_when_the_file_is_rebuilt(self):
        self.live(STUMBLER.format("crash"), "--supervise")
        self.until(lambda: (self.folder / "runs/small/quarantine.json").exists() and self.status())
        self.install("changed")
        self.host("ctl", "small", "swap", "schedule", "plain")
        self.assertEqual(self.slots(), {"schedule": (self.digest(), 1), "hooks.tally": self.slots()["hooks.tally"]})
        refused = self.host("ctl", "small", "swap", "hooks.stumbler", "stumbler", code=2).stderr
        self.assertIn("hooks.stumbler", refused)
        self.host("ctl", "small", "stop")

    def test_dev_swaps_the_plugins_of_the_file_that_the_run_has(self):
        shutil.rmtree(self.folder / "family")
        shutil.copytree(self.made / "first", self.folder / "family", ignore=shutil.ignore_patterns("build"))
        self.build(self.folder / "family", SOURCE)
        self.live()
        old = self.digest()
        dev = ["plugins", "dev", "family", "--run", "small", "--once"]
        said = self.host(*dev, PATH=self.environ["PATH"]).stdout
        for words in ("schedule of the run is this very slope", "hooks.tally of the run is this very tally"):
            self.assertIn(words, said)
        self.assertNotIn("plain", said)
        source = self.folder / "family/family.cpp"
        source.write_text(SOURCE.replace("height = 0.5", "height = 0.25"))
        said = self.host(*dev, PATH=self.environ["PATH"]).stdout
        new = self.digest()
        self.assertNotEqual(new, old)
        self.assertEqual(self.slots(), dict.fromkeys(("schedule", "hooks.tally", "hooks.stumbler"), (new, 1)))
        self.assertEqual(next(each["type"] for each in self.status()["slots"] if each["slot"] == "schedule"), "slope")
        self.host("ctl", "small", "swap", "schedule", "cosine")
        self.host("ctl", "small", "stop")

    def test_dev_swaps_every_slot_when_the_source_is_saved_and_says_which_one_refuses(self):
        shutil.rmtree(self.folder / "family")
        shutil.copytree(self.made / "first", self.folder / "family", ignore=shutil.ignore_patterns("build"))
        self.build(self.folder / "family", SOURCE)
        self.live(STUMBLER.format("nothing") + '[[hooks]]\nid = "twin"\ntype = "tally"\n', part='type = "plain"')
        old = self.digest()
        dev = subprocess.Popen(self.command("plugins", "dev", "family", "--run", "small"), cwd=self.folder, text=True,
                               env=self.environment(PATH=self.environ["PATH"]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(dev.communicate)
        self.addCleanup(dev.kill)
        self.assertIn("hooks.twin of the run is this very tally", self.said(dev, "watching"))
        (self.folder / "family/family.cpp").write_text(CHANGED)
        self.said(dev, "the run refuses it, and hooks.stumbler goes on as it was")
        new = self.digest()
        self.assertNotEqual(new, old)
        self.assertEqual(self.slots(), {**dict.fromkeys(("schedule", "hooks.tally", "hooks.twin"), (new, 1)), "hooks.stumbler": (old, 0)})
        self.host("ctl", "small", "stop")
        self.said(dev, "the run is over")
        self.assertEqual(dev.wait(10), 0)

    def test_what_is_wrong_with_the_file_is_said_with_its_name(self):
        path = self.folder / "family/build/libfamily.so"
        sealed = path.read_bytes()
        self.write("run.toml", RUN)
        path.write_bytes(sealed.replace(b'"plain"', b'"plane"'))
        said = self.host("validate", "run.toml", code=2).stderr
        self.assertIn('no schedule plugin is called "slope"', said)
        self.assertIn(f"{path}: its manifest was changed after it was sealed; build the plugin again", said)
        subprocess.run(["objcopy", "--remove-section=.trainyard", path], check=True)
        self.assertIn("has no manifest (ELF section .trainyard): it is no plugin, or was not sealed",
                      self.host("validate", "run.toml", code=2).stderr)
        # A folder of plugins is no file.
        path.write_bytes(sealed)
        named = RUN.replace('"family/build"', '"family/build/libfamily.so"')
        self.write("run.toml", named)
        self.assertRegex(self.host("validate", "run.toml", code=2).stderr,
                         r"libfamily\.so: this folder of plugins cannot be read: Not a directory")
        # Two of a kind and a name are refused as the file is sealed.
        with self.assertRaisesRegex(AssertionError, 'its plugin 2, "slope": manifest: `name` is that of another schedule of the pack'):
            self.build(self.folder / "twins", SOURCE.replace('m.name("plain")', 'm.name("slope")'))


if __name__ == "__main__":
    import unittest
    unittest.main()
