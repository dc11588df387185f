// Declares the host's own keys of a run file as plugins declare their options (Fields), with properties that
// only the host's keys have: units of a duration, class on resume.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <trainyard/manifest_data.hpp>

#include "core/plugins/kinds.hpp"

namespace trainyard::config {

/// Units that a duration may have at a place.
enum class Units : std::uint8_t {
  any,
  length,    ///< the length of the run itself: no percentage
  progress,  ///< no wall time: a place in the run that is the same each time
  time,      ///< wall time only
};

/// How a resume treats a value other than the run had.
using ChangeClass = plugins::KindRow::Change;

struct Key : OptionSpec {
  Units units = Units::any;
  std::optional<ChangeClass> change;  ///< overrides that of its section
};

/// Refines the key just declared; calls that plugins' options have as well come last in a chain.
template <class T>
class KeyRef : public OptionRef<T> {
 public:
  KeyRef(OptionRef<T> option, OptionSpec& spec, Key& extras)
      : OptionRef<T>(option), spec_(&spec), extras_(&extras) {}
  KeyRef& in(Units units) {
    extras_->units = units;
    return *this;
  }
  KeyRef& on_resume(ChangeClass change) {
    extras_->change = change;
    return *this;
  }
  /// Makes the key a string that has to be a duration and is kept as written.
  KeyRef& duration() {
    spec_->type = OptionType::duration;
    return *this;
  }
  /// Makes the key absent unless given; other code then decides.
  KeyRef& no_default() {
    spec_->fallback.reset();
    return *this;
  }

 private:
  OptionSpec* spec_;
  Key* extras_;
};

/// The keys of a table, declared by pointer to member. Defaults are those of a value-initialised `Struct`.
template <class Struct>
class Keys : private Fields<Struct> {
 public:
  Keys() : Fields<Struct>(writer_), writer_(data_) {}

  template <class T, class Owner>
  KeyRef<T> key(std::string_view name, T Owner::*member, std::string_view help) {
    const OptionRef<T> option = this->option(name, member, help);
    return {option, data_.options.back(), extras_.emplace_back()};
  }

  std::vector<Key> take() {
    for (std::size_t i = 0; i < extras_.size(); ++i)
      static_cast<OptionSpec&>(extras_[i]) = std::move(data_.options[i]);
    return std::move(extras_);
  }

 private:
  ManifestData data_;
  DataWriter writer_;
  std::vector<Key> extras_;
};

/// Returns the keys of a struct with `static void describe(Keys<Struct>&)`.
template <class Struct>
std::vector<Key> keys_of() {
  Keys<Struct> keys;
  Struct::describe(keys);
  return keys.take();
}

/// Fills a struct from a table that was checked against its keys.
template <class Struct>
void read(const Table& table, Struct& target) {
  static const std::vector<Key> keys = keys_of<Struct>();
  for (const Key& key : keys)
    if (const Value* value = table.find(key.name)) store(key, &target, *value);
}

}  // namespace trainyard::config
