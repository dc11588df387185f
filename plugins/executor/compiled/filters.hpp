// A parameter that holds filters, as a primitive of oneDNN counts and packs them: filled up with zeros where channels are.
#pragma once

#include <cstring>

#include "compiler.hpp"

namespace compiled {

/// `lies`: the parameter in the order of the primitive's dimensions; `whole`: these, with what fills them up.
struct FiltersLayout {
  Layout lies;
  Dims whole;

  bool is_filled() const { return lies.get_dims() != whole; }
  /// The filters of the parameter among those of `plain(whole)`.
  Layout part() const { return plain(whole).submemory_desc(lies.get_dims(), Dims(whole.size(), 0)); }
};

class PackedFilters {
 public:
  PackedFilters() = default;
  PackedFilters(Compiler& compiler, ValueNumber weight, const FiltersLayout& filters, const Layout& packed)
      : packed_(compiler.scratch(packed)) {
    const dnnl::memory parameter = compiler.memory(weight);
    if (!filters.is_filled()) {
      move_ = reorder(parameter, filters.lies, packed_, packed);
      return;
    }
    filled_ = compiler.scratch(plain(filters.whole));
    fill_ = reorder(parameter, filters.lies, filled_, filters.part());
    move_ = reorder(filled_, packed_);
  }
  const dnnl::memory& memory() const { return packed_; }
  /// To be called ahead of who reads them.
  void pack() const {
    if (fill_) {
      std::memset(filled_.get_data_handle(), 0, filled_.get_desc().get_size());
      fill_.run();
    }
    move_.run();
  }

 private:
  dnnl::memory filled_, packed_;
  Call fill_, move_;
};

/// The gradient of such a parameter, which comes packed, or as plain(whole).
class FiltersGradient {
 public:
  FiltersGradient() = default;
  FiltersGradient(Compiler& compiler, ValueNumber weight, const FiltersLayout& filters, const Layout& packed)
      : packed_(compiler.scratch(packed)) {
    if (!compiler.wants_gradient(weight)) return;
    into_ = compiler.contribute(weight);
    dnnl::memory filled = packed_;
    if (packed != plain(filters.whole)) {
      filled = compiler.scratch(plain(filters.whole));
      unpack_ = reorder(packed_, filled);
    }
    move_ = reorder(filled, filters.part(), into_->memory, filters.lies);
  }
  const dnnl::memory& memory() const { return packed_; }
  /// Hands it on, where it is wanted.
  void give() const {
    if (!into_) return;
    if (unpack_) unpack_.run();
    move_.run();
    into_->finish();
  }

 private:
  dnnl::memory packed_;
  Call unpack_, move_;
  std::optional<Contribution> into_;
};

}  // namespace compiled
