// The base of every plugin, and the macro that turns a class into one.
//
//   class Cosine final : public trainyard::Schedule {
//    public:
//     struct Options { double min_factor = 0.0; };
//     static void describe(trainyard::Manifest<Options>& m);
//     explicit Cosine(const Options& options);
//     ...
//   };
//   TRAINYARD_PLUGIN(Cosine)
//
// Include only what you use of LibTorch: <ATen/core/Tensor.h>, <ATen/ops/NAME.h> for at::NAME, and for a + b
// and a < b <ATen/TensorOperators.h>. With torch/torch.h or ATen/ATen.h it takes twice as long to compile.
//
// The constructor runs on the loop thread with checked options and should only store them; open files and
// take memory in the calls that the kind's interface gives for it. All calls come from the loop thread unless
// an interface says otherwise. The host owns the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <trainyard/contract.hpp>
#include <trainyard/error.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/version.hpp>

TRAINYARD_CONTRACT("plugin.hpp");

namespace trainyard {

class Host;
class StateWriter;
class StateReader;

/// The name of an SDK interface and its revision; a plugin is locked to both.
struct Kind {
  const char* name;
  int revision;
};

/// The options that every plugin of a kind has, where the kind does not say otherwise: none.
struct NoCommon {
  static void describe(Fields<NoCommon>&) {}
};

class Plugin {
 public:
  using Common = NoCommon;

  Plugin() = default;
  virtual ~Plugin() = default;
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  /// Write and read the state that a checkpoint or a swap carries over; a plugin without any needs neither.
  /// `load` gets what `save` wrote, perhaps by an older version of the plugin (StateReader::version), and
  /// throws if it cannot use it.
  virtual void save(StateWriter&) const {}
  virtual void load(const StateReader&) {}

  /// Returns the services of the host (host.hpp). Throws PluginError in the constructor: there are none yet.
  Host& host() const {
    if (host_ == nullptr) [[unlikely]]
      no_host();
    return *host_;
  }
  void set_host(Host& host) { host_ = &host; }

 private:
  [[noreturn, gnu::cold]] static void no_host() {
    throw PluginError(
        "asks for host() in its constructor, where there is none yet: ask in `open`, or in a hook at init or "
        "later");
  }

  Host* host_ = nullptr;
};

/// The environment that a plugin was built with; compared field by field before any of its code runs. So are
/// the headers that it saw (contract.hpp).
struct Fingerprint {
  const char* sdk = TRAINYARD_SDK_VERSION;
  const char* libtorch = TRAINYARD_LIBTORCH_VERSION;
  const char* compiler = TRAINYARD_COMPILER;  ///< its family and C++ ABI
  const char* library = TRAINYARD_LIBRARY;    ///< standard library, its string ABI and debug mode
  const char* isa = TRAINYARD_ISA;            ///< instruction set that inline code may use
};

/// The host's side of the options that a plugin is made with: a checked table, defaults filled in.
class OptionSource {
 public:
  /// Fills the plugin's own struct of options, and that of its kind.
  virtual void fill(void* options, void* common) const = 0;

 protected:
  ~OptionSource() = default;
};

/// The one object that a plugin exports. Its layout is frozen: `size` and `magic` are checked first.
struct PluginEntry {
  struct Instance {
    Plugin* plugin;  ///< the same object as `self`
    void* self;      ///< passed to hooks
  };
  static constexpr std::uint64_t expected_magic = 0x31647279617274;  // "tryard1"

