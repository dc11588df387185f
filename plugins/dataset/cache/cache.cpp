// Keeps samples of another dataset near: their bytes on a local disk, decoded ones in memory, that of several ranks for
// the training split. What is random comes after it, so that a run has the same bits with and without.
#include <atomic>
#include <memory>
#include <optional>

#include <trainyard/helpers/rank_folder.hpp>
#include <trainyard/host.hpp>
#include <trainyard/keeps_data.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/staged_dataset.hpp>
#include <trainyard/state.hpp>

#include "../around.hpp"
#include "disk_level.hpp"
#include "memory_level.hpp"
#include "owners.hpp"
#include "packing.hpp"

namespace {

using namespace trainyard;

constexpr std::int64_t mebibyte = 1 << 20;

class Cache final : public Dataset, public KeepsFolders, public datasets::AroundAnother {
 public:
  struct Options {
    PluginList<Dataset> of;
    std::string disk;
    std::int64_t memory_budget = 1024;
    double pinned = 0.5;
    std::int64_t shard = 64;
    PluginList<Codec> codec;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cache").version("1.0.0").summary("Keeps samples of a dataset on a local disk and in memory.");
    m.option("of", &Options::of, "the dataset, one table, as in [{ type = \"image_folder\", ... }]")
        .required();
    m.option("disk", &Options::disk,
             "folder on a local disk for the samples as they were fetched; it outlives the run; empty: none")
        .file();
    m.option("memory_budget", &Options::memory_budget,
             "MiB for decoded samples, a split; 0: none are kept in memory")
        .range(0, 1 << 30);
    m.option(
         "pinned", &Options::pinned,
         "share of memory_budget for the samples that come first, which stay; the rest goes to those used "
         "last")
        .range(0.0, 1.0);
    m.option("shard", &Options::shard, "samples, neighbours by index, that are evicted together")
        .range(1, 1 << 20);
    m.option("codec", &Options::codec,
             "packs samples on the disk and in memory, without loss; of several the first packs, and entries "
             "of the "
             "disk that another one packed are read, too; what it makes no shorter stays as it is");
    m.hook<&Cache::report>(Event::epoch_end);
  }
  explicit Cache(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    if (options_.disk.empty() && options_.memory_budget == 0)
      throw ConfigError("memory_budget = 0 and no disk: the cache would keep nothing; give it one of them");
    make_within(host(), options_.of);
    source_ = within_as<const StagedDataset>();
    if (source_ == nullptr)
      throw ConfigError("of: the dataset \"" + type_within() +
                        "\" does not tell apart what can be kept of a sample and what is random "
                        "(StagedDataset): take it without a cache");
    if (auto* const learns = within_as<Learns>()) {
      if (taken_) learns->set_taken(taken_);
      if (learned_) learns->use(*learned_);
    }
    within().open(split);
    split_ = split;
    name_ = name_of(source_->source());
    packing_ = std::make_unique<cache::Packing>(codecs());
    if (!options_.disk.empty())
      disk_ = std::make_unique<cache::DiskLevel>(
          options_.disk, name_, *packing_,
          [this](const std::string& what) { host().log(LogLevel::warning, what); });
    if (options_.memory_budget > 0)
      memory_ = std::make_unique<cache::MemoryLevel>(cache::MemoryLevel::Limits{
          .budget = options_.memory_budget * mebibyte, .pinned = options_.pinned, .shard = options_.shard});
    share_with_ranks();
  }

  void use(const Table& learned) override { learned_ = learned; }
  std::vector<std::string> kept_folders() const override { return {"disk"}; }
  void set_taken(TakenSamples taken) override { taken_ = std::move(taken); }

