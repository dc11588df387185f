// Checkpoints on the disk: what comes back, what is kept, what a failure leaves. Damage at every place and
// kills at random moments are the business of tools/chaos/store.cpp, which the tests run shortened.
#include <bit>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/checkpointer.hpp>
#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "core/engine/save/load.hpp"
#include "core/engine/save/store.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/manifest.hpp"
#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/plugin.hpp"
#include "support/saver.hpp"

namespace trainyard::checkpoint {
namespace {

using Catch::Matchers::Contains;
using test::Folder;
using test::Saver;
namespace fs = std::filesystem;
using Names = std::set<std::string>;

/// Model, optimizer and a hook; small, its values drawn from the step.
Snapshot small(std::int64_t step) {
  const auto value = static_cast<double>(step);
  Snapshot snapshot{.step = step, .states = {}, .metrics = {{"val/loss", value}}};
  snapshot.states.push_back({.owner = "run", .version = "1", .scalars = {{"step", step}}, .tensors = {}});
  snapshot.states.push_back(
      {"model", "1", {}, {{"fc.weight", at::full({4, 3}, value)}, {"fc.bias", at::full({4}, value)}}});
  snapshot.states.push_back(
      {"optimizer/adamw", "1", {{"step", step}}, {{"fc.weight.m", at::full({4, 3}, value)}}});
  snapshot.states.push_back({"hook/ema", "1", {}, {{"fc.weight", at::full({4, 3}, value)}}});
  return snapshot;
}

/// One of everything that a state may hold.
Snapshot everything() {
  const auto of_bits = [](std::uint64_t bits) { return std::bit_cast<double>(bits); };
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min(),
                 highest = std::numeric_limits<std::int64_t>::max();
  Snapshot snapshot{
      .step = 7, .states = {}, .metrics = {{"val/loss", of_bits(0x7ff8000000000123)}, {"val/accuracy", 0.1}}};
  snapshot.states.push_back({"run",
                             "2.1.0",
                             {{"true", true},
                              {"false", false},
                              {"one", std::int64_t{1}},
                              {"one.0", 1.0},
                              {"lowest", lowest},
                              {"highest", highest},
                              {"third", 1.0 / 3},
                              {"minus zero", -0.0},
                              {"denormal", 5e-324},
                              {"greatest", 1.7976931348623157e308},
                              {"infinity", of_bits(0x7ff0000000000000)},
                              {"-infinity", of_bits(0xfff0000000000000)},
                              {"nan", of_bits(0xfff8000000abcdef)},
                              {"signalling nan", of_bits(0x7ff0000000000001)},
                              {"empty", std::string()},
                              {"text", std::string("gr\xc3\xbc\xc3\x9f \"quoted\"\n\\")},
                              {"bytes", std::string("\xff\x00\xfe{", 4)}},
                             {}});
  State model{.owner = "model", .version = "1", .scalars = {}, .tensors = {}};
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                    at::kShort, at::kChar, at::kByte, at::kBool})
    model.tensors[c10::toString(type)] = at::arange(7, at::kLong).fmod(3).to(type);
  snapshot.states.push_back(std::move(model));
  const at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4});
  snapshot.states.push_back(
      {"optimizer",
       "1",
       {},
       {{"transposed", matrix.t()},
        {"column", matrix.select(1, 2)},
        {"expanded", at::ones({1, 3}).expand({5, 3})},
        {"scalar", at::scalar_tensor(2.5)},
        {"empty", at::empty({0})},
        {"empty matrix", at::empty({3, 0, 2}, at::kLong)},
        {"not finite", at::tensor({of_bits(0x7ff8000000000123), -of_bits(0x7ff0000000000000), -0.0})},
        {"with gradient", at::ones({2}).set_requires_grad(true)}}});
  snapshot.states.push_back({"dropout/none", "1", {}, {}});
  snapshot.states.push_back({"hook/ema", "1", {{"updates", std::int64_t{3}}}, {{"Float", matrix}}});
  return snapshot;
}

void check_equal(const std::vector<State>& loaded, const std::vector<State>& saved) {
  REQUIRE(loaded.size() == saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    INFO(saved[i].owner);
    CHECK(loaded[i].owner == saved[i].owner);
    CHECK(loaded[i].version == saved[i].version);
    CHECK(digest(loaded[i]) == digest(saved[i]));
    for (const auto& [name, tensor] : loaded[i].tensors) CHECK(tensor.is_cpu());
  }
}

