// Rules between keys: what each key allows was checked before (check.hpp).
#pragma once

#include <trainyard/value.hpp>
#include "core/config/findings.hpp"

namespace trainyard::config {

/// Fills in batch_size, micro_batch_size and accumulation of [data.train] from those that are given, or says
/// why they contradict. `at`: of the table.
void solve_batch(Table& train, const Origin& at, Findings& findings);

/// All other rules, on the resolved tables; a key that is absent or was found wrong is left out of account.
void check_rules(const Table& resolved, Findings& findings);

/// The value at a dotted path ("data.train.batch_size"), if it is there with that type.
template <class T>
const T* at_path(const Table& root, std::string_view path);
const Value* value_at(const Table& root, std::string_view path);

template <class T>
const T* at_path(const Table& root, std::string_view path) {
  const Value* value = value_at(root, path);
  return value == nullptr ? nullptr : value->get_if<T>();
}

}  // namespace trainyard::config
