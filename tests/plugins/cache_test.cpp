// The dataset cache, over a source that counts what is asked of it.
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include <malloc.h>
#include <zlib.h>

#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/staged_dataset.hpp>

#include "plugins/dataset/cache/memory_level.hpp"
#include "plugins/dataset/cache/packing.hpp"
#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/plugin.hpp"
#include "support/png_file.hpp"

namespace cache_tests {

using namespace trainyard;
using Catch::Contains;
using test::table;

namespace {

using Indices = std::vector<std::int64_t>;

constexpr std::int64_t count = 200, numbers = 32;

/// What a Probe did, and is to do.
struct Asked {
  std::atomic<int> fetched{0}, decoded{0};
  std::atomic<std::int64_t> broken{-1};  ///< sample that cannot be decoded
  std::int64_t zeros = 0;                ///< bytes ahead of those of a sample
  std::string source = "probe", decoding = "plain";
};

/// Sample i is 32 floats of i, to which a batch adds random numbers in the split train.
class Probe final : public StagedDataset {
 public:
  explicit Probe(Asked& asked) : asked_(&asked) {}
  void open(const std::string& split) override { augment_ = split == "train"; }
  std::int64_t size() const override { return count; }
  BatchSchema schema() const override {
    return {.inputs = {{"x", {numbers}, at::kFloat}}, .target = {"y", {}, at::kLong}, .classes = 7};
  }
  std::vector<std::int64_t> labels() const override { return std::vector<std::int64_t>(count, 3); }
  std::string source() const override { return asked_->source; }
  std::string decoding() const override { return asked_->decoding; }
  std::vector<std::uint8_t> fetch(std::int64_t index) const override {
    ++asked_->fetched;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(asked_->zeros));
    bytes.resize(static_cast<std::size_t>(asked_->zeros + 10 + index), static_cast<std::uint8_t>(index));
    return bytes;
  }
  Sample decode(std::int64_t index, std::span<const std::uint8_t> bytes) const override {
    ++asked_->decoded;
    if (index == asked_->broken) throw DataError("sample " + std::to_string(index) + " is broken");
    if (bytes.size() != static_cast<std::size_t>(asked_->zeros + 10 + index) || bytes.back() != index)
      throw DataError("sample " + std::to_string(index) + " got the bytes of another");
    return {at::full({numbers}, static_cast<double>(index), at::kFloat)};
  }
  Batch assemble(std::span<const std::int64_t> indices, std::span<const Sample> samples,
                 const ReadContext& context) const override {
    Batch batch;
    std::vector<at::Tensor> rows;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint64_t draw = static_cast<std::uint64_t>(context.position) + i;
      rows.push_back(at::add(samples[i].front(), augment_ ? context.random.uniform(draw) : 0.0));
    }
    batch.inputs = {at::stack(rows)};
    batch.target = at::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), at::kLong);
    return batch;
  }

 private:
  Asked* asked_;
  bool augment_ = false;
};

/// Makes probes, and keeps what the cache says.
class ProbeHost final : public test::QuietHost {
 public:
  Asked asked;

  void log(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    (level == LogLevel::warning ? warnings_ : said_) += std::string(message) + "\n";
  }
  std::unique_ptr<Plugin> make(std::string_view kind, const Table& options) override {
    if (options.find("type")->as<std::string>() != "probe") return QuietHost::make(kind, options);
    return std::make_unique<Probe>(asked);
  }
  std::string warnings() {
    const std::lock_guard lock(mutex_);
    return std::exchange(warnings_, {});
  }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return std::exchange(said_, {});
  }
  int fetched() { return asked.fetched.exchange(0); }
  int decoded() { return asked.decoded.exchange(0); }

 private:
  std::mutex mutex_;
  std::string warnings_, said_;
};

struct EpochEnd final : StepContext {
  EpochEnd() { event_ = Event::epoch_end; }
};

/// One of two ranks on this machine, which exchange nothing by collectives.
class OneOfTwo final : public Ranks {
 public:
  explicit OneOfTwo(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return 2; }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor&) override { throw DistributedError("not here"); }
  std::unique_ptr<Exchange> all_gather(const at::Tensor&, const at::Tensor&) override {
    throw DistributedError("not here");
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor&, const at::Tensor&) override {
    throw DistributedError("not here");
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor&, int) override { throw DistributedError("not here"); }
  std::unique_ptr<RankGroup> group(const std::vector<int>&) override { return nullptr; }

 private:
  int rank_;
};