Names names_in(const std::string& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::set<std::int64_t> steps_in(const std::string& folder) {
  std::set<std::int64_t> steps;
  for (const std::string& each : list(folder)) steps.insert(*step_of(each));
  return steps;
}

void flip(const std::string& path, std::size_t bit) {
  std::string bytes = test::read_file(path);
  bytes.at(bit / 8) = static_cast<char>(bytes.at(bit / 8) ^ 1 << bit % 8);
  std::ofstream(path, std::ios::binary) << bytes;
}

const auto nobody = [](const std::string& checkpoint, const std::string& why) {
  FAIL_CHECK(checkpoint << " is damaged: " << why);
};

/// Waits in every commit until told; fails where told.
class SlowStore final : public CheckpointStore {
 public:
  void commit(const Snapshot& snapshot) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed_ > 0; });
    --allowed_;
    if (snapshot.step == failing_step) throw DataError("no space");
    steps.push_back(snapshot.step);
  }
  void allow(int commits) {
    const std::lock_guard lock(mutex_);
    allowed_ += commits;
    changed_.notify_all();
  }
  std::vector<std::int64_t> steps;
  std::int64_t failing_step = -1;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0;
};

}  // namespace

TEST_CASE("a checkpoint gives back every type and every bit") {
  const Folder folder;
  Store store(folder / "checkpoints", {});
  const Snapshot saved = everything();
  store.commit(saved);
  const Loaded loaded = load(folder / "checkpoints/step-00000007");
  CHECK(loaded.step == 7);
  check_equal(loaded.states, saved.states);
  CHECK(loaded.find("hook/ema")->scalars.size() == 1);
  CHECK(loaded.find("hook") == nullptr);
  const Manifest manifest = read_manifest(loaded.path);
  CHECK(std::bit_cast<std::uint64_t>(manifest.metrics.at("val/loss")) == 0x7ff8000000000123);
  CHECK(manifest.metrics.at("val/accuracy") == 0.1);
  CHECK(verify(loaded.path).empty());
  CHECK(test::read_file(folder / "checkpoints/latest") == "step-00000007\n");
  CHECK(names_in(folder / "checkpoints") == Names{"latest", "step-00000007"});
  CHECK(store.take_committed() == std::vector<std::string>{loaded.path});
  CHECK(store.take_committed().empty());
}

TEST_CASE("the files of a checkpoint are safetensors that others know to read") {
  const Folder folder;
  Store(folder.path(), {}).commit(everything());
  const std::string checkpoint = folder / "step-00000007";
  CHECK(names_in(checkpoint) ==
        Names{"manifest.json", "model.safetensors", "optimizer.safetensors", "state.safetensors"});
  const auto names = [&](const std::string& file) {
    Names result;
    for (const NamedTensor& each : read_safetensors(checkpoint + "/" + file)) result.insert(each.name);
    return result;
  };
  CHECK(names("model.safetensors").contains("BFloat16"));
  CHECK(names("optimizer.safetensors").contains("optimizer:transposed"));
  CHECK(names("state.safetensors") == Names{"hook/ema:Float"});
  // Tensors lie aligned, whatever their types.
  for (const TensorEntry& each : read_manifest(checkpoint).tensors)
    if (each.dtype == "F64" || each.dtype == "I64") CHECK(each.offset % 8 == 0);

  Store(folder.path(), {}).commit({.step = 8, .states = {{"run", "1", {{"a", 1.0}}, {}}}, .metrics = {}});
  CHECK(names_in(folder / "step-00000008") == Names{"manifest.json"});
  CHECK(load(folder / "step-00000008").states.size() == 1);
}

TEST_CASE("a manifest knows of any bit of it that changed, and of any cut") {
  const Folder folder;
  Store(folder.path(), {}).commit(small(1));
  const std::string text = test::read_file(folder / "step-00000001/manifest.json");
  const auto refused = [](const std::string& changed) {
    try {
      from_text(changed, "manifest.json");
      return false;
    } catch (const DataError& error) {
      return std::string(error.what()).starts_with("manifest.json: ");
    }
  };
  CHECK_FALSE(refused(text));
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    if (!refused(changed)) FAIL("bit " << bit);
  }
  for (std::size_t length = 0; length < text.size(); ++length)
    if (!refused(text.substr(0, length))) FAIL("length " << length);
  CHECK(refused(text + " "));
}

