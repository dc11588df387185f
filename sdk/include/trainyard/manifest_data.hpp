// The host's copy of a description (manifest.hpp), and the way of options into a plugin's struct. It is for
// hosts and tests: plugins need none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/event.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("manifest_data.hpp");

namespace trainyard {

/// One option of a plugin, as the run file's table of its slot may hold it.
struct OptionSpec {
  std::string name;
  OptionType type = OptionType::boolean;
  bool list = false;
  std::optional<std::int64_t> count;       ///< number of elements that a list has to have
  bool required = false;                   ///< else `fallback` holds where the file says nothing
  std::optional<Value> fallback;           ///< no value: the option is absent unless given
  std::optional<double> minimum, maximum;  ///< bounds of the number, or of each number of a list
  bool open_minimum = false;               ///< the minimum itself is not allowed
  bool open_maximum = false;
  std::vector<std::string> choices;  ///< allowed values of a string
  std::vector<OptionSpec> fields;    ///< fields of a table
  std::string plugins;               ///< kind of the plugins that a list of tables holds; empty: plain tables
  bool file = false;    ///< a string that names a file or folder to read: the host resolves and checks it
  bool output = false;  ///< a string that names a file to write in the run's folder: the host checks it
  bool metric = false;  ///< a string that names a value of the evaluations: the host checks that there is one
  std::vector<std::string> synonyms;  ///< names in other trainers: unknown here, but suggested from
  std::string help;
  /// The type of the member that `store` writes, and its distance from the begin of its struct. Set only in a
  /// manifest that a plugin's own code gave; not part of the sealed text.
  const MemberType* member = nullptr;
  std::ptrdiff_t offset = 0;
  bool common = false;  ///< given to every plugin of the kind; the member is of the kind's struct
};

/// Says when a hook is called; durations are counted in steps from 1 over the whole run, or in epochs for
/// events of epochs and evaluations. The host tests it before the call.
struct Cadence {
  std::string every, start, end;  ///< duration texts; empty: each time, from the first, to the last

  bool operator==(const Cadence&) const = default;
};

struct HookSpec {
  Event event = Event::init;
  Phase phase = Phase::observe;
  Regions writes;
  int priority = 50;                       ///< 0 to 100, low first
  std::vector<std::string> before, after;  ///< names of plugins; unknown ones do not matter
  Cadence cadence;
  void (*call)(void* self, StepContext&) = nullptr;  ///< not part of the sealed text
};

struct ManifestData {
  std::string kind;
  int revision = 0;
  std::string name, version, summary;
  std::vector<OptionSpec> options;
  std::vector<HookSpec> hooks;
  std::vector<std::string> needs;      ///< what the run has to offer (Manifest::needs)
  std::vector<std::string> provides;   ///< features that plugins of other slots may need (Manifest::provides)
  std::vector<std::string> conflicts;  ///< names of plugins that cannot be in the same run
  std::vector<Event> fires;            ///< those of micro_events that an executor fires
};

/// Writes a description into a ManifestData.
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it is final, and its bases protect theirs
class DataWriter final : public ManifestWriter {
 public:
  explicit DataWriter(ManifestData& data) : data_(&data) {}

  void option(const OptionRow& row) override;
  void minimum(double bound, bool open) override;
  void maximum(double bound, bool open) override;
  void count(std::int64_t elements) override;
  void word(std::string_view allowed) override;
  void synonym(std::string_view name) override;
  void mark(Mark mark) override;
  void kind(std::string_view name, int revision) override;
  void say(Word which, std::string_view text) override;
  void fires(std::span<const Event> events) override;
  void common_default(std::string_view option, const MemberType& type, const void* value) override;
  void hook(Event event, void (*call)(void* self, StepContext&)) override;
  void hook_phase(Phase phase, Regions writes) override;
  void hook_priority(int priority) override;
  void say_of_hook(HookWord which, std::string_view text) override;

 private:
  ManifestData* data_;
};

/// Returns the options of a struct with `static void describe(Fields<Struct>&)`.
template <class Struct>
std::vector<OptionSpec> options_of() {
  ManifestData data;
  DataWriter writer(data);
  detail::describe_fields<Struct>(writer);
  return std::move(data.options);
}

/// Writes a checked value into its member of `target`; an integer is converted for a member that is a float.
void store(const OptionSpec& spec, void* target, const Value& value);

/// Fills `target` from a checked table: given values, else the defaults.
void fill(void* target, const std::vector<OptionSpec>& specs, const Table& table);

/// Returns what a plugin says about itself. Throws what its `describe` throws.
ManifestData manifest_of(const PluginEntry& entry);

/// Makes a plugin with the options of a checked table. `manifest` is that of `entry`.
PluginEntry::Instance make_plugin(const PluginEntry& entry, const ManifestData& manifest,
                                  const Table& options);

}  // namespace trainyard
