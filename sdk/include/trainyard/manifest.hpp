// What a plugin says about itself. An author fills it in `static void describe(Manifest<Options>& m)`; the
// build seals it into the shared object as text, so that the host can list plugins and check a run file
// without running any plugin's code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>
#include <trainyard/event.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("manifest.hpp");

namespace trainyard {

class StepContext;

enum class OptionType : std::uint8_t { boolean, integer, number, string, duration, table };
inline constexpr std::string_view option_type_names[] = {"boolean", "integer",  "float",
                                                         "string",  "duration", "table"};

/// One option of a plugin, as the run file's table of its slot may hold it.
struct OptionSpec {
  std::string name;
  OptionType type = OptionType::boolean;
  bool list = false;
  std::optional<std::int64_t> count;       ///< of a list: how many elements it has to have
  bool required = false;                   ///< else `fallback` holds where the file says nothing
  std::optional<Value> fallback;           ///< no value: the option is absent unless given
  std::optional<double> minimum, maximum;  ///< of the number, or of each number of a list
  bool open_minimum = false;               ///< the minimum itself is not allowed
  bool open_maximum = false;
  std::vector<std::string> choices;  ///< of a string
  std::vector<OptionSpec> fields;    ///< of a table
  std::string plugins;               ///< kind of the plugins that a list of tables holds; empty: plain tables
  bool file = false;    ///< a string that names a file or folder to read: the host resolves and checks it
  bool output = false;  ///< a string that names a file to write in the run's folder: the host checks it
  bool metric = false;  ///< a string that names a value of the evaluations: the host checks that there is one
  std::vector<std::string> synonyms;  ///< what other trainers call it: unknown here, but suggested from
  std::string help;
  /// Writes a checked value into the struct it belongs to. Lives in the process that called `describe`;
  /// not part of the sealed text.
  std::function<void(void* target, const Value&)> set;
  bool common = false;  ///< given to every plugin of the kind; its target is the kind's struct
};

/// When a hook is called; durations are counted in steps from 1 over the whole run, or in epochs for events
/// of epochs and evaluations. Tested by the host before the call.
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
  std::vector<Event> fires;            ///< of an executor: which of micro_events
};

/// An option that is a list of plugins of the kind of `Interface`: tables of `type` and that plugin's
/// options, each checked like the table of a slot. make_plugins (host.hpp) turns them into objects. They have
/// the owner's host, get no events and are in no checkpoint: a plugin with hooks or with state is refused.
template <class Interface>
struct PluginList {
  std::vector<Table> tables;
};

/// The words of an enumeration that is an option, in the order of its values, which count from 0. The option
/// is a string then, and has to be one of them:
///   template <>
///   struct trainyard::Words<Mode> { static constexpr std::string_view words[] = {"min", "max"}; };
template <class Enum>
struct Words;

template <class Options>
class Fields;