TEST_CASE("a manifest that lies is refused, though its digest is right") {
  const Folder folder;
  Store(folder.path(), {}).commit(small(1));
  const Manifest good = read_manifest(folder / "step-00000001");
  const auto reason = [&](const auto& change) {
    Manifest changed = good;
    change(changed);
    return test::message_of<DataError>([&] { from_text(to_text(changed), "m"); });
  };
  CHECK_THAT(reason([](Manifest& m) { m.files[0].name = "../model.safetensors"; }),
             Contains("no name of a file"));
  CHECK_THAT(reason([](Manifest& m) { m.files[0].name = ""; }), Contains("no name of a file"));
  CHECK_THAT(reason([](Manifest& m) { m.files.push_back(m.files[0]); }), Contains("stands twice"));
  CHECK_THAT(reason([](Manifest& m) { m.states.push_back(m.states[0]); }), Contains("two states"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].owner = "x"; }), Contains("belongs to no state"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].file = "x"; }), Contains("in no known file"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors.pop_back(); }), Contains("belong to no tensor"));
  CHECK_THAT(reason([](Manifest& m) { m.files[0].size += 8; }), Contains("belong to no tensor"));
  CHECK_THAT(reason([](Manifest& m) { m.files[0].size = 1; }), Contains("the header of"));
  CHECK_THAT(reason([](Manifest& m) { ++m.tensors[0].offset; }), Contains("does not begin where"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].length = ~std::uint64_t{0}; }), Contains("ends after"));
  for (const std::string text : {"", "{}", "[]", "\n"}) CHECK_THROWS_AS(from_text(text, "m"), DataError);
}

TEST_CASE("damage is named: file, header, tensor") {
  const Folder folder;
  Store store(folder.path(), {.keep_last = 2});
  store.commit(small(1));
  const std::string checkpoint = folder / "step-00000001", model = checkpoint + "/model.safetensors";
  const std::string before = test::read_file(model);
  const auto restore = [&] { std::ofstream(model, std::ios::binary) << before; };
  const auto both = [&](const std::string& file, const std::string& what) {
    const std::vector<std::string> damages = verify(checkpoint);
    REQUIRE_FALSE(damages.empty());
    CHECK_THAT(damages.front(), Contains(file) && Contains(what));
    CHECK_THAT(test::message_of<DataError>([&] { load(checkpoint); }), Contains(file) && Contains(what));
  };
  flip(model, before.size() * 8 - 1);
  both("model.safetensors", "tensor \"fc.weight\" is not as it was written");
  restore();
  flip(model, 100);
  both("model.safetensors", "its header is not as it was written");
  restore();
  fs::resize_file(model, before.size() - 1);
  both("model.safetensors", "has " + std::to_string(before.size() - 1) + " bytes");
  CHECK_THAT(verify(checkpoint).back(), Contains("tensor \"fc.weight\" is cut off"));
  restore();
  std::ofstream(model, std::ios::app) << "more";
  both("model.safetensors", "were written");
  fs::remove(model);
  both("model.safetensors", "No such file");
  fs::create_directory(model);
  both("model.safetensors", "not a regular file");
  fs::remove(model);
  restore();
  CHECK(verify(checkpoint).empty());
  fs::remove(checkpoint + "/manifest.json");
  both("manifest.json", "does not count");

  // A whole one, older than the damaged one and than what `latest` says, is found.
  store.commit(small(2));
  fs::copy(folder / "step-00000002", folder / "step-00000003");
  flip(folder / "step-00000003/manifest.json", 1000);
  std::vector<std::string> passed_over;
  const auto tell = [&](const std::string& path, const std::string& why) {
    passed_over.push_back(path + ": " + why);
  };
  CHECK(load_newest(folder.path(), tell)->step == 2);
  REQUIRE(passed_over.size() == 1);
  CHECK_THAT(passed_over[0], Contains("step-00000003") && Contains("manifest.json"));
  std::ofstream(folder / "latest") << "step-99999999";
  CHECK(load_newest(folder.path(), tell)->step == 2);
  fs::remove(folder / "latest");
  CHECK(load_newest(folder.path(), tell)->step == 2);
  fs::remove_all(folder / "step-00000002");
  CHECK_FALSE(load_newest(folder.path(), tell));
  CHECK_FALSE(load_newest(folder / "absent", tell));
}

