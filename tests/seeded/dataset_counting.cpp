// Caught by resume.bits with --set data.path=points.txt: what a sample is depends on how many were read before.
#include <ATen/ops/full.h>
#include <fstream>
#include <trainyard/dataset.hpp>
using namespace trainyard;
class Counting final : public Dataset {
 public:
  struct Options {
    std::string path;
  };
  static void describe(Manifest<Options>& m) {
    m.name("counting").version("1.0.0").summary("A plugin with a mistake.");
    m.option("path", &Options::path, "file that begins with `points` and a count").required().file();
  }
  explicit Counting(const Options& options) : path_(options.path) {}
  void open(const std::string&) override {
    std::string word;
    std::ifstream(path_) >> word >> size_;
    if (word != "points") throw DataError(path_ + ": does not begin with `points`");
  }
  std::int64_t size() const override { return size_; }
  BatchSchema schema() const override { return {.inputs = {{"point", {2}}}, .target = {"sum", {}}}; }
  Batch read(std::span<const std::int64_t> all, const ReadContext&) const override {
    return {{at::full({std::ssize(all), 2}, 0.1 * ++calls_)}, at::full({std::ssize(all)}, 1.0), {}};
  }
  std::string path_;
  std::int64_t size_ = 0;
  mutable std::int64_t calls_ = 0;
};
TRAINYARD_PLUGIN(Counting)