/// The hosts of both, in the folder of a run.
class TwoHosts {
 public:
  TwoHosts() {
    std::filesystem::create_directories(folder_ / "ranks/1");
    for (int rank = 0; rank < 2; ++rank) {
      hosts_[rank].facts.ranks = &ranks_[rank];
      hosts_[rank].facts.directory = rank == 0 ? folder_.path() : folder_ / "ranks/1";
    }
  }
  ProbeHost& operator[](int rank) { return hosts_[rank]; }
  std::string address_file(int rank) { return hosts_[rank].facts.directory + "/cache-train.address"; }
  int fetched() { return hosts_[0].fetched() + hosts_[1].fetched(); }

 private:
  const test::Folder folder_;
  OneOfTwo ranks_[2] = {OneOfTwo(0), OneOfTwo(1)};
  ProbeHost hosts_[2];
};

/// A cache over a probe, open.
class Cached {
 public:
  Cached(ProbeHost& host, Table options, const std::string& split = "train", const std::string& of = "probe")
      : plugin_("cache", with(std::move(options), of)) {
    plugin_.plugin().set_host(host);
    plugin_.plugin().open(split);
  }
  const Dataset& operator*() const { return plugin_.plugin(); }
  Dataset& dataset() { return plugin_.plugin(); }
  State saved() const { return plugin_.saved(); }
  void end_epoch() {
    EpochEnd context;
    plugin_.fire(context);
  }

 private:
  static Table with(Table options, const std::string& of) {
    if (!options.contains("of")) options.set("of", Array{Value(table({{"type", of.c_str()}}))});
    return options;
  }
  test::Subscribed<Dataset> plugin_;
};