TEST_CASE("retention keeps the newest, multiples and the best, and nothing else") {
  using Steps = std::set<std::int64_t>;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  // What is left after commits at steps 10, 20, ... with these losses.
  const auto kept = [](const Retention& retention, const std::vector<double>& losses) {
    const Folder folder;
    Store store(folder.path(), retention);
    std::int64_t step = 0;
    for (const double loss : losses) {
      Snapshot snapshot = small(step += 10);
      snapshot.metrics["val/loss"] = loss;
      store.commit(snapshot);
    }
    CHECK(load_newest(folder.path(), nobody)->step == step);
    const std::size_t others = best(folder.path()) ? 2 : 1;  // `latest`, and perhaps `best`
    CHECK(names_in(folder.path()).size() == list(folder.path()).size() + others);
    return steps_in(folder.path());
  };
  CHECK(kept({}, {1, 2, 3}) == Steps{30});
  CHECK(kept({.keep_last = 2}, {1, 2, 3}) == Steps{20, 30});
  CHECK(kept({.keep_last = 9}, {1, 2, 3}) == Steps{10, 20, 30});
  CHECK(kept({.keep_every = 20}, {1, 1, 1, 1, 1}) == Steps{20, 40, 50});
  CHECK(kept({.keep_last = 2, .keep_every = 30}, {1, 1, 1, 1, 1, 1, 1}) == Steps{30, 60, 70});

  Retention best;
  const auto wish = [&](const char* metric, const char* mode, std::int64_t k) {
    best.keep_best = KeepBest{metric, mode, k};
    return best;
  };
  CHECK(kept(wish("val/loss", "min", 1), {3, 1, 2, 4}) == Steps{20, 40});
  CHECK(kept(wish("val/loss", "max", 1), {3, 5, 2, 4}) == Steps{20, 40});
  CHECK(kept(wish("val/loss", "min", 2), {3, 1, 2, 4}) == Steps{20, 30, 40});
  CHECK(kept(wish("val/loss", "min", 1), {2, 1, 1, 1}) == Steps{20, 40});  // ties: the older
  CHECK(kept(wish("val/loss", "max", 1), {2, 3, 3, 1}) == Steps{20, 40});
  CHECK(kept(wish("val/loss", "min", 1), {nan, 5, nan}) == Steps{20, 30});
  CHECK(kept(wish("val/loss", "max", 1), {nan, nan}) == Steps{20});
  CHECK(kept(wish("val/other", "min", 1), {1, 2}) == Steps{20});
  best.keep_every = 40;
  CHECK(kept(wish("val/loss", "min", 1), {9, 1, 9, 9, 9}) == Steps{20, 40, 50});
}

TEST_CASE("the file best names the best checkpoint that is there, and weights called so are those") {
  const Folder folder;
  Retention retention;
  retention.keep_best = KeepBest{"val/loss", "min", 1};
  Store store(folder / "checkpoints", retention);
  CHECK(!best(folder.path()));
  CHECK_THROWS_WITH(weights_path("best", folder.path()), Contains("keeps no best checkpoint"));
  CHECK(weights_path("a/best", folder.path()) == "a/best");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<double, int> course[] = {{nan, 0}, {3, 20}, {1, 30}, {2, 30}, {1, 30}, {0, 60}};
  std::int64_t step = 0;
  for (const auto& [loss, wanted] : course) {
    store.commit({.step = step += 10, .states = {{"run", "1", {}, {}}}, .metrics = {{"val/loss", loss}}});
    const std::optional<std::string> found = best(folder.path());
    INFO("step " << step);
    REQUIRE(found.has_value() == (wanted > 0));
    if (!found) continue;
    CHECK(step_of(*found) == wanted);
    CHECK(best(folder / "checkpoints/") == found);
    CHECK(weights_path("best", folder.path()) == *found);
  }
  // Back to a course on which that step never was.
  store.commit({.step = 25, .states = {{"run", "1", {}, {}}}, .metrics = {{"val/loss", 9.0}}});
  CHECK(step_of(best(folder.path()).value()) == 25);
}