namespace detail {

template <class T>
struct ListElement : std::false_type {
  using type = T;
};
template <class T>
struct ListElement<std::vector<T>> : std::true_type {
  using type = T;
};
template <class T>
struct OptionalElement : std::false_type {
  using type = T;
};
template <class T>
struct OptionalElement<std::optional<T>> : std::true_type {
  using type = T;
};

template <class T>
concept HasWords = requires {
  Words<T>::words;
};
template <class T>
concept HasFields = requires(Fields<T>& fields) {
  T::describe(fields);
};

/// Whether a member, or an element of one, can be an option.
template <class T>
constexpr bool can_be_option() {
  constexpr bool plain =
      std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_same_v<T, Duration>;
  static_assert(!std::is_enum_v<T> || HasWords<T>,
                "an enumeration that is an option needs its words: specialise trainyard::Words for it");
  static_assert(plain || std::is_enum_v<T> || HasFields<T>,
                "this type cannot be an option: take bool, an integer, float or double, std::string, "
                "trainyard::Duration, an enumeration with trainyard::Words, a struct with `static void "
                "describe(trainyard::Fields<Struct>& m)`, a std::vector of one of them, or a std::optional");
  return plain || (std::is_enum_v<T> ? HasWords<T> : HasFields<T>);
}

/// Whether a member pointer is a hook: `void T::method(StepContext&)`.
template <class Method>
struct IsHook : std::false_type {};
template <class T>
struct IsHook<void (T::*)(StepContext&)> : std::true_type {};
template <class T>
struct IsHook<void (T::*)(StepContext&) noexcept> : std::true_type {};
template <class T>
struct IsHook<void (T::*)(StepContext&) const> : std::true_type {};
template <class T>
struct IsHook<void (T::*)(StepContext&) const noexcept> : std::true_type {};

template <class T>
constexpr OptionType option_type() {
  if constexpr (std::is_same_v<T, bool>)
    return OptionType::boolean;
  else if constexpr (std::is_integral_v<T>)
    return OptionType::integer;
  else if constexpr (std::is_floating_point_v<T>)
    return OptionType::number;
  else if constexpr (std::is_same_v<T, std::string> || std::is_enum_v<T>)
    return OptionType::string;
  else if constexpr (std::is_same_v<T, Duration>)
    return OptionType::duration;
  else
    return OptionType::table;
}

template <class T>
Value to_value(const T& v) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return Value(static_cast<std::int64_t>(v));
  else if constexpr (std::is_floating_point_v<T>)
    return Value(static_cast<double>(v));
  else if constexpr (std::is_same_v<T, Duration>)
    return Value(v.text());
  else if constexpr (std::is_enum_v<T>)
    return Value(std::string(Words<T>::words[static_cast<std::size_t>(v)]));
  else if constexpr (ListElement<T>::value) {
    Array array;
    if constexpr (option_type<typename ListElement<T>::type>() != OptionType::table)
      for (const auto& element : v) array.push_back(to_value<typename ListElement<T>::type>(element));
    return Value(std::move(array));
  } else
    return Value(v);
}

/// `value` was checked against the spec before; an integer is taken for a float.
template <class T>
T from_value(const Value& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>)
    return value.as<T>();
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(value.as<std::int64_t>());
  else if constexpr (std::is_floating_point_v<T>) {
    if (const auto* integer = value.get_if<std::int64_t>()) return static_cast<T>(*integer);
    return static_cast<T>(value.as<double>());
  } else if constexpr (std::is_same_v<T, Duration>)
    return Duration::parse(value.as<std::string>()).value();
  else if constexpr (std::is_enum_v<T>) {
    const auto& words = Words<T>::words;
    return static_cast<T>(std::find(std::begin(words), std::end(words), value.as<std::string>()) -
                          std::begin(words));
  }
}

}  // namespace detail

/// Refines the option just declared.
template <class T>
class OptionRef {
 public:
  OptionRef(std::vector<OptionSpec>& specs, std::size_t index) : specs_(&specs), index_(index) {}