Indices shuffled(unsigned seed, std::int64_t size = count) {
  Indices order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

/// All samples in an order of the epoch's own, in batches of 16.
std::vector<at::Tensor> epoch(const Dataset& dataset, std::uint64_t number) {
  const Indices order = shuffled(static_cast<unsigned>(number));
  std::vector<at::Tensor> batches;
  for (std::int64_t first = 0; first < count; first += 16) {
    const auto part =
        std::span(order).subspan(static_cast<std::size_t>(first),
                                 std::min<std::size_t>(16, order.size() - static_cast<std::size_t>(first)));
    batches.push_back(dataset.read(part, {RandomStream(5, "data", number), first}).input());
  }
  return batches;
}

/// An epoch of two ranks in turn: each reads its half of every batch.
std::vector<at::Tensor> epoch(const Dataset& first, const Dataset& second, std::uint64_t number) {
  const Indices order = shuffled(static_cast<unsigned>(number));
  std::vector<at::Tensor> batches;
  for (std::int64_t begin = 0; begin < count; begin += 8) {
    const Dataset& reader = begin / 8 % 2 == 0 ? first : second;
    batches.push_back(reader
                          .read(std::span(order).subspan(static_cast<std::size_t>(begin), 8),
                                {RandomStream(5, "data", number), begin})
                          .input());
  }
  return batches;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

/// The files of a folder, with those below it, sorted.
std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void overwrite(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// An option `codec` of these, in their order.
Value codecs(std::initializer_list<const char*> names) {
  Array all;
  for (const char* const name : names) all.push_back(Value(table({{"type", name}})));
  return Value(all);
}

/// The bytes of all entries, headers included.
std::uintmax_t bytes_of(const std::string& folder) {
  std::uintmax_t total = 0;
  for (const auto& file : files_of(folder)) total += std::filesystem::file_size(file);
  return total;
}

/// An entry with its checksum made right again.
std::string resealed(std::string entry) {
  const auto* const bytes = reinterpret_cast<const Bytef*>(entry.data());
  const uLong of_header = crc32_z(0, bytes + 8, 16);  // index and length
  const std::uint64_t checksum = crc32_z(of_header, bytes + 32, entry.size() - 32);
  entry.replace(24, sizeof checksum, reinterpret_cast<const char*>(&checksum), sizeof checksum);
  return entry;
}

std::string refusal(ProbeHost& host, const Table& options, const std::string& of = "probe") {
  return test::message_of<ConfigError>([&] { const Cached cached(host, options, "train", of); });
}

}  // namespace

TEST_CASE("cache: what was decoded is kept, what is random is not: the bits are those without it") {
  const test::Folder folder;
  ProbeHost host;
  Probe plain(host.asked);
  for (const char* split : {"train", "val"}) {
    plain.open(split);
    for (const bool disk : {false, true})
      for (const int memory : {0, 1}) {
        if (!disk && memory == 0) continue;
        INFO(split << ", disk " << disk << ", memory " << memory);
        const test::Folder own;
        const Cached cached(
            host, table({{"disk", disk ? own.path() : std::string()}, {"memory_budget", memory}}), split);
        std::vector<at::Tensor> before;
        for (std::uint64_t number = 0; number < 3; ++number) {
          const std::vector<at::Tensor> expected = epoch(plain, number);
          host.fetched();
          host.decoded();
          const std::vector<at::Tensor> found = epoch(*cached, number);
          CHECK(same(found, expected));
          CHECK_FALSE(same(found, before));
          CHECK(host.fetched() == (number == 0 ? count : 0));
          CHECK(host.decoded() == (number == 0 || memory == 0 ? count : 0));
          before = found;
        }
      }
  }
  const Cached cached(host, table({{"memory_budget", 1}}));
  CHECK((*cached).size() == count);
  CHECK((*cached).schema().classes == 7);
  CHECK((*cached).labels() == plain.labels());
  const Indices one = {4};
  const at::Tensor first = (*cached).read(one, {RandomStream(5, "data", 0), 0}).input();
  CHECK_FALSE(at::equal(first, (*cached).read(one, {RandomStream(5, "data", 1), 0}).input()));
  CHECK(at::equal(first, (*cached).read(one, {RandomStream(5, "data", 0), 0}).input()));
}

TEST_CASE("cache: the disk outlives the object, and holds the bytes of one source only") {
  const test::Folder folder;
  ProbeHost host;
  const Table disk = table({{"disk", folder.path()}, {"memory_budget", 1}});
  epoch(*Cached(host, disk), 0);
  CHECK(files_of(folder.path()).size() == count);  // nothing beside the entries
  CHECK(host.fetched() == count);
  host.asked.decoding = "in another way";  // of the same bytes
  epoch(*Cached(host, disk, "val"), 0);
  CHECK(host.fetched() == 0);
  host.asked.source = "written anew";
  epoch(*Cached(host, disk), 0);
  CHECK(host.fetched() == count);
  CHECK(host.warnings().empty());
}

TEST_CASE("cache: a damaged entry is named and fetched again") {
  const auto codec = GENERATE(values<std::string>({"", "boveda", "zstd"}));
  INFO("codec " << codec);
  const test::Folder folder;
  ProbeHost host;
  host.asked.zeros = codec.empty() ? 0 : 500;
  Table disk = table({{"disk", folder.path()}, {"memory_budget", 0}});
  if (!codec.empty()) disk.set("codec", codecs({codec.c_str()}));
  const Cached cached(host, disk, "val");
  const auto expected = epoch(*cached, 0);
  auto files = files_of(folder.path());
  std::ranges::sort(files, std::ranges::greater(),
                    [](const auto& file) { return std::stoi(file.filename()); });
  const std::string good = test::read_file(files[0]);
  std::string flipped = good, other_index = good, magic = good, length = good;
  flipped.back() ^= 1;
  other_index[8] ^= 1;
  magic[0] ^= 1;
  length[16] ^= 1;
  const std::pair<std::string, const char*> damages[] = {
      {flipped, "its bytes do not match their checksum"},
      {other_index, "it says that it is sample "},
      {magic, "it does not begin as an entry does"},
      {length, " bytes, and says "},
      {good + "x", " bytes, and says "},
      {good.substr(0, good.size() - 1), " bytes, and says "},
      {good.substr(0, 20), "it does not begin as an entry does"},
      {"", "it does not begin as an entry does"},
      {test::read_file(files[1]), "it says that it is sample "}};
  for (const auto& [content, what] : damages) {
    INFO(what);
    overwrite(files[0], content);
    host.fetched();
    CHECK(same(epoch(*cached, 0), expected));
    CHECK(host.fetched() == 1);
    CHECK_THAT(host.warnings(), Contains(files[0].string() + " is damaged: ") && Contains(what));
    CHECK(test::read_file(files[0]) == good);
  }
  CHECK(same(epoch(*cached, 0), expected));
  CHECK(host.fetched() == 0);
  CHECK(host.warnings().empty());
}

TEST_CASE("cache: a codec makes entries of the disk shorter, and the bits stay") {
  ProbeHost host;
  host.asked.zeros = 500;
  Probe plain(host.asked);
  plain.open("train");
  const test::Folder whole;
  epoch(*Cached(host, table({{"disk", whole.path()}, {"memory_budget", 0}})), 0);
  for (const char* const codec : {"boveda", "zstd"})
    for (const int memory : {0, 1}) {
      INFO(codec << ", memory " << memory);
      const test::Folder folder;
      const Table options =
          table({{"disk", folder.path()}, {"memory_budget", memory}, {"codec", codecs({codec})}});
      host.fetched();
      host.said();
      {
        Cached first(host, options);
        for (std::uint64_t number = 0; number < 2; ++number)
          CHECK(same(epoch(*first, number), epoch(plain, number)));
        first.end_epoch();
      }
      CHECK_THAT(host.said(), Contains("; 121900 bytes were written to the disk as ") &&
                                  Contains(std::string(", packed by ") + codec));
      CHECK(bytes_of(folder.path()) < 0.75 * static_cast<double>(bytes_of(whole.path())));
      host.fetched();
      CHECK(same(epoch(*Cached(host, options), 2), epoch(plain, 2)));
      CHECK(host.fetched() == count);  // the probe's own
      CHECK(host.warnings().empty());
    }
}

TEST_CASE("cache: entries of a codec that is not there are told once, with its plugin, and fetched again") {
  const test::Folder folder;
  ProbeHost host;
  host.asked.zeros = 500;
  const auto with = [&](const Value& codec) {
    return table({{"disk", folder.path()}, {"memory_budget", 0}, {"codec", codec}});
  };
  const auto expected = epoch(*Cached(host, with(codecs({"zstd"})), "val"), 0);
  host.fetched();
  CHECK(same(epoch(*Cached(host, with(codecs({"boveda", "zstd"})), "val"), 0), expected));
  CHECK(host.fetched() == 0);
  CHECK(host.warnings().empty());
  for (const Value& codec : {codecs({"boveda"}), Value(Array{})}) {
    const bool packs = !codec.as<Array>().empty();
    const Cached cached(host, with(codec), "val");
    CHECK(same(epoch(*cached, 0), expected));
    CHECK(host.fetched() > 100);
    const std::string told = host.warnings();
    CHECK_THAT(told, Contains(packs ? "packed by the codec \"zstd\"" : "packed by the codec \"boveda\"") &&
                         Contains(packs ? "libzstd.so" : "libboveda.so") && Contains("fetched again"));
    CHECK(std::ranges::count(told, '\n') == 1);
    CHECK(same(epoch(*cached, 0), expected));
    CHECK(host.fetched() == 0);
  }
}

TEST_CASE("cache: a packed entry whose checksum is right but whose code is wrong is fetched again") {
  const test::Folder folder;
  ProbeHost host;
  host.asked.zeros = 500;
  const Cached cached(
      host, table({{"disk", folder.path()}, {"memory_budget", 0}, {"codec", codecs({"boveda"})}}), "val");
  const auto expected = epoch(*cached, 0);
  const std::filesystem::path file =
      folder.path() + "/" + files_of(folder.path()).front().parent_path().parent_path().filename().string() +
      "/0/150";
  const std::string good = test::read_file(file);
  REQUIRE(good.substr(0, 8) == "tycache2");
  std::string code = good, name_length = good, length = good, huge = good;
  code.back() ^= 1;
  name_length[40] = '\xff';
  length[32] ^= 1;
  huge[39] = 1;
  for (const std::string& wrong : {code, name_length, length, huge}) {
    overwrite(file, resealed(wrong));
    host.fetched();
    CHECK(same(epoch(*cached, 0), expected));
    CHECK(host.fetched() == 1);
    CHECK_THAT(host.warnings(), Contains(file.string() + " is damaged: "));
    CHECK(test::read_file(file) == good);
  }
}

TEST_CASE("cache: packed samples come back to the bit, of every type, and take less memory") {
  for (const char* const codec : {"boveda", "zstd"}) {
    std::vector<cache::Packing::Named> named;
    named.emplace_back(codec, test::make<Codec>(codec));
    const cache::Packing packing(std::move(named));
    for (const at::ScalarType type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                                      at::kFloat, at::kBFloat16, at::kDouble, at::kBool})
      for (const std::vector<std::int64_t>& sizes :
           std::vector<std::vector<std::int64_t>>{{}, {0}, {3, 40, 40}, {7}, {2, 1, 33}}) {
        const at::Tensor given = at::full(sizes, 3.0, at::kFloat).to(type).clone();
        if (given.numel() > 2) given.view({-1})[1] = 1;
        const Sample back = packing.unpack(packing.pack(Sample{given, given.unsqueeze(0)}));
        REQUIRE(back.size() == 2);
        CHECK(back[0].scalar_type() == type);
        CHECK(at::equal(back[0], given));
        CHECK(at::equal(back[1], given.unsqueeze(0)));
      }
    const Sample image = {at::full({3, 64, 64}, 9.0, at::kByte)};
    CHECK(packing.pack(image).front().nbytes() < 0.6 * static_cast<double>(image.front().nbytes()));
  }
}

TEST_CASE("cache: what cannot be decoded is kept nowhere") {
  const test::Folder folder;
  ProbeHost host;
  const Cached cached(host, table({{"disk", folder.path()}}));
  host.asked.broken = 7;
  const Indices one = {7};
  const auto read = [&] { return (*cached).read(one, {RandomStream(5, "data"), 0}); };
  CHECK(test::message_of<DataError>(read) == "sample 7 is broken");
  CHECK(files_of(folder.path()).empty());
  host.asked.broken = -1;
  host.fetched();
  read();
  CHECK(host.fetched() == 1);
}

TEST_CASE("cache: a disk that takes no more is told once, and the run goes on") {
  const test::Folder folder;
  ProbeHost host;
  const Table disk = table({{"disk", folder.path()}, {"memory_budget", 0}});
  const Cached cached(host, disk, "val");
  {
    const test::FullDisk full(100);  // entries are larger from sample 59 on
    epoch(*cached, 0);
  }
  const std::string told = host.warnings();
  CHECK_THAT(told, Contains("cannot write " + folder.path()) && Contains("kept on the disk no more"));
  CHECK(std::count(told.begin(), told.end(), '\n') == 1);
  for (const auto& file : files_of(folder.path()))
    CHECK(file.filename().string().find('.') == std::string::npos);
  host.fetched();
  epoch(*cached, 1);
  CHECK(host.fetched() > 0);
  CHECK(host.warnings().empty());
}

TEST_CASE("cache: a memory too small for all evicts whole shards, those used last stay") {
  using cache::MemoryLevel;
  const Sample sample = {at::full({numbers}, 1.0, at::kFloat)};  // 128 bytes and what lies beside
  MemoryLevel alone({.budget = 1 << 20, .pinned = 0.0, .shard = 4});
  alone.put(0, sample);
  const std::int64_t each = alone.usage().bytes;
  CHECK(each > 128);
  MemoryLevel level({.budget = 12 * each, .pinned = 0.0, .shard = 4});  // three shards
  for (std::int64_t i = 0; i < 12; ++i) level.put(i, sample);
  CHECK(level.usage().bytes == 12 * each);
  CHECK(level.get(0)->front().is_same(sample.front()));  // shards 2, 1, 0 by use: now 0, 2, 1
  level.put(12, sample);
  CHECK(level.usage().samples == 9);
  for (std::int64_t i = 0; i < 13; ++i) CHECK(level.get(i).has_value() == (i < 4 || i >= 8));
  level.put(12, sample);
  CHECK(level.usage().samples == 9);  // it was there

  MemoryLevel pinned(
      {.budget = 12 * each, .pinned = 0.4, .shard = 4});  // one shard is less than 0.4, two are more
  for (int pass = 0; pass < 3; ++pass)
    for (std::int64_t i = 0; i < 40; ++i) pinned.put(i, sample);
  CHECK(pinned.usage().pinned == 4);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(pinned.get(i).has_value());
  CHECK(pinned.usage().bytes <= 12 * each);

  MemoryLevel narrow({.budget = 2 * each, .pinned = 0.0, .shard = 4});
  for (std::int64_t i = 0; i < 3; ++i) narrow.put(i, sample);
  for (std::int64_t i = 0; i < 3; ++i) CHECK(narrow.get(i).has_value() == (i < 2));  // not its own shard

  MemoryLevel tiny({.budget = each - 1, .pinned = 1.0, .shard = 4});
  tiny.put(0, sample);
  CHECK_FALSE(tiny.get(0).has_value());
  CHECK(tiny.usage().bytes == 0);
}

TEST_CASE("cache: a pass in order over twice the budget finds the pinned share, and nothing without it") {
  const Sample sample = {at::full({numbers}, 1.0, at::kFloat)};
  constexpr std::int64_t samples = 2048, budget = 1024 * (numbers * 4 + 512);
  for (const double share : {0.0, 0.5, 1.0}) {
    cache::MemoryLevel level({.budget = budget, .pinned = share, .shard = 64});
    std::int64_t hits = 0;
    for (int pass = 0; pass < 3; ++pass)
      for (std::int64_t i = 0; i < samples; ++i) {
        if (level.get(i).has_value())
          hits += pass == 2;
        else
          level.put(i, sample);
        REQUIRE(level.usage().bytes <= budget);
      }
    INFO("pinned " << share);
    CHECK(hits == static_cast<std::int64_t>(share * 1024));
  }
}

#ifndef __SANITIZE_ADDRESS__  // which has a heap of its own
TEST_CASE("cache: the memory that is counted is the memory that is taken") {
  for (const std::int64_t size : {784, 12288}) {
    constexpr std::int64_t samples = 20000;
    cache::MemoryLevel level({.budget = std::int64_t{1} << 40, .pinned = 0.5, .shard = 64});
    const auto in_use = [] {
      const struct mallinfo2 heap = mallinfo2();
      return static_cast<double>(heap.uordblks + heap.hblkhd);
    };
    const double before = in_use();
    for (std::int64_t i = 0; i < samples; ++i) level.put(i, {at::full({size}, 1, at::kByte)});
    const double taken = in_use() - before, counted = static_cast<double>(level.usage().bytes);
    WARN("samples of " << size << " bytes: " << taken / samples << " taken, " << counted / samples
                       << " counted");
    CHECK(counted > 0.95 * taken);
    CHECK(counted < 1.25 * taken);
  }
}
#endif

TEST_CASE("cache: many threads read at once, with little room") {
  const test::Folder folder;
  ProbeHost host;
  for (const bool disk : {false, true}) {
    const Cached cached(
        host, table({{"disk", disk ? folder.path() : std::string()}, {"memory_budget", 1}, {"shard", 4}}),
        "val");
    cache::MemoryLevel level({.budget = 60 * 1000, .pinned = 0.3, .shard = 4});
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> threads;
      for (unsigned seed = 0; seed < 8; ++seed)
        threads.emplace_back([&, seed] {
          for (unsigned pass = 0; pass < 20; ++pass)
            for (const std::int64_t index : shuffled(100 * seed + pass)) {
              const Batch batch = (*cached).read(std::span(&index, 1), {RandomStream(5, "data"), 0});
              wrong += batch.input().const_data_ptr<float>()[5] != static_cast<float>(index);
              if (const auto kept = level.get(index))
                wrong += kept->front().const_data_ptr<float>()[5] != static_cast<float>(index);
              else
                level.put(index, {at::full({numbers}, static_cast<double>(index), at::kFloat)});
            }
        });
    }
    CHECK(wrong == 0);
    CHECK(level.usage().bytes <= 60 * 1000);
    CHECK(level.usage().samples > 0);
  }
  CHECK(host.warnings().empty());
  CHECK(files_of(folder.path()).size() == count);
}