TEST_CASE("keep_every keeps the first checkpoint at or after each multiple, whatever steps they come at") {
  std::mt19937 random(5);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  for (int round = 0; round < 40; ++round) {
    const Folder folder;
    const Retention retention{.keep_last = draw(1, 3), .keep_every = draw(1, 40)};
    std::set<std::int64_t> saved, kept;  // on the course that the run is on: ever; and still there
    std::int64_t step = 0;
    for (int save = 0; save < 15; ++save) {
      // A new store: as after a resume. A step back: as after a run went back.
      std::optional<Store> store(std::in_place, folder.path(), retention);
      step = draw(0, 9) == 0 && step > 5 ? step - draw(1, 5) : step + draw(1, draw(0, 3) == 0 ? 60 : 8);
      store->commit({.step = step, .states = {{"run", "1", {{"step", step}}, {}}}, .metrics = {}});
      for (std::set<std::int64_t>* steps : {&saved, &kept}) {
        steps->erase(steps->upper_bound(step), steps->end());
        steps->insert(step);
      }
      std::set<std::int64_t> expected;
      for (std::int64_t multiple = retention.keep_every; multiple <= step; multiple += retention.keep_every)
        expected.insert(*saved.lower_bound(multiple));
      auto newest = kept.rbegin();
      for (std::int64_t i = 0; i < retention.keep_last && newest != kept.rend(); ++i)
        expected.insert(*newest++);
      INFO("round " << round << ", save " << save << ", step " << step << ", keep_every "
                    << retention.keep_every << ", keep_last " << retention.keep_last);
      REQUIRE(steps_in(folder.path()) == expected);
      kept = std::move(expected);
    }
  }
}

TEST_CASE("a step that was saved before is replaced, and what the run left by going back goes") {
  const Folder folder;
  Store store(folder.path(), {.keep_last = 9});
  for (const std::int64_t step : {10, 20, 30}) store.commit(small(step));
  Snapshot again = small(20);
  again.states[1].tensors["fc.bias"] = at::full({4}, -1.0);
  store.commit(again);
  CHECK(steps_in(folder.path()) == std::set<std::int64_t>{10, 20});
  check_equal(load(folder / "step-00000020").states, again.states);
  CHECK(names_in(folder.path()) == Names{"latest", "step-00000010", "step-00000020"});
  CHECK(test::read_file(folder / "latest") == "step-00000020\n");
}

TEST_CASE("a commit that fails leaves the store as it was") {
  const Folder folder;
  Store store(folder.path(), {.keep_last = 1});
  store.commit(small(1));
  store.take_committed();
  const auto unchanged = [&] {
    CHECK(names_in(folder.path()) == Names{"latest", "step-00000001"});
    CHECK(test::read_file(folder / "latest") == "step-00000001\n");
    CHECK(verify(folder / "step-00000001").empty());
    CHECK(store.take_committed().empty());
  };
  SECTION("the disk is full, at whatever byte") {
    for (const rlim_t bytes : {0, 8, 100, 300, 500, 1000, 1500}) {
      {
        const test::FullDisk full(bytes);
        CHECK_THROWS_AS(store.commit(small(2)), DataError);
      }
      unchanged();
    }
  }
  SECTION("the folder is read-only") {
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                       fs::perms::others_exec);
    {
      const test::WithoutRoot nobody_special;
      CHECK_THROWS_AS(store.commit(small(2)), DataError);
    }
    fs::permissions(folder.path(), fs::perms::owner_all);
    unchanged();
  }
  SECTION("what is to be saved cannot be written") {
    Snapshot bad = small(2);
    bad.states[1].tensors["fc.bias"] = at::zeros({2}, at::kComplexFloat);
    CHECK_THROWS_AS(store.commit(bad), DataError);
    unchanged();
    bad = small(2);
    bad.states[1].tensors["\xff"] = at::zeros({2});
    CHECK_THROWS_AS(store.commit(bad), DataError);
    unchanged();
    bad = small(2);
    bad.states[1].tensors["undefined"] = at::Tensor();
    CHECK_THROWS_AS(store.commit(bad), DataError);
    unchanged();
    bad = small(2);
    bad.states.push_back(bad.states.back());
    CHECK_THROWS_AS(store.commit(bad), DataError);
    unchanged();
  }
  store.commit(small(3));
  CHECK(load_newest(folder.path(), nobody)->step == 3);
}

