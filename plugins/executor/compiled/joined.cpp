// Concat and Split. Parameters that lie behind each other in memory are joined where they lie, and their gradients are parts of that of
// the whole; other values are copied piece by piece.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <numeric>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

/// Parameters along their first axis. Where they do not lie behind each other, they are copied.
class JoinedParameters final : public Instruction {
 public:
  JoinedParameters(Compiler& compiler, std::vector<ValueNumber> parts, ValueNumber whole)
      : parts_(std::move(parts)), whole_(whole), at_(compiler.place(whole)) {
    for (const ValueNumber part : parts_) {
      places_.push_back(compiler.place(part));
      bytes_.push_back(compiler.value(part).view.layout.get_size());
    }
  }

  void forward(const Pass&) override {
    const auto* end = static_cast<const std::byte*>(places_[0].data());
    bool behind = true;
    for (std::size_t i = 0; i < places_.size(); end += bytes_[i++])
      behind = behind && places_[i].data() == end;
    if (behind) return at_.place(places_[0].data());
    const std::size_t all = std::accumulate(bytes_.begin(), bytes_.end(), std::size_t{0});
    if (!copied_.defined()) copied_ = at::empty({static_cast<std::int64_t>(all)}, at::kByte);
    auto* to = static_cast<std::byte*>(copied_.mutable_data_ptr());
    at_.place(to);
    for (std::size_t i = 0; i < places_.size(); to += bytes_[i++])
      std::memcpy(to, places_[i].data(), bytes_[i]);
  }

  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(whole_);
    std::size_t offset = 0;
    for (std::size_t i = 0; i < parts_.size(); offset += bytes_[i++]) {
      if (!compiler.wants_gradient(parts_[i]) || compiler.cut_gradient(whole_, parts_[i], offset)) continue;
      copies_.emplace_back(offset / sizeof(float), compiler.contribute(parts_[i]));
    }
  }

  void backward(const Pass&) override {
    for (const auto& [offset, into] : copies_) {
      copy(floats(into.memory), floats(given_) + offset, elements(into.memory));
      into.finish();
    }
  }

 private:
  std::vector<ValueNumber> parts_;
  ValueNumber whole_;
  Address at_;
  std::vector<Address> places_;
  std::vector<std::size_t> bytes_;
  at::Tensor copied_;
  dnnl::memory given_;
  std::vector<std::pair<std::size_t, Contribution>> copies_;
};

/// A whole is so many rows, and each row is that of the first piece, that of the second, and so on.
class Pieces final : public Instruction {
 public:
  Pieces(Compiler& compiler, ValueNumber whole, std::vector<ValueNumber> parts, bool splits,
         std::int64_t rows)
      : whole_(whole), parts_(std::move(parts)), splits_(splits), rows_(rows) {
    all_ = compiler.memory(whole_);
    for (const ValueNumber part : parts_) pieces_.push_back(compiler.memory(part));
  }

  void forward(const Pass&) override {
    for_each(
        [&](float* whole, std::size_t i, std::int64_t place, std::int64_t length) {
          float* const piece = floats(pieces_[i]) + place;
          splits_ ? copy(piece, whole, length) : copy(whole, piece, length);
        },
        floats(all_));
  }

  void plan_backward(Compiler& compiler) override {
    of_pieces_.resize(parts_.size());
    into_.resize(parts_.size());
    if (splits_) {
      for (std::size_t i = 0; i < parts_.size(); ++i) of_pieces_[i] = compiler.gradient(parts_[i]);
      into_whole_ = compiler.contribute(whole_);
      of_whole_ = into_whole_.memory;
      return;
    }
    of_whole_ = *compiler.gradient(whole_);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!compiler.wants_gradient(parts_[i])) continue;
      into_[i] = compiler.contribute(parts_[i]);
      of_pieces_[i] = into_[i]->memory;
    }
  }

  void backward(const Pass&) override {
    for_each(
        [&](float* whole, std::size_t i, std::int64_t place, std::int64_t length) {
          if (splits_ && !of_pieces_[i]) {
            std::memset(whole, 0, static_cast<std::size_t>(length) * sizeof(float));
          } else if (of_pieces_[i]) {
            float* const piece = floats(*of_pieces_[i]) + place;
            splits_ ? copy(whole, piece, length) : copy(piece, whole, length);
          }
        },
        floats(of_whole_));
    if (splits_) into_whole_.finish();
    for (const auto& into : into_)
      if (into) into->finish();
  }

 private:
  template <class Move>
  void for_each(const Move& move, float* whole) const {
    const std::int64_t row = elements(all_) / rows_;
    at::parallel_for(0, rows_, std::max<std::int64_t>(1, (1 << 15) / row),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t r = begin; r < end; ++r) {
                         float* at = whole + r * row;
                         for (std::size_t i = 0; i < pieces_.size(); ++i) {
                           const std::int64_t length = elements(pieces_[i]) / rows_;
                           move(at, i, r * length, length);
                           at += length;
                         }
                       }
                     });
  }

  ValueNumber whole_;
  std::vector<ValueNumber> parts_;
  bool splits_;
  std::int64_t rows_;
  dnnl::memory all_, of_whole_;
  std::vector<dnnl::memory> pieces_;
  std::vector<std::optional<dnnl::memory>> of_pieces_;
  Contribution into_whole_;
  std::vector<std::optional<Contribution>> into_;
};