  std::int64_t size() const override { return source_->size(); }
  BatchSchema schema() const override { return source_->schema(); }
  std::vector<std::int64_t> labels() const override { return source_->labels(); }

  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) samples.push_back(sample(index));
    return source_->assemble(indices, samples, context);
  }

  /// A manifest: what the samples are of. They themselves are in no checkpoint; a run that goes on reads them
  /// again, from the disk if there is one.
  void save(StateWriter& state) const override {
    if (source_ == nullptr) return;
    state.scalar("source", name_);
    state.scalar("decoding", source_->decoding());
  }
  void load(const StateReader& state) override {
    tell_change(state, "source", name_, "the files of the dataset are others");
    tell_change(state, "decoding", source_->decoding(), "samples are decoded in another way");
  }

  /// Counts the last epoch. The loader reads ahead: its first batches of the next one may be counted already.
  void report(StepContext&) {
    const std::int64_t memory = from_memory_.exchange(0), disk = from_disk_.exchange(0),
                       fetched = fetched_.exchange(0), bytes = fetched_bytes_.exchange(0);
    const std::int64_t ranks = from_ranks_.exchange(0);
    if (memory + disk + fetched + ranks == 0) return;
    std::string text = split_ + ": " + std::to_string(fetched) + " samples fetched from the source (" +
                       std::to_string(bytes) + " bytes), " + std::to_string(disk) + " read from the disk, " +
                       std::to_string(memory) + " found in memory";
    if (memory_) {
      const cache::MemoryLevel::Usage usage = memory_->usage();
      text += ", which holds " + std::to_string(usage.samples) + " samples, " + std::to_string(usage.pinned) +
              " of them pinned (" + std::to_string(usage.bytes) + " bytes)";
    }
    if (disk_ && !packing_->name().empty())
      if (const auto [whole, stored] = disk_->take_written(); whole > 0)
        text += "; " + std::to_string(whole) + " bytes were written to the disk as " +
                std::to_string(stored) + ", packed by " + packing_->name();
    if (server_) {
      text += "; " + std::to_string(ranks) + " had from other ranks";
      server_->publish();
      if (const std::string silent = owners_->silent(); !silent.empty())
        host().log(LogLevel::warning, split_ + ": no samples are had from " + silent +
                                          ": this rank reads and keeps them itself until it answers");
    }
    host().log(LogLevel::info, text);
  }

 private:
  /// In an evaluation each rank reads the same samples every time, and finds them in its own memory.
  void share_with_ranks() {
    const Ranks* const ranks = host().run().ranks;
    if (ranks == nullptr || ranks->size() == 1 || !memory_ || split_ != "train") return;
    cache::SampleOwners::Setup setup{
        .rank = ranks->rank(),
        .shard = options_.shard,
        .identity = name_of(source_->source() + source_->decoding() + packing_->name())};
    for (int rank = 0; rank < ranks->size(); ++rank)
      setup.address_files.push_back(rank_folder(host().run(), rank) + "/cache-" + split_ + ".address");
    server_ = std::make_unique<cache::SampleServer>(*memory_,
                                                    setup.address_files[static_cast<std::size_t>(setup.rank)],
                                                    setup.identity, ranks->local_size() == ranks->size());
    owners_ = std::make_unique<cache::SampleOwners>(std::move(setup));
    serving_ = host().thread("samples", [this](const std::stop_token& stop) { server_->serve(stop); });
  }

  std::vector<cache::Packing::Named> codecs() {
    std::vector<cache::Packing::Named> named;
    std::vector<std::unique_ptr<Codec>> made = make_plugins(host(), options_.codec);
    for (std::size_t i = 0; i < made.size(); ++i)
      named.emplace_back(options_.codec.tables[i].find("type")->as<std::string>(), std::move(made[i]));
    return named;
  }

  /// SHA-256, as a name of a folder.
  static std::string name_of(std::string source) {
    State state;
    StateWriter(state).scalar("source", std::move(source));
    return digest(state);
  }

  void tell_change(const StateReader& state, const char* name, const std::string& now, const char* what) {
    if (state.text(name) != now)
      host().log(LogLevel::warning, split_ + ": " + what + " than when the checkpoint was written");
  }

  Sample sample(std::int64_t index) const {
    if (memory_)
      if (std::optional<Sample> kept = memory_->get(index)) {
        ++from_memory_;
        return packing_->unpack(*kept);
      }
    const bool of_another = owners_ && !owners_->is_own(index);
    if (of_another)
      if (std::optional<Sample> kept = owners_->get(index)) {
        ++from_ranks_;
        return packing_->unpack(*kept);
      }
    Sample made = decode(index);
    if (!memory_) return made;
    const Sample packed = packing_->pack(made);
    if (of_another && owners_->put(index, packed)) return made;
    memory_->put(index, packed);
    return made;
  }

  Sample decode(std::int64_t index) const {
    if (disk_)
      if (const auto kept = disk_->get(index)) {
        ++from_disk_;
        return source_->decode(index, *kept);
      }
    const std::vector<std::uint8_t> bytes = source_->fetch(index);
    ++fetched_;
    fetched_bytes_ += static_cast<std::int64_t>(bytes.size());
    Sample made = source_->decode(index, bytes);
    if (disk_) disk_->put(index, bytes);  // not before: what cannot be decoded is not to be kept
    return made;
  }

  Options options_;
  const StagedDataset* source_ = nullptr;  ///< the same
  std::optional<Table> learned_;           ///< for it
  TakenSamples taken_;                     ///< for it; empty: all samples
  std::string split_, name_;
  std::unique_ptr<cache::Packing> packing_;      ///< of no codec where the option has none
  std::unique_ptr<cache::DiskLevel> disk_;       ///< null: none
  std::unique_ptr<cache::MemoryLevel> memory_;   ///< null: none
  std::unique_ptr<cache::SampleServer> server_;  ///< null: other ranks have nothing of this one
  std::unique_ptr<cache::SampleOwners> owners_;  ///< null where server_ is
  mutable std::atomic<std::int64_t> from_memory_{0}, from_ranks_{0}, from_disk_{0}, fetched_{0},
      fetched_bytes_{0};
  std::shared_ptr<void> serving_;  ///< the thread of server_; last, so that it ends before what it uses
};

}  // namespace

TRAINYARD_PLUGIN(Cache)