TEST_CASE("a store says where it cannot be") {
  const Folder folder;
  std::ofstream(folder / "file") << "x";
  CHECK_THAT(test::message_of<DataError>([&] { Store(folder / "file/checkpoints", {}); }),
             Contains("file/checkpoints"));
}

TEST_CASE("what an interrupted save left is swept, and nothing else") {
  const Folder folder;
  Store(folder.path(), {}).commit(small(1));
  for (const char* name :
       {"step-00000002.tmp-1-1", "step-00000001.old-1-1", "latest.tmp-7-7", "mine", "step-x", "step-2"})
    fs::create_directory(folder / name);
  CHECK(list(folder.path()) == std::vector<std::string>{folder / "step-00000001"});
  const Store store(folder.path(), {});
  CHECK(names_in(folder.path()) == Names{"latest", "step-00000001", "mine", "step-x", "step-2"});
}

TEST_CASE("names of folders") {
  CHECK(folder_name(600) == "step-00000600");
  CHECK(folder_name(1234567890123) == "step-1234567890123");
  CHECK(step_of("a/b/step-00000600") == 600);
  CHECK(step_of("step-1234567890123") == 1234567890123);
  for (const char* name :
       {"step-600", "step-", "step-0000060x", "step-00000600.tmp-1-1", "latest", "step--0000001"})
    CHECK_FALSE(step_of(name));
}

TEST_CASE("weights come from a file, a checkpoint, or a run") {
  const Folder folder;
  Store store(folder / "checkpoints", {.keep_last = 2});
  store.commit(small(1));
  store.commit(small(2));
  const auto first_value = [&](const std::string& path) {
    const std::vector<NamedTensor> weights = load_weights(path);
    REQUIRE(weights.size() == 2);
    CHECK(weights[0].name == "fc.bias");
    return weights[0].tensor[0].item<double>();
  };
  CHECK(first_value(folder.path()) == 2);
  CHECK(first_value(folder / "checkpoints") == 2);
  CHECK(first_value(folder / "checkpoints/") == 2);
  CHECK(first_value(folder / "checkpoints/step-00000001") == 1);
  CHECK(first_value(folder / "checkpoints/step-00000001/") == 1);
  CHECK(read_safetensors(folder / "checkpoints/step-00000001/model.safetensors").size() == 2);
  CHECK(load_weights(folder / "checkpoints/step-00000001/model.safetensors").size() == 2);
  CHECK_THAT(test::message_of<DataError>([&] { load_weights(folder / "absent"); }), Contains("absent"));
  fs::create_directory(folder / "empty");
  CHECK_THAT(test::message_of<DataError>([&] { load_weights(folder / "empty"); }),
             Contains("no checkpoint there"));
  flip(folder / "checkpoints/step-00000002/model.safetensors", 1500);
  CHECK_THROWS_AS(load_weights(folder.path()), DataError);
}

TEST_CASE("full and async commit what they were given, in order") {
  for (const char* name : {"full", "async"}) {
    INFO(name);
    const Folder folder;
    Store store(folder.path(), {.keep_last = 100});
    Saver saver(name, store);
    const Snapshot saved = everything();
    saver.plugin->take(saved);
    for (std::int64_t step = 10; step < 20; ++step) saver.plugin->take(small(step));
    saver.plugin->drain();
    CHECK(store.take_committed().size() == 11);
    check_equal(load(folder / "step-00000007").states, saved.states);
    for (std::int64_t step = 10; step < 20; ++step)
      check_equal(load(folder / folder_name(step)).states, small(step).states);
    CHECK(saver.errors().empty());
  }
}

TEST_CASE("weights that change right after an async save do not reach the file") {
  const Folder folder;
  Store store(folder.path(), {.keep_last = 1000});
  Saver saver("async", store);
  Snapshot live = small(0);
  live.states[1].tensors["large"] = at::zeros({300, 1000}).t();
  for (std::int64_t step = 1; step <= 100; ++step) {
    for (State& state : live.states)
      for (auto& [tensor_name, tensor] : state.tensors) tensor.fill_(static_cast<double>(step));
    live.step = step;
    saver.plugin->take(live);
    for (State& state : live.states)
      for (auto& [tensor_name, tensor] : state.tensors) tensor.fill_(-1);
  }
  saver.plugin->drain();
  int right = 0;
  for (std::int64_t step = 1; step <= 100; ++step) {
    const Loaded loaded = load(folder / folder_name(step));
    bool same = loaded.step == step;
    for (const State& state : loaded.states)
      for (const auto& [tensor_name, tensor] : state.tensors)
        same = same && tensor.eq(step).all().item<bool>();
    right += same;
  }
  CHECK(right == 100);
}

