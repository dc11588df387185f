#include <algorithm>

#include <trainyard/codec.hpp>
#include <trainyard/error.hpp>

/// Leaves out the zeros at the end.
class MyPlugin final : public trainyard::Codec {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Leaves out the zeros at the end of a tensor.");
  }
  explicit MyPlugin(const Options&) {}

  std::size_t bound(const trainyard::TensorForm&, std::size_t size) const override { return size; }
  std::size_t encode(const trainyard::TensorForm&, std::span<const std::byte> bytes,
                     std::span<std::byte> code) const override {
    while (!bytes.empty() && bytes.back() == std::byte{0}) bytes = bytes.first(bytes.size() - 1);
    std::ranges::copy(bytes, code.begin());
    return bytes.size();
  }
  void decode(const trainyard::TensorForm&, std::span<const std::byte> code,
              std::span<std::byte> bytes) const override {
    if (code.size() > bytes.size()) throw trainyard::DataError("a code is longer than its tensor");
    std::ranges::fill(std::ranges::copy(code, bytes.begin()).out, bytes.end(), std::byte{0});
  }
};
TRAINYARD_PLUGIN(MyPlugin)
