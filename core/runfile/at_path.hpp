// Looks up values in tables by dotted paths.
#pragma once

#include <string_view>

#include <trainyard/value.hpp>

namespace trainyard::config {

/// Returns the value at a dotted path ("data.train.batch_size"); null where there is none.
const Value* value_at(const Table& root, std::string_view path);

/// The same, but null where the value is of another type.
template <class T>
const T* at_path(const Table& root, std::string_view path) {
  const Value* value = value_at(root, path);
  return value == nullptr ? nullptr : value->get_if<T>();
}

}  // namespace trainyard::config
