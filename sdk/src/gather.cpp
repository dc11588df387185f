#include <trainyard/helpers/gather.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

class Writer {
 public:
  template <class Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  void scalar(const Scalar& value) {
    number(static_cast<std::uint8_t>(value.index()));
    if (const auto* words = std::get_if<std::string>(&value)) return text(*words);
    if (const auto* yes = std::get_if<bool>(&value)) return number(*yes);
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return number(*whole);
    number(std::get<double>(value));
  }
  void tensor(const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    number(static_cast<std::int8_t>(plain.scalar_type()));
    number(plain.dim());
    for (const std::int64_t length : plain.sizes()) number(length);
    text({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, piece(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return piece(number<std::uint64_t>()); }
  Scalar scalar() {
    switch (number<std::uint8_t>()) {
      case 0: return number<bool>();
      case 1: return number<std::int64_t>();
      case 2: return number<double>();
      default: return std::string(text());
    }
  }
  at::Tensor tensor() {
    const auto type = static_cast<at::ScalarType>(number<std::int8_t>());
    std::vector<std::int64_t> shape(static_cast<std::size_t>(number<std::int64_t>()));
    for (std::int64_t& length : shape) length = number<std::int64_t>();
    const std::string_view data = text();
    at::Tensor tensor = at::empty(shape, type);
    if (tensor.nbytes() != data.size()) throw DataError("a tensor of another rank is not whole");
    std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
    return tensor;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view piece(std::uint64_t length) {
    if (length > rest_.size()) throw DataError("what another rank sent is not whole");
    const std::string_view piece = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return piece;
  }
  std::string_view rest_;
};

}  // namespace

std::string to_bytes(const std::vector<State>& states) {
  Writer to;
  for (const State& state : states) {
    to.text(state.owner);
    to.text(state.version);
    to.number(state.scalars.size());
    for (const auto& [name, value] : state.scalars) {
      to.text(name);
      to.scalar(value);
    }
    to.number(state.tensors.size());
    for (const auto& [name, tensor] : state.tensors) {
      to.text(name);
      to.tensor(tensor);
    }
  }
  return to.take();
}

std::vector<State> from_bytes(std::string_view bytes) {
  Reader from(bytes);
  std::vector<State> states;
  while (!from.done()) {
    State state;
    state.owner = from.text();
    state.version = from.text();
    for (auto left = from.number<std::size_t>(); left > 0; --left) {
      std::string name(from.text());
      state.scalars.emplace(std::move(name), from.scalar());
    }
    for (auto left = from.number<std::size_t>(); left > 0; --left) {
      std::string name(from.text());
      state.tensors.emplace(std::move(name), from.tensor());
    }
    states.push_back(std::move(state));
  }
  return states;
}

std::vector<std::string> gather(RankGroup& ranks, std::string_view own) {
  const at::Tensor length = at::empty({1}, at::kLong), lengths = at::empty({ranks.size()}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = std::ssize(own);
  ranks.all_gather(lengths, length)->wait();
  const std::int64_t* each = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t longest = std::max<std::int64_t>(1, *std::max_element(each, each + ranks.size()));
  const at::Tensor text = at::zeros({longest}, at::kByte),
                   texts = at::empty({longest * ranks.size()}, at::kByte);
  std::memcpy(text.mutable_data_ptr(), own.data(), own.size());
  ranks.all_gather(texts, text)->wait();
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks.size(); ++rank)
    all.emplace_back(static_cast<const char*>(texts.const_data_ptr()) + rank * longest,
                     static_cast<std::size_t>(each[rank]));
  return all;
}

std::vector<std::vector<State>> gather(RankGroup& ranks, const std::vector<State>& own) {
  std::vector<std::vector<State>> all;
  for (const std::string& each : gather(ranks, std::string_view(to_bytes(own))))
    all.push_back(from_bytes(each));
  return all;
}

}  // namespace trainyard
