#include <trainyard/manifest_data.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace trainyard {
namespace {

/// Returns an integer of so many bytes, with a sign or without.
std::int64_t read_integer(const void* member, std::size_t size, bool is_signed) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, member, size);  // little endian
  const auto unused = static_cast<unsigned>(64 - 8 * size);
  return is_signed ? static_cast<std::int64_t>(bits << unused) >> unused : static_cast<std::int64_t>(bits);
}

void write_integer(void* member, std::size_t size, std::int64_t value) {
  std::memcpy(member, &value, size);
}

/// Calls `call` with a null pointer to the type of an element that the host knows.
template <class Call>
decltype(auto) with_element(const MemberType& type, Call&& call) {
  switch (type.type) {
    case OptionType::boolean: return call(static_cast<bool*>(nullptr));
    case OptionType::number:
      if (type.size == sizeof(float)) return call(static_cast<float*>(nullptr));
      return call(static_cast<double*>(nullptr));
    case OptionType::string: return call(static_cast<std::string*>(nullptr));
    case OptionType::duration: return call(static_cast<Duration*>(nullptr));
    default: break;
  }
  switch (type.size) {
    case 1:
      return type.is_signed ? call(static_cast<std::int8_t*>(nullptr))
                            : call(static_cast<std::uint8_t*>(nullptr));
    case 2:
      return type.is_signed ? call(static_cast<std::int16_t*>(nullptr))
                            : call(static_cast<std::uint16_t*>(nullptr));
    case 4:
      return type.is_signed ? call(static_cast<std::int32_t*>(nullptr))
                            : call(static_cast<std::uint32_t*>(nullptr));
    default:
      return type.is_signed ? call(static_cast<std::int64_t*>(nullptr))
                            : call(static_cast<std::uint64_t*>(nullptr));
  }
}

template <class T>
Value to_value(const T& element) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return Value(static_cast<std::int64_t>(element));
  else if constexpr (std::is_floating_point_v<T>)
    return Value(static_cast<double>(element));
  else if constexpr (std::is_same_v<T, Duration>)
    return Value(element.text());
  else
    return Value(element);
}

template <class T>
T from_value(const Value& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>)
    return value.as<T>();
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(value.as<std::int64_t>());
  else if constexpr (std::is_floating_point_v<T>) {
    const auto* const integer = value.get_if<std::int64_t>();
    return static_cast<T>(integer != nullptr ? static_cast<double>(*integer) : value.as<double>());
  } else
    return Duration::parse(value.as<std::string>()).value();
}

Value word_of(const MemberType& type, const void* element) {
  return Value(
      std::string(type.words[static_cast<std::size_t>(read_integer(element, type.size, type.is_signed))]));
}

/// Returns the value of a member: the default of its option. Tables have none but the empty list.
Value load(const MemberType& type, const void* member) {
  if (type.type == OptionType::table) return Value(Array{});
  if (!type.words.empty()) {
    if (!type.list) return word_of(type, member);
    Array words;
    for (std::size_t i = 0; const void* const element = type.elements->at(member, i); ++i)
      words.push_back(word_of(type, element));
    return Value(std::move(words));
  }
  return with_element(type, [&]<class T>(T*) {
    if (!type.list) return to_value(*static_cast<const T*>(member));
    Array elements;
    for (const auto& element : *static_cast<const std::vector<T>*>(member))
      elements.push_back(to_value<T>(element));
    return Value(std::move(elements));
  });
}

/// Stores into an element that the plugin's own code reaches.
void store_element(const OptionSpec& spec, void* element, const Value& value) {
  const MemberType& type = *spec.member;
  if (type.type == OptionType::table) return fill(element, spec.fields, value.as<Table>());
  const auto found = std::ranges::find(type.words, value.as<std::string>());
  write_integer(element, type.size, found - type.words.begin());
}

template <class T>
void store_known(const MemberType& type, void* member, const Value& value) {
  if (!type.list) {
    if (type.optional)
      *static_cast<std::optional<T>*>(member) = from_value<T>(value);
    else
      *static_cast<T*>(member) = from_value<T>(value);
    return;
  }
  std::vector<T> elements;
  for (const Value& element : value.as<Array>()) elements.push_back(from_value<T>(element));
  if (type.optional)
    *static_cast<std::optional<std::vector<T>>*>(member) = std::move(elements);
  else
    *static_cast<std::vector<T>*>(member) = std::move(elements);
}

void store_plugins(std::vector<Table>& tables, const Value& value) {
  tables.clear();
  for (const Value& element : value.as<Array>()) tables.push_back(element.as<Table>());
}

/// Limits the option to the numbers that its member can hold, so that others are refused, not cut off.
void limit(OptionSpec& spec) {
  const MemberType& type = *spec.member;
  if (type.type != OptionType::integer) return;
  with_element(type, [&]<class T>(T*) {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      if (Limits::min() == 0 || Limits::digits < 63) spec.minimum = static_cast<double>(Limits::min());
      if (Limits::digits < 63) spec.maximum = static_cast<double>(Limits::max());
    }
  });
}

}  // namespace