TEST_CASE("cache: an epoch is reported as what was fetched, read from the disk and found in memory") {
  const test::Folder folder;
  ProbeHost host;
  const Table both = table({{"disk", folder.path()}});
  {
    Cached first(host, both);
    epoch(*first, 0);
    first.end_epoch();
    CHECK_THAT(host.said(), Contains("train: 200 samples fetched from the source (21900 bytes), 0 read from "
                                     "the disk, 0 found in memory, which holds 200 samples"));
    epoch(*first, 1);
    first.end_epoch();
    CHECK_THAT(
        host.said(),
        Contains(
            "train: 0 samples fetched from the source (0 bytes), 0 read from the disk, 200 found in memory"));
    first.end_epoch();
    CHECK(host.said().empty());
  }
  Cached again(host, both);
  epoch(*again, 2);
  again.end_epoch();
  CHECK_THAT(
      host.said(),
      Contains(
          "train: 0 samples fetched from the source (0 bytes), 200 read from the disk, 0 found in memory"));
}

TEST_CASE("cache: two ranks read each sample once, whichever of them reads it in an epoch") {
  const bool packs = GENERATE(false, true);
  TwoHosts hosts;
  Table options = table({{"shard", 10}});
  if (packs) options.set("codec", codecs({"boveda"}));
  Cached first(hosts[0], options), second(hosts[1], options);
  ProbeHost host;
  Probe plain(host.asked);
  plain.open("train");
  for (std::uint64_t number = 0; number < 3; ++number) {
    INFO("epoch " << number);
    CHECK(same(epoch(*first, *second, number), epoch(plain, plain, number)));
    CHECK(hosts.fetched() == (number == 0 ? count : 0));
    first.end_epoch();
    second.end_epoch();
    for (int rank = 0; rank < 2; ++rank) {
      // The samples of the other rank take no room here.
      CHECK_THAT(hosts[rank].said(),
                 Contains("which holds 100 samples") && Contains(" had from other ranks"));
      CHECK(hosts[rank].warnings().empty());
    }
  }
  const auto mode = std::filesystem::status(hosts.address_file(1)).permissions();
  CHECK((mode & ~(std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)) ==
        std::filesystem::perms::none);
}

