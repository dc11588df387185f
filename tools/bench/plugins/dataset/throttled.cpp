// Emulates a remote source: another dataset, whose bytes come through one token bucket. It sits above the files,
// so that what the operating system keeps of them in memory makes nothing faster.
#include <chrono>
#include <mutex>
#include <thread>

#include <trainyard/host.hpp>
#include <trainyard/staged_dataset.hpp>

namespace {

using namespace trainyard;

class Throttled final : public StagedDataset {
 public:
  struct Options {
    PluginList<Dataset> of;
    double megabytes_per_second = 50.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("throttled").version("1.0.0").summary("Emulates a remote source of limited rate.");
    m.option("of", &Options::of, "the dataset, one table").required();
    m.option("megabytes_per_second", &Options::megabytes_per_second, "of all threads together").above(0.0);
  }
  explicit Throttled(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    made_ = std::move(make_plugins(host(), options_.of).at(0));
    source_ = dynamic_cast<const StagedDataset*>(made_.get());
    if (source_ == nullptr) throw ConfigError("of: this dataset does not tell its stages apart");
    made_->open(split);
  }
  std::int64_t size() const override { return source_->size(); }
  BatchSchema schema() const override { return source_->schema(); }
  std::vector<std::int64_t> labels() const override { return source_->labels(); }
  std::string source() const override { return source_->source(); }
  std::string decoding() const override { return source_->decoding(); }
  std::vector<std::uint8_t> fetch(std::int64_t index) const override {
    std::vector<std::uint8_t> bytes = source_->fetch(index);
    std::this_thread::sleep_until(when_through(bytes.size()));
    return bytes;
  }
  Sample decode(std::int64_t index, std::span<const std::uint8_t> bytes) const override {
    return source_->decode(index, bytes);
  }
  Batch assemble(std::span<const std::int64_t> indices, std::span<const Sample> samples,
                 const ReadContext& context) const override {
    return source_->assemble(indices, samples, context);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The bucket has room for 10 ms: what was not used of the rate before that is lost.
  Clock::time_point when_through(std::size_t bytes) const {
    const std::chrono::duration<double> needed(static_cast<double>(bytes) /
                                               (options_.megabytes_per_second * 1e6));
    const std::lock_guard lock(mutex_);
    through_ = std::max(through_, Clock::now() - std::chrono::milliseconds(10)) +
               std::chrono::duration_cast<Clock::duration>(needed);
    return through_;
  }

  Options options_;
  std::unique_ptr<Dataset> made_;
  const StagedDataset* source_ = nullptr;  ///< the same
  mutable std::mutex mutex_;
  mutable Clock::time_point through_{};
};

}  // namespace

TRAINYARD_PLUGIN(Throttled)