TEST_CASE("async waits where its budget is used up, and for the disk where it is too small") {
  SlowStore store;
  Snapshot large = small(1);
  large.states[1].tensors["large"] = at::zeros({700 << 10}, at::kByte);
  {
    Saver saver("async", store, test::table({{"memory_budget", std::int64_t{1}}}));
    saver.plugin->take(large);  // 0.7 of 1 MiB: there is no room for a second
    std::atomic<bool> second = false;
    std::thread loop([&] {
      large.step = 2;
      saver.plugin->take(large);
      second = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_FALSE(second);
    store.allow(1);
    loop.join();
    store.allow(1);
    saver.plugin->drain();
    CHECK(store.steps == std::vector<std::int64_t>{1, 2});

    store.allow(3);
    large.step = 3;
    saver.plugin->take(large);  // in the background; the next two come after it
    large.states[1].tensors["large"] = at::zeros({5 << 20}, at::kByte);
    CHECK(saver.warnings().empty());
    for (large.step = 4; large.step <= 5; ++large.step) {
      saver.plugin->take(large);
      CHECK(store.steps.back() == large.step);
    }
    REQUIRE(saver.warnings().size() == 1);
    CHECK_THAT(saver.warnings()[0], Contains("takes 6 MiB, memory_budget allows 1"));
    // An arena that has become too small makes room for a larger one.
    large.states[1].tensors["large"] = at::zeros({900 << 10}, at::kByte);
    store.allow(1);
    saver.plugin->take(large);
    saver.plugin->drain();
  }
  CHECK(store.steps == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("an async commit that fails is told at once, thrown once, and does not end the writer") {
  SlowStore store;
  store.failing_step = 2;
  Saver saver("async", store);
  store.allow(4);
  saver.plugin->take(small(1));
  saver.plugin->take(small(2));
  CHECK_THROWS_WITH(saver.plugin->drain(), "no space");
  REQUIRE(saver.errors().size() == 1);
  CHECK_THAT(saver.errors()[0], Contains("step 2 was not written: no space"));
  saver.plugin->take(small(3));
  saver.plugin->drain();
  saver.plugin->take(small(4));
  saver.plugin.reset();  // without drain: what was taken is written
  CHECK(store.steps == std::vector<std::int64_t>{1, 3, 4});
}

TEST_CASE("async on a GPU copies before save returns", "[cuda]") {
  if (!at::hasCUDA()) return;
  const Folder folder;
  Store store(folder.path(), {.keep_last = 100});
  Saver saver("async", store);
  Snapshot live = small(0);
  for (State& state : live.states)
    for (auto& [name, tensor] : state.tensors) tensor = at::zeros({1 << 20}, at::kFloat).cuda();
  for (std::int64_t step = 1; step <= 20; ++step) {
    for (State& state : live.states)
      for (auto& [name, tensor] : state.tensors) tensor.fill_(static_cast<double>(step));
    live.step = step;
    saver.plugin->take(live);
    for (State& state : live.states)
      for (auto& [name, tensor] : state.tensors) tensor.fill_(-1);
  }
  saver.plugin->drain();
  for (std::int64_t step = 1; step <= 20; ++step)
    for (const State& state : load(folder / folder_name(step)).states)
      for (const auto& [name, tensor] : state.tensors) CHECK(tensor.eq(step).all().item<bool>());
}

// For tests/e2e/checkpoints.py, which reads them by Python's safetensors.
TEST_CASE("write checkpoints", "[.][write-checkpoints]") {
  const char* out = std::getenv("TRAINYARD_TEST_OUT");
  if (out == nullptr) return;
  Store store(std::string(out) + "/checkpoints", {.keep_last = 9});
  store.commit(everything());
  store.commit(small(8));
  store.commit(small(9));
}

}  // namespace trainyard::checkpoint