  OptionRef& range(double minimum, double maximum) { return min(minimum).max(maximum); }
  OptionRef& min(double minimum) {
    spec().minimum = minimum;
    return *this;
  }
  OptionRef& max(double maximum) {
    spec().maximum = maximum;
    return *this;
  }
  /// The bound itself is not allowed.
  OptionRef& above(double minimum) {
    spec().open_minimum = true;
    return min(minimum);
  }
  OptionRef& below(double maximum) {
    spec().open_maximum = true;
    return max(maximum);
  }
  /// A list of exactly so many elements.
  OptionRef& count(std::int64_t elements) {
    static_assert(detail::ListElement<typename detail::OptionalElement<T>::type>::value,
                  "only a list has a count: make the member a std::vector");
    spec().count = elements;
    return *this;
  }
  OptionRef& one_of(std::initializer_list<const char*> choices) {
    spec().choices.assign(choices.begin(), choices.end());
    return *this;
  }
  OptionRef& one_of(const std::vector<std::string>& choices) {
    spec().choices = choices;
    return *this;
  }
  /// Names a file or folder that is read, or several. Relative to the run file that it is written in; the
  /// plugin gets it absolute, and the run is refused where it is not there. Empty: none.
  OptionRef& file() {
    static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>,
                  "the name of a file is a std::string, several are a std::vector of them");
    spec().file = true;
    return *this;
  }
  /// Names a file that is written in the run's folder: a plain name. The run is refused where it is a file of
  /// the run itself, or that of another plugin.
  OptionRef& output() {
    static_assert(std::is_same_v<T, std::string>, "the name of a file is a std::string");
    spec().output = true;
    return *this;
  }
  /// Names a value of the evaluations that go on during the training: "val/loss", or "val/" and the id of a
  /// metric. The run is refused where there is none of that name. Empty: none.
  OptionRef& metric() {
    static_assert(std::is_same_v<T, std::string>, "the name of a metric is a std::string");
    spec().metric = true;
    return *this;
  }
  /// What other trainers call it, for who writes that.
  OptionRef& also(std::initializer_list<const char*> names) {
    spec().synonyms.assign(names.begin(), names.end());
    return *this;
  }
  OptionRef& required() {
    spec().required = true;
    spec().fallback.reset();
    return *this;
  }

 private:
  OptionSpec& spec() { return (*specs_)[index_]; }
  std::vector<OptionSpec>* specs_;
  std::size_t index_;
};

/// Declares options by pointer to member. The default is what a value-initialised `Options` holds.
template <class Options>
class Fields {
 public:
  explicit Fields(std::vector<OptionSpec>& specs, bool common = false) : specs_(&specs), common_(common) {}

  /// T: bool, an integer, float or double, std::string, an enumeration with Words, Duration, a struct with a
  /// `static void describe(Fields<Struct>&)` of its own (a table), a std::vector of one of them, or a
  /// std::optional of one of them (no default).
  template <class T, class Owner>
  OptionRef<T> option(std::string name, T Owner::*member, std::string help) {
    using Plain = typename detail::OptionalElement<T>::type;
    using Element = typename detail::ListElement<Plain>::type;
    OptionSpec spec;
    spec.name = std::move(name);
    spec.help = std::move(help);
    spec.common = common_;
    if constexpr (detail::can_be_option<Element>()) take_member<T, Plain, Element>(spec, member);
    specs_->push_back(std::move(spec));
    return OptionRef<T>(*specs_, specs_->size() - 1);
  }

  template <class Interface, class Owner>
  OptionRef<PluginList<Interface>> option(std::string name, PluginList<Interface> Owner::*member,
                                          std::string help) {
    OptionSpec spec;
    spec.name = std::move(name);
    spec.help = std::move(help);
    spec.type = OptionType::table;
    spec.list = true;
    spec.plugins = Interface::kind.name;
    spec.fallback = Value(Array{});
    spec.common = common_;
    spec.set = [member](void* target, const Value& value) {
      std::vector<Table>& tables = (static_cast<Options*>(target)->*member).tables;
      tables.clear();
      for (const Value& element : value.as<Array>()) tables.push_back(element.as<Table>());
    };
    specs_->push_back(std::move(spec));
    return OptionRef<PluginList<Interface>>(*specs_, specs_->size() - 1);
  }

 private:
  template <class T, class Plain, class Element, class Owner>
  void take_member(OptionSpec& spec, T Owner::*member) {
    spec.type = detail::option_type<Element>();
    spec.list = detail::ListElement<Plain>::value;
    // What the member cannot hold is out of range, not cut off.
    if constexpr (std::is_integral_v<Element> && !std::is_same_v<Element, bool>) {
      using Limits = std::numeric_limits<Element>;
      if (Limits::min() == 0 || Limits::digits < 63) spec.minimum = static_cast<double>(Limits::min());
      if (Limits::digits < 63) spec.maximum = static_cast<double>(Limits::max());
    }
    if constexpr (std::is_enum_v<Element>)
      spec.choices.assign(std::begin(Words<Element>::words), std::end(Words<Element>::words));
    if constexpr (!detail::OptionalElement<T>::value &&
                  (detail::ListElement<Plain>::value || detail::option_type<Element>() != OptionType::table))
      spec.fallback = detail::to_value<Plain>(Options{}.*member);
    if constexpr (detail::option_type<Element>() != OptionType::table)
      spec.set = [member](void* target, const Value& value) {
        T& field = static_cast<Options*>(target)->*member;
        if constexpr (detail::ListElement<Plain>::value) {
          Plain elements;
          for (const Value& element : value.template as<Array>())
            elements.push_back(detail::from_value<Element>(element));
          field = std::move(elements);
        } else
          field = detail::from_value<Plain>(value);
      };
    else
      table_member_setter<T, Plain, Element>(spec, member);
  }
  template <class T, class Plain, class Element, class Owner>
  void table_member_setter(OptionSpec& spec, T Owner::*member);