  std::uint64_t magic = expected_magic;
  std::size_t size = sizeof(PluginEntry);
  Fingerprint fingerprint;
  /// Says what the plugin is; may be called at any time, on any thread.
  void (*describe)(ManifestWriter&) = nullptr;
  /// Constructs the plugin.
  Instance (*create)(const OptionSource&) = nullptr;
};

namespace detail {

/// Returns whether a class has what a plugin needs beside its options; static_assert says what it lacks.
template <class T>
constexpr bool is_whole() {
  using Options = typename T::Options;
  constexpr bool described = requires(Manifest<Options> & manifest) {
    T::describe(manifest);
  };
  static_assert(described,
                "the plugin does not describe itself: add a public `static void "
                "describe(trainyard::Manifest<Options>& m)` that sets name, version and summary");
  static_assert(
      !std::is_abstract_v<T>,
      "the plugin leaves out a function that its kind needs: override what the kind's header has as `= 0`");
  constexpr bool made = std::is_abstract_v<T> || std::is_constructible_v<T, const Options&>;
  static_assert(
      made,
      "the plugin cannot be made from its options: add a public `explicit NAME(const Options& options)`");
  constexpr bool empty = std::is_default_constructible_v<Options>;
  static_assert(empty,
                "the plugin's options have no defaults: Options must be constructible without arguments");
  return described && made && empty && !std::is_abstract_v<T>;
}

/// Returns whether a class overrides both `save` and `load`, or neither; a compressor has `load_all` instead.
template <class T>
constexpr bool saves_and_loads() {
  if constexpr (requires { &T::load_all; }) {
    return true;
  } else if constexpr (requires { &T::save, &T::load; }) {
    constexpr bool saves = !std::is_same_v<decltype(&T::save), void (Plugin::*)(StateWriter&) const>;
    constexpr bool loads = !std::is_same_v<decltype(&T::load), void (Plugin::*)(const StateReader&)>;
    return saves == loads;
  }
  return true;
}

/// Returns whether TRAINYARD_PLUGIN can take a class.
template <class T>
constexpr bool is_plugin() {
  constexpr bool of_a_kind = std::is_base_of_v<Plugin, T> && requires {
    T::kind.name;
  };
  static_assert(of_a_kind,
                "the plugin is of no kind: derive its class from that of a kind, as trainyard::Hook is");
  constexpr bool has_options = requires {
    typename T::Options;
  };
  static_assert(has_options, "the plugin has no options: add a public `struct Options {};` to its class");
  static_assert(saves_and_loads<T>(),
                "the plugin overrides one of `save` and `load`: a run that goes on needs both, or neither");
  if constexpr (of_a_kind && has_options) return is_whole<T>();
  return false;
}

template <class T>
void describe(ManifestWriter& writer) {
  if constexpr (is_plugin<T>()) {
    writer.kind(T::kind.name, T::kind.revision);
    Fields<typename T::Common> common(writer, true);
    T::Common::describe(common);
    Manifest<typename T::Options> manifest(writer);
    T::describe(manifest);
  }
}

template <class T>
PluginEntry::Instance create(const OptionSource& source) {
  if constexpr (is_plugin<T>()) {
    typename T::Options options{};
    typename T::Common common{};
    source.fill(&options, &common);
    T* plugin = new T(static_cast<const typename T::Options&>(options));
    if constexpr (requires { plugin->common = common; }) plugin->common = std::move(common);
    return {plugin, plugin};
  }
  return {};
}

}  // namespace detail
}  // namespace trainyard

#ifndef TRAINYARD_ENTRY  // the build of several plugins as one unit has a name for each
#define TRAINYARD_ENTRY trainyard_plugin
#endif

/// Exports CLASS as the plugin of this shared object. Use it once per object, at namespace scope.
#define TRAINYARD_PLUGIN(CLASS)                                                                       \
  extern "C" __attribute__((visibility("default"))) const trainyard::PluginEntry* TRAINYARD_ENTRY() { \
    static constexpr trainyard::PluginEntry entry = {                                                 \
        .fingerprint = {},                                                                            \
        .describe = &trainyard::detail::describe<CLASS>,                                              \
        .create = &trainyard::detail::create<CLASS>,                                                  \
    };                                                                                                \
    return &entry;                                                                                    \
  }