TEST_CASE("cache: a rank that is gone leaves its samples to the others, until it is replaced") {
  TwoHosts hosts;
  const Table options = table({{"shard", 10}});
  Cached first(hosts[0], options);
  auto second = std::make_unique<Cached>(hosts[1], options);
  ProbeHost host;
  Probe plain(host.asked);
  plain.open("train");
  epoch(**second, *first, 0);
  const std::string address = test::read_file(hosts.address_file(1));
  second.reset();
  CHECK_FALSE(std::filesystem::exists(hosts.address_file(1)));
  overwrite(hosts.address_file(1), address);  // a rank that is killed leaves it
  hosts.fetched();
  CHECK(same(epoch(*first, *first, 1), epoch(plain, plain, 1)));
  CHECK(hosts.fetched() == 100);  // those of rank 1
  for (int end = 0; end < 2; ++end) {
    first.end_epoch();
    CHECK_THAT(hosts[0].said(), Contains("which holds 200 samples") || Contains("had from"));
    const std::string told = hosts[0].warnings();
    if (end == 0)
      CHECK_THAT(told, Contains("train: no samples are had from rank 1 (") &&
                           Contains("this rank reads and keeps them itself until it answers"));
    else
      CHECK(told.empty());
    epoch(*first, *first, 2);
  }
  second = std::make_unique<Cached>(hosts[1], options);
  hosts.fetched();
  CHECK(same(epoch(**second, *first, 3), epoch(plain, plain, 3)));
  CHECK(hosts.fetched() <= 100);  // of those of rank 1, that it reads itself
  std::vector<at::Tensor> all = epoch(**second, **second, 4);
  hosts.fetched();
  CHECK(same(epoch(*first, **second, 5), epoch(plain, plain, 5)));
  CHECK(hosts.fetched() == 0);
}

