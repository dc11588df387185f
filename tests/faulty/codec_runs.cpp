// Stores each run of equal bytes as its length and the byte.
#include <algorithm>

#include <trainyard/codec.hpp>
#include <trainyard/error.hpp>

namespace {

using namespace trainyard;

class Runs final : public Codec {
 public:
  struct Options {
    bool broken = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("runs").version("1.0.0").summary("Stores each run of equal bytes as its length and the byte.");
    m.option("broken", &Options::broken, "drops the last run");
  }
  explicit Runs(const Options& options) : options_(options) {}

  std::size_t bound(const TensorForm&, std::size_t size) const override { return 2 * size; }

  std::size_t encode(const TensorForm&, std::span<const std::byte> bytes,
                     std::span<std::byte> code) const override {
    std::size_t length = 0;
    while (!bytes.empty()) {
      std::size_t run = 1;
      while (run < std::min<std::size_t>(bytes.size(), 255) && bytes[run] == bytes[0]) ++run;
      code[length++] = static_cast<std::byte>(run);
      code[length++] = bytes[0];
      bytes = bytes.subspan(run);
    }
    return options_.broken ? length - 2 : length;
  }

  void decode(const TensorForm&, std::span<const std::byte> code, std::span<std::byte> bytes) const override {
    for (; code.size() >= 2; code = code.subspan(2)) {
      const auto run = static_cast<std::size_t>(code[0]);
      if (run == 0 || run > bytes.size()) break;
      std::ranges::fill(bytes.first(run), code[1]);
      bytes = bytes.subspan(run);
    }
    if (!code.empty() || !bytes.empty()) throw DataError("the runs do not add up to the tensor");
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Runs)