  std::vector<OptionSpec>* specs_;
  bool common_;
};

namespace detail {
/// Fills `target` from a checked table: what is given, else the defaults.
inline void fill(void* target, const std::vector<OptionSpec>& specs, const Table& table) {
  for (const OptionSpec& spec : specs) {
    if (const Value* given = table.find(spec.name))
      spec.set(target, *given);
    else if (spec.fallback)
      spec.set(target, *spec.fallback);
  }
}
}  // namespace detail

template <class Options>
template <class T, class Plain, class Element, class Owner>
void Fields<Options>::table_member_setter(OptionSpec& spec, T Owner::*member) {
  auto fields = std::make_shared<std::vector<OptionSpec>>();
  spec.set = [member, fields](void* target, const Value& value) {
    const auto one = [&](const Value& table) {
      Element element{};
      detail::fill(&element, *fields, table.template as<Table>());
      return element;
    };
    T& field = static_cast<Options*>(target)->*member;
    if constexpr (detail::ListElement<Plain>::value) {
      Plain elements;
      for (const Value& element : value.template as<Array>()) elements.push_back(one(element));
      field = std::move(elements);
    } else
      field = one(value);
  };
  Fields<Element> nested(*fields);
  Element::describe(nested);
  spec.fields = *fields;
}

/// Hook options, chained after `Manifest::hook`.
class HookRef {
 public:
  HookRef(std::vector<HookSpec>& hooks, std::size_t index) : hooks_(&hooks), index_(index) {}
  /// Declares a writer of these regions: the hook runs in the transform phase.
  HookRef& writes(Regions regions) {
    spec().writes = regions;
    spec().phase = Phase::transform;
    return *this;
  }
  /// The hook does I/O only.
  HookRef& sink() {
    spec().phase = Phase::sink;
    return *this;
  }
  HookRef& priority(int value) {
    spec().priority = value;
    return *this;
  }
  HookRef& before(std::string plugin) {
    spec().before.push_back(std::move(plugin));
    return *this;
  }
  HookRef& after(std::string plugin) {
    spec().after.push_back(std::move(plugin));
    return *this;
  }
  HookRef& every(std::string duration) {
    spec().cadence.every = std::move(duration);
    return *this;
  }

 private:
  HookSpec& spec() { return (*hooks_)[index_]; }
  std::vector<HookSpec>* hooks_;
  std::size_t index_;
};

template <class Options>
class Manifest : public Fields<Options> {
 public:
  explicit Manifest(ManifestData& data) : Fields<Options>(data.options), data_(&data) {}