TEST_CASE("cache: ranks whose samples are decoded in other ways have none of each other") {
  TwoHosts hosts;
  hosts[1].asked.decoding = "in another way";
  Cached first(hosts[0], {}), second(hosts[1], {});
  epoch(*first, *second, 0);
  CHECK(hosts.fetched() == count);
  first.end_epoch();
  CHECK_THAT(hosts[0].warnings(), Contains("rank 1 (its samples are of other data)"));
}

TEST_CASE("cache: who does not know the token gets nothing") {
  TwoHosts hosts;
  const Table options = table({{"shard", 10}});
  Cached first(hosts[0], options), second(hosts[1], options);
  std::string address = test::read_file(hosts.address_file(1));
  address[address.find(' ', address.find(' ') + 1) + 1] ^= 1;
  overwrite(hosts.address_file(1), address);
  const Indices all = shuffled(1);
  (*second).read(all, {RandomStream(5, "data"), 0});
  CHECK(hosts.fetched() == count);
  (*first).read(all, {RandomStream(5, "data"), 0});
  CHECK(hosts.fetched() == 100);
}

TEST_CASE("cache: a server whose address another one wrote over writes it again at the end of an epoch") {
  TwoHosts hosts;
  Cached first(hosts[0], {});
  const std::string address = test::read_file(hosts.address_file(0));
  {
    const Cached other(hosts[0], {});
    CHECK(test::read_file(hosts.address_file(0)) != address);
  }
  CHECK_FALSE(std::filesystem::exists(hosts.address_file(0)));
  epoch(*first, *first, 0);
  first.end_epoch();
  CHECK(test::read_file(hosts.address_file(0)) == address);
  {
    const Cached other(hosts[0], {});
    overwrite(hosts.address_file(0), address);
  }
  CHECK(test::read_file(hosts.address_file(0)) == address);  // it removed its own alone
}