void DataWriter::option(const OptionRow& row) {
  const MemberType& type = *row.member;
  OptionSpec& spec = data_->options.emplace_back();
  spec.name = row.name;
  spec.help = row.help;
  spec.common = row.common;
  spec.member = row.member;
  spec.offset = row.offset;
  spec.type = type.type;
  spec.list = type.list;
  if (type.plugins != nullptr) spec.plugins = type.plugins;
  spec.choices.assign(type.words.begin(), type.words.end());
  limit(spec);
  if (!type.optional && (type.list || type.type != OptionType::table))
    spec.fallback = load(type, static_cast<const std::byte*>(row.defaults) + row.offset);
  if (type.describe == nullptr) return;
  ManifestData nested;
  DataWriter writer(nested);
  type.describe(writer);
  spec.fields = std::move(nested.options);
}

void DataWriter::minimum(double bound, bool open) {
  data_->options.back().minimum = bound;
  if (open) data_->options.back().open_minimum = true;
}

void DataWriter::maximum(double bound, bool open) {
  data_->options.back().maximum = bound;
  if (open) data_->options.back().open_maximum = true;
}

void DataWriter::count(std::int64_t elements) {
  data_->options.back().count = elements;
}

void DataWriter::word(std::string_view allowed) {
  data_->options.back().choices.emplace_back(allowed);
}

void DataWriter::synonym(std::string_view name) {
  data_->options.back().synonyms.emplace_back(name);
}

void DataWriter::mark(Mark mark) {
  OptionSpec& spec = data_->options.back();
  switch (mark) {
    case Mark::required:
      spec.required = true;
      spec.fallback.reset();
      return;
    case Mark::file: spec.file = true; return;
    case Mark::output: spec.output = true; return;
    case Mark::metric: spec.metric = true; return;
  }
}

void DataWriter::kind(std::string_view name, int revision) {
  data_->kind = name;
  data_->revision = revision;
}

void DataWriter::say(Word which, std::string_view text) {
  switch (which) {
    case Word::name: data_->name = text; return;
    case Word::version: data_->version = text; return;
    case Word::summary: data_->summary = text; return;
    case Word::needs: data_->needs.emplace_back(text); return;
    case Word::provides: data_->provides.emplace_back(text); return;
    case Word::conflicts: data_->conflicts.emplace_back(text); return;
  }
}

void DataWriter::fires(std::span<const Event> events) {
  data_->fires.assign(events.begin(), events.end());
}

void DataWriter::common_default(std::string_view option, const MemberType& type, const void* value) {
  for (OptionSpec& spec : data_->options)
    if (spec.common && spec.name == option) {
      spec.fallback = load(type, value);
      spec.required = false;
    }
}

void DataWriter::hook(Event event, void (*call)(void* self, StepContext&)) {
  HookSpec& hook = data_->hooks.emplace_back();
  hook.event = event;
  hook.call = call;
}

void DataWriter::hook_phase(Phase phase, Regions writes) {
  data_->hooks.back().phase = phase;
  if (phase == Phase::transform) data_->hooks.back().writes = writes;
}

void DataWriter::hook_priority(int priority) {
  data_->hooks.back().priority = priority;
}

void DataWriter::say_of_hook(HookWord which, std::string_view text) {
  HookSpec& hook = data_->hooks.back();
  switch (which) {
    case HookWord::before: hook.before.emplace_back(text); return;
    case HookWord::after: hook.after.emplace_back(text); return;
    case HookWord::every: hook.cadence.every = text; return;
  }
}

void store(const OptionSpec& spec, void* target, const Value& value) {
  const MemberType& type = *spec.member;
  void* const member = static_cast<std::byte*>(target) + spec.offset;
  if (type.plugins != nullptr) return store_plugins(*static_cast<std::vector<Table>*>(member), value);
  if (type.elements == nullptr && !type.words.empty()) return store_element(spec, member, value);
  if (type.elements == nullptr)
    return with_element(type, [&]<class T>(T*) { store_known<T>(type, member, value); });
  type.elements->clear(member);
  if (!type.list) return store_element(spec, type.elements->add(member), value);
  for (const Value& element : value.as<Array>()) store_element(spec, type.elements->add(member), element);
}

void fill(void* target, const std::vector<OptionSpec>& specs, const Table& table) {
  for (const OptionSpec& spec : specs) {
    if (const Value* given = table.find(spec.name))
      store(spec, target, *given);
    else if (spec.fallback)
      store(spec, target, *spec.fallback);
  }
}

ManifestData manifest_of(const PluginEntry& entry) {
  ManifestData data;
  DataWriter writer(data);
  entry.describe(writer);
  return data;
}

PluginEntry::Instance make_plugin(const PluginEntry& entry, const ManifestData& manifest,
                                  const Table& options) {
  struct Given final : OptionSource {
    const ManifestData* manifest = nullptr;
    const Table* table = nullptr;
    void fill(void* own, void* common) const override {
      for (const OptionSpec& spec : manifest->options) {
        const Value* const given = table->find(spec.name);
        if (given == nullptr && !spec.fallback) continue;
        store(spec, spec.common ? common : own, given != nullptr ? *given : *spec.fallback);
      }
    }
  };
  Given given;
  given.manifest = &manifest;
  given.table = &options;
  return entry.create(given);
}

}  // namespace trainyard