  Manifest& name(std::string value) {
    data_->name = std::move(value);
    return *this;
  }
  /// Semantic version of the plugin.
  Manifest& version(std::string value) {
    data_->version = std::move(value);
    return *this;
  }
  Manifest& summary(std::string value) {
    data_->summary = std::move(value);
    return *this;
  }
  /// States what the plugin needs of the run around it: a run that does not offer it is refused at validation, with
  /// the names of both sides. What a plugin would refuse in `open` for the sake of other slots belongs here.
  ///   "cuda", "distributed" (several ranks), "one rank"
  ///   "fp32"      weights of single precision
  ///   "graph"     the model has one (Network::graph)
  ///   "rows"      each input of the data has one row a sample
  ///   "steps"     the length of the run can be counted in steps
  ///   "grads", "hyper", "batch", "outputs", "model"  the executor honours this region (provides)
  ///   "taps", "losses", "predictions"  it shows outputs of nodes (add_tap), losses, or outputs in their own step
  ///   "no SLOT"   the run has no plugin, or no table, of this path: "no model.dropout", "no trainer.grad_clip"
  ///   "no FEATURE"  no plugin of the run provides it: "no momentum"
  ///   "KEY = WORD | WORD"  the run file, defaults included, has one of these words, numbers or booleans at this
  ///               key: "optimizer.type = sgd | adam", "optimizer.nesterov = false". A key that is absent from the
  ///               run refuses nothing.
  /// "prefers NEED" is a need that the plugin can do without: the run is trained, and a warning says what it lacks.
  /// A need may depend on options of the plugin, and on keys of the run file: "one rank where mode = sim | threads",
  /// "no model.dropout where members != none and distributed.ranks = 1"; `none` stands for an option that is absent
  /// or an empty list.
  Manifest& needs(std::string feature) {
    data_->needs.push_back(std::move(feature));
    return *this;
  }
  /// States a feature that others may need; it may depend on an option as a need does.
  ///   "graph"      of a model: its networks have a graph
  ///   "free_rows"  of a dataset: its batches have inputs without one row a sample (Rows)
  ///   "batch_norm"       of a model: it normalises over the batch
  ///   "tied_weights"     of a model: several of its layers share weights
  ///   "sharded_rows"   of a model: its tables lie in parts on the ranks
  ///   "momentum"         of an optimizer: it has momentum (Optimizer::has_momentum)
  ///   "sparse_rows"      of an optimizer: it takes sparse gradients (Optimizer::step)
  ///   "lazy_rows"        of an optimizer: updates of rows wait until the rows are read
  ///   "divides_network"  of an executor: each rank has a part of the network (Executor::divides_network)
  ///   "taps", "losses", "predictions"  of an executor, as above; "members": it trains several models side by side
  ///   "grads", "hyper", "batch", "outputs", "model"  of an executor: inside a step, hooks find in this region what
  ///                the step works with, and what they write there has its effect. A run with a hook that writes a
  ///                region at an event of a step which the executor does not honour is refused.
  Manifest& provides(std::string feature) {
    data_->provides.push_back(std::move(feature));
    return *this;
  }
  /// Of an executor: the events of a micro-batch that it fires (micro_events); a run with a hook on another of
  /// them is refused.
  Manifest& fires(std::span<const Event> events) {
    data_->fires.assign(events.begin(), events.end());
    return *this;
  }
  Manifest& conflicts(std::string plugin) {
    data_->conflicts.push_back(std::move(plugin));
    return *this;
  }
  /// Another default for an option that every plugin of the kind has.
  template <class T>
  Manifest& common_default(std::string_view option, T value) {
    for (OptionSpec& spec : data_->options)
      if (spec.common && spec.name == option) {
        spec.fallback = detail::to_value<T>(value);
        spec.required = false;
      }
    return *this;
  }
  /// Subscribes a method `void T::method(StepContext&)` of the plugin's own class to an event.
  template <auto Method>
  HookRef hook(Event event) {
    constexpr bool fits = detail::IsHook<decltype(Method)>::value;
    static_assert(
        fits,
        "a hook is a method `void name(trainyard::StepContext& context)` of the plugin's class: it gives "
        "nothing back, and takes the context by reference alone");
    HookSpec spec;
    spec.event = event;
    if constexpr (fits)
      spec.call = [](void* self, StepContext& context) { call<Method>(self, context, Method); };
    data_->hooks.push_back(std::move(spec));
    return HookRef(data_->hooks, data_->hooks.size() - 1);
  }

 private:
  template <auto Method, class T, class Signature>
  static void call(void* self, StepContext& context, Signature T::*) {
    (static_cast<T*>(self)->*Method)(context);
  }

  ManifestData* data_;
};

}  // namespace trainyard