TEST_CASE("cache: a checkpoint holds a manifest, and what changed since is told") {
  ProbeHost host;
  Cached cached(host, {});
  epoch(*cached, 0);
  const State state = cached.saved();
  CHECK(state.tensors.empty());
  CHECK(state.scalars.size() == 2);
  CHECK(std::get<std::string>(state.scalars.at("source")).size() == 64);
  cached.dataset().load(StateReader(state));
  CHECK(host.warnings().empty());
  host.asked.source = "written anew";
  host.asked.decoding = "in another way";
  Cached(host, {}).dataset().load(StateReader(state));
  CHECK(host.warnings() ==
        "train: the files of the dataset are others than when the checkpoint was written\n"
        "train: samples are decoded in another way than when the checkpoint was written\n");
}

TEST_CASE("cache: what it cannot do is refused") {
  ProbeHost host;
  CHECK_THAT(refusal(host, table({{"memory_budget", 0}})), Contains("the cache would keep nothing"));
  CHECK_THAT(refusal(host, table({{"of", Array{}}})), Contains("of has 0 datasets: give one"));
  const Value one(table({{"type", "probe"}}));
  CHECK_THAT(refusal(host, table({{"of", Array{one, one}}})), Contains("of has 2 datasets: give one"));
  CHECK_THAT(refusal(host, {}, "synthetic"), Contains("the dataset \"synthetic\" does not tell apart"));
}