bool fills_blocks(const Dims& dims) {
  return dims.size() == 4 && dims[1] % channel_block() == 0;
}

std::int64_t rows_of(const Dims& dims, std::size_t axis) {
  return std::accumulate(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis), std::int64_t{1},
                         std::multiplies<>());
}

bool joins(Compiler& compiler, std::size_t axis) {
  const trainyard::Node& node = compiler.node();
  bool wants = false, parameters = axis == 0, is_blocked = false, fill = axis == 1;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& value = compiler.value(compiler.input(i));
    if (!compiler.is_real(compiler.input(i)) || value.dims.size() <= axis) return false;
    wants = wants || value.wants_gradient;
    parameters = parameters && compiler.is_constant(i);
    is_blocked = is_blocked || value.is_blocked;
    fill = fill && fills_blocks(value.dims);
  }
  const bool in_blocks = is_blocked && fill && !compiler.has_halves();
  std::vector<ValueNumber> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    parts.push_back(in_blocks ? compiler.in_blocks(compiler.input(i)) : compiler.in_plain(compiler.input(i)));
  const Dims dims = compiler.dims_of(node.outputs[0]);
  if (parameters) {
    const ValueNumber whole = compiler.make_joined(dims, wants);
    compiler.emit<JoinedParameters>({whole}, parts, whole);
    compiler.give(node.outputs[0], whole);
    return true;
  }
  const ValueNumber whole = compiler.make(dims, in_blocks ? blocked(dims) : plain(dims), wants, in_blocks);
  compiler.emit<Pieces>({whole}, whole, parts, false, rows_of(dims, axis));
  compiler.give(node.outputs[0], whole);
  return true;
}

bool splits(Compiler& compiler, std::size_t axis) {
  const trainyard::Node& node = compiler.node();
  const Value& given = compiler.value(compiler.input(0));
  bool in_blocks = given.is_blocked && axis == 1 && !compiler.has_halves();
  for (const trainyard::ValueId id : node.outputs) {
    if (id == trainyard::no_value) return false;
    in_blocks = in_blocks && fills_blocks(compiler.dims_of(id));
  }
  if (!compiler.is_real(compiler.input(0)) || compiler.is_constant(0)) return false;
  const ValueNumber whole = in_blocks ? compiler.input(0) : compiler.in_plain(compiler.input(0));
  const bool wants = compiler.wants_gradient(whole);
  std::vector<ValueNumber> parts;
  for (const trainyard::ValueId id : node.outputs) {
    const Dims dims = compiler.dims_of(id);
    parts.push_back(compiler.make(dims, in_blocks ? blocked(dims) : plain(dims), wants, in_blocks));
  }
  compiler.emit<Pieces>(parts, whole, parts, true, rows_of(compiler.value(whole).dims, axis));
  for (std::size_t i = 0; i < parts.size(); ++i) compiler.give(node.outputs[i], parts[i]);
  return true;
}

}  // namespace

bool joined_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const bool is_split = node.op == "Split";
  if (!is_split && node.op != "Concat") return false;
  const auto rank = static_cast<std::int64_t>(compiler.value(compiler.input(0)).dims.size());
  const std::int64_t axis = node.integer("axis", 0);
  if (axis >= rank || axis < -rank) return false;
  const auto place = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  return is_split ? splits(compiler, place) : joins(compiler, place);
}

}  // namespace compiled
