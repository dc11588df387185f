#include <vector>

#include <trainyard/codec.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;

int main() {
  testing::Made<Codec> codec(PLUGIN_FILE);
  const std::vector<std::int64_t> shape = {6};
  const TensorForm form{"I8", shape};
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{0}, std::byte{2}, {}, {}, {}};
  std::vector<std::byte> code(codec->bound(form, bytes.size())), back(bytes.size(), std::byte{9});
  code.resize(codec->encode(form, bytes, code));
  EXPECT(code.size() == 3);
  codec->decode(form, code, back);
  EXPECT(back == bytes);
  EXPECT_THROWS(DataError, "longer than its tensor", codec->decode(form, bytes, code));
  return testing::done();
}