TEST_CASE("cache: a disk that holds other things than caches is refused, and nothing is written there") {
  const test::Folder images, disk;
  ProbeHost host;
  test::write_png(images / "a/1.png", 8, 8, 1, std::vector<std::uint8_t>(64, 10));
  CHECK_THAT(refusal(host, table({{"disk", images.path()}})),
             Contains("has \"a\", which no cache wrote: give a folder that caches alone use"));
  CHECK(files_of(images.path()).size() == 1);
  const Table options = table({{"disk", disk.path()}});
  (*Cached(host, options)).read(Indices{0}, {RandomStream(5, "data"), 0});
  CHECK_NOTHROW(Cached(host, options));  // beside what another left
}

TEST_CASE("cache: an image that is written anew is read anew") {
  const test::Folder folder, disk;
  ProbeHost host;
  const std::vector<std::uint8_t> dark(64, 10), bright(64, 200);
  const std::string image = folder / "a/1.png";
  test::write_png(image, 8, 8, 1, dark);
  const Value of(
      table({{"type", "image_folder"}, {"path", folder.path()}, {"size", Array{8}}, {"grey", true}}));
  const Table options = table({{"of", Array{of}}, {"disk", disk.path()}});
  const auto brightness = [&] {
    return (*Cached(host, options))
               .read(Indices{0}, {RandomStream(5, "data"), 0})
               .input()
               .const_data_ptr<float>()[0] *
           255.0f;
  };
  CHECK(brightness() == Approx(10));
  CHECK(brightness() == Approx(10));
  CHECK(files_of(disk.path()).size() == 1);
  test::write_png(image, 8, 8, 1, bright);
  std::filesystem::last_write_time(image, std::filesystem::last_write_time(image) + std::chrono::seconds(2));
  CHECK(brightness() == Approx(200));
}

}  // namespace cache_tests
