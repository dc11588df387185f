// The description that a plugin gives of itself. An author fills it in `static void
// describe(Manifest<Options>& m)`; the build seals it into the shared object as text, so that the host can
// list plugins and check a run file without running any plugin's code.
//
// A description is data: each option is one row for the host's ManifestWriter, which keeps it, and which knows how
// members of each type are read and written (manifest_data.hpp). A plugin compiles none of that.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>
#include <trainyard/event.hpp>

TRAINYARD_CONTRACT("manifest.hpp");

namespace trainyard {

class StepContext;
class OptionWriter;
class Table;

enum class OptionType : std::uint8_t { boolean, integer, number, string, duration, table };
inline constexpr std::string_view option_type_names[] = {"boolean", "integer",  "float",
                                                         "string",  "duration", "table"};

/// An option that is a list of plugins of the kind of `Interface`: tables of `type` and that plugin's
/// options, each checked like the table of a slot. make_plugins (host.hpp) turns them into objects. They have
/// the owner's host, get no events and are in no checkpoint: a plugin with hooks or with state is refused.
template <class Interface>
struct PluginList {
  std::vector<Table> tables;
};

/// Names the values of an enumeration that is an option, in their order, counting from 0. The option is then
/// a string that has to be one of these words:
///   template <>
///   struct trainyard::Words<Mode> { static constexpr std::string_view words[] = {"min", "max"}; };
template <class Enum>
struct Words;

template <class Options>
class Fields;

/// Functions that reach the elements of a member whose type the host does not know: of a list, of an optional
/// one, or of a table.
struct MemberElements {
  void (*clear)(void* member);                               ///< removes all elements
  void* (*add)(void* member);                                ///< adds a new element, the last one
  const void* (*at)(const void* member, std::size_t index);  ///< null past the last
};

/// Describes the type of a member that is an option.
struct MemberType {
  OptionType type = OptionType::boolean;  ///< type of an element
  bool list = false;                      ///< a std::vector
  bool optional = false;                  ///< a std::optional, perhaps of a std::vector
  std::uint8_t size = 0;                  ///< bytes of an integer, a number or an enumeration
  bool is_signed = false;
  std::span<const std::string_view> words;   ///< names of an enumeration's values
  const MemberElements* elements = nullptr;  ///< set for tables, and where several elements are enumerations
  void (*describe)(OptionWriter& fields) = nullptr;  ///< writes the fields of a table
  const char* plugins = nullptr;                     ///< kind of those in a PluginList, a list of tables
};

/// Describes one option, as it is declared.
struct OptionRow {
  std::string_view name, help;
  const MemberType* member = nullptr;
  std::ptrdiff_t offset = 0;       ///< offset of the member in its struct, in bytes
  const void* defaults = nullptr;  ///< a struct as it is without a run file
  bool common = false;             ///< every plugin of the kind has it; the member is of the kind's struct
};

/// Takes the options of a struct; calls after `option` refine the last one. The host's; copies all strings.
class OptionWriter {
 public:
  enum class Mark : std::uint8_t { required, file, output, metric };

  virtual void option(const OptionRow& row) = 0;
  virtual void minimum(double bound, bool open) = 0;  ///< open: the bound itself is not allowed
  virtual void maximum(double bound, bool open) = 0;
  virtual void count(std::int64_t elements) = 0;
  virtual void word(std::string_view allowed) = 0;
  virtual void synonym(std::string_view name) = 0;
  virtual void mark(Mark mark) = 0;

 protected:
  ~OptionWriter() = default;
};

/// Takes the whole description of a plugin; calls after `hook` refine the last hook.
class ManifestWriter : public OptionWriter {
 public:
  enum class Word : std::uint8_t { name, version, summary, needs, provides, conflicts };
  enum class HookWord : std::uint8_t { before, after, every };

  virtual void kind(std::string_view name, int revision) = 0;
  virtual void say(Word which, std::string_view text) = 0;
  virtual void fires(std::span<const Event> events) = 0;
  virtual void common_default(std::string_view option, const MemberType& type, const void* value) = 0;
  virtual void hook(Event event, void (*call)(void* self, StepContext&)) = 0;
  virtual void hook_phase(Phase phase, Regions writes) = 0;
  virtual void hook_priority(int priority) = 0;
  virtual void say_of_hook(HookWord which, std::string_view text) = 0;

 protected:
  ~ManifestWriter() = default;
};

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

/// Returns whether a member, or an element of one, can be an option.
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

/// Tells whether a member pointer is a hook: `void T::method(StepContext&)`.
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
struct Elements {
  static void clear(void* member) { static_cast<T*>(member)->clear(); }
  static void* add(void* member) { return &static_cast<T*>(member)->emplace_back(); }
  static const void* at(const void* member, std::size_t index) {
    const T& elements = *static_cast<const T*>(member);
    return index < elements.size() ? &elements[index] : nullptr;
  }
};
template <class T>
struct Elements<std::optional<T>> {
  static void clear(void* member) { static_cast<std::optional<T>*>(member)->reset(); }
  static void* add(void* member) { return &static_cast<std::optional<T>*>(member)->emplace(); }
  static const void* at(const void* member, std::size_t index) {
    const std::optional<T>& element = *static_cast<const std::optional<T>*>(member);
    return index == 0 && element ? &*element : nullptr;
  }
};
template <class T>
struct Elements<std::optional<std::vector<T>>> {
  using Member = std::optional<std::vector<T>>;
  static void clear(void* member) { static_cast<Member*>(member)->emplace(); }
  static void* add(void* member) { return &(*static_cast<Member*>(member))->emplace_back(); }
  static const void* at(const void*, std::size_t) { return nullptr; }
};
/// Reaches a single table as the only element.
template <class T>
struct Element {
  static void clear(void* member) { *static_cast<T*>(member) = T{}; }
  static void* add(void* member) { return member; }
  static const void* at(const void* member, std::size_t index) { return index == 0 ? member : nullptr; }
};

// These are hidden because the plugins of a process must not share them.
template <class Access>
[[gnu::visibility("hidden")]] inline constexpr MemberElements elements_of = {&Access::clear, &Access::add,
                                                                             &Access::at};

/// Defined below Fields, which it needs.
template <class Struct>
void describe_fields(OptionWriter& fields);

template <class T>
constexpr MemberType member_type() {
  using Plain = typename OptionalElement<T>::type;
  using Element = typename ListElement<Plain>::type;
  MemberType type{.type = option_type<Element>(),
                  .list = ListElement<Plain>::value,
                  .optional = OptionalElement<T>::value};
  if constexpr (std::is_arithmetic_v<Element> || std::is_enum_v<Element>) type.size = sizeof(Element);
  if constexpr (std::is_integral_v<Element>) type.is_signed = std::is_signed_v<Element>;
  if constexpr (std::is_enum_v<Element>) type.words = Words<Element>::words;
  constexpr bool table = option_type<Element>() == OptionType::table;
  if constexpr (table) type.describe = &describe_fields<Element>;
  if constexpr (table && std::is_same_v<T, Element>)
    type.elements = &elements_of<detail::Element<T>>;
  else if constexpr (table || (std::is_enum_v<Element> && !std::is_same_v<T, Element>))
    type.elements = &elements_of<Elements<T>>;
  return type;
}
template <class T>
[[gnu::visibility("hidden")]] inline constexpr MemberType member_type_of = member_type<T>();
template <class Interface>
[[gnu::visibility("hidden")]] inline constexpr MemberType member_type_of<PluginList<Interface>> = {
    .type = OptionType::table, .list = true, .plugins = Interface::kind.name};

/// Returns the offset of a member in bytes, which is what a pointer to it holds (Itanium C++ ABI, 2.3).
template <class Options, class T, class Owner>
std::ptrdiff_t offset_of(T Owner::*member) {
  return std::bit_cast<std::ptrdiff_t>(static_cast<T Options::*>(member));
}

}  // namespace detail

/// Refines the option just declared.
template <class T>
class OptionRef {
 public:
  explicit OptionRef(OptionWriter& writer) : writer_(&writer) {}

  OptionRef& range(double minimum, double maximum) { return min(minimum).max(maximum); }
  OptionRef& min(double minimum) {
    writer_->minimum(minimum, false);
    return *this;
  }
  OptionRef& max(double maximum) {
    writer_->maximum(maximum, false);
    return *this;
  }
  /// Excludes the bound itself, as `below` does.
  OptionRef& above(double minimum) {
    writer_->minimum(minimum, true);
    return *this;
  }
  OptionRef& below(double maximum) {
    writer_->maximum(maximum, true);
    return *this;
  }
  /// Says that the list has exactly so many elements.
  OptionRef& count(std::int64_t elements) {
    static_assert(detail::ListElement<typename detail::OptionalElement<T>::type>::value,
                  "only a list has a count: make the member a std::vector");
    writer_->count(elements);
    return *this;
  }
  OptionRef& one_of(std::initializer_list<const char*> choices) {
    for (const char* const each : choices) writer_->word(each);
    return *this;
  }
  OptionRef& one_of(const std::vector<std::string>& choices) {
    for (const std::string& each : choices) writer_->word(each);
    return *this;
  }
  /// Says that it names a file or folder to read, or several, relative to the run file that it is written in.
  /// The plugin gets it absolute; the run is refused where it is not there. Empty: none.
  OptionRef& file() {
    static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>,
                  "the name of a file is a std::string, several are a std::vector of them");
    return mark(OptionWriter::Mark::file);
  }
  /// Says that it names a file that is written in the run's folder: a plain name. The run is refused where it
  /// is a file of the run itself, or that of another plugin.
  OptionRef& output() {
    static_assert(std::is_same_v<T, std::string>, "the name of a file is a std::string");
    return mark(OptionWriter::Mark::output);
  }
  /// Says that it names a value of the evaluations that go on during the training: "val/loss", or "val/" and
  /// the id of a metric. The run is refused where none has that name. Empty: none.
  OptionRef& metric() {
    static_assert(std::is_same_v<T, std::string>, "the name of a metric is a std::string");
    return mark(OptionWriter::Mark::metric);
  }
  /// Adds names of the option in other trainers, which are suggested from where a run file uses them.
  OptionRef& also(std::initializer_list<const char*> names) {
    for (const char* const each : names) writer_->synonym(each);
    return *this;
  }
  OptionRef& required() { return mark(OptionWriter::Mark::required); }

 private:
  OptionRef& mark(OptionWriter::Mark mark) {
    writer_->mark(mark);
    return *this;
  }
  OptionWriter* writer_;
};

/// Declares options by pointer to member. The default is what a value-initialised `Options` holds.
template <class Options>
class Fields {
 public:
  explicit Fields(OptionWriter& writer, bool common = false) : writer_(&writer), common_(common) {}

  /// Declares one option. T is bool, an integer, float or double, std::string, an enumeration with Words,
  /// Duration, a struct with a `static void describe(Fields<Struct>&)` of its own (a table), a std::vector of
  /// one of these, a std::optional of one of these (no default), or a PluginList.
  template <class T, class Owner>
  OptionRef<T> option(std::string_view name, T Owner::*member, std::string_view help) {
    if constexpr (detail::can_be_option<
                      typename detail::ListElement<typename detail::OptionalElement<T>::type>::type>())
      declare(name, help, &detail::member_type_of<T>, detail::offset_of<Options>(member));
    return OptionRef<T>(*writer_);
  }
  template <class Interface, class Owner>
  OptionRef<PluginList<Interface>> option(std::string_view name, PluginList<Interface> Owner::*member,
                                          std::string_view help) {
    declare(name, help, &detail::member_type_of<PluginList<Interface>>, detail::offset_of<Options>(member));
    return OptionRef<PluginList<Interface>>(*writer_);
  }

 private:
  void declare(std::string_view name, std::string_view help, const MemberType* member,
               std::ptrdiff_t offset) {
    writer_->option({name, help, member, offset, &defaults_, common_});
  }

  OptionWriter* writer_;
  const Options defaults_{};
  bool common_;
};

namespace detail {
template <class Struct>
void describe_fields(OptionWriter& fields) {
  Fields<Struct> nested(fields);
  Struct::describe(nested);
}
}  // namespace detail

/// Refines the hook just declared by `Manifest::hook`.
class HookRef {
 public:
  explicit HookRef(ManifestWriter& writer) : writer_(&writer) {}
  /// Declares a writer of these regions: the hook runs in the transform phase.
  HookRef& writes(Regions regions) {
    writer_->hook_phase(Phase::transform, regions);
    return *this;
  }
  /// Says that the hook does I/O only: it runs in the sink phase.
  HookRef& sink() {
    writer_->hook_phase(Phase::sink, {});
    return *this;
  }
  HookRef& priority(int value) {
    writer_->hook_priority(value);
    return *this;
  }
  HookRef& before(std::string_view plugin) { return say(ManifestWriter::HookWord::before, plugin); }
  HookRef& after(std::string_view plugin) { return say(ManifestWriter::HookWord::after, plugin); }
  HookRef& every(std::string_view duration) { return say(ManifestWriter::HookWord::every, duration); }

 private:
  HookRef& say(ManifestWriter::HookWord which, std::string_view text) {
    writer_->say_of_hook(which, text);
    return *this;
  }
  ManifestWriter* writer_;
};

template <class Options>
class Manifest : public Fields<Options> {
 public:
  explicit Manifest(ManifestWriter& writer) : Fields<Options>(writer), writer_(&writer) {}

  Manifest& name(std::string_view value) { return say(ManifestWriter::Word::name, value); }
  /// Sets the plugin's semantic version.
  Manifest& version(std::string_view value) { return say(ManifestWriter::Word::version, value); }
  Manifest& summary(std::string_view value) { return say(ManifestWriter::Word::summary, value); }
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
  Manifest& needs(std::string_view feature) { return say(ManifestWriter::Word::needs, feature); }
  /// States a feature that others may need; it may depend on an option as a need does.
  ///   "graph"      of a model: its networks have a graph
  ///   "free_rows"  of a dataset: its batches have inputs without one row a sample (Rows)
  ///   "batch_norm"       of a model: it normalises over the batch
  ///   "tied_weights"     of a model: several of its layers share weights
  ///   "grows"          of a model: its networks grow (mixins/grows.hpp)
  ///   "sharded_rows"   of a model: its tables lie in parts on the ranks
  ///   "summed_weights"  of a transform: weights that are sums of matrices (helpers/co_matrix.hpp)
  ///   "momentum"         of an optimizer: it has momentum (Optimizer::has_momentum)
  ///   "sparse_rows"      of an optimizer: it takes sparse gradients (Optimizer::step)
  ///   "lazy_rows"        of an optimizer: updates of rows wait until the rows are read
  ///   "divides_network"  of an executor: each rank has a part of the network (Executor::divides_network)
  ///   "taps", "losses", "predictions"  of an executor, as above; "members": it trains several models side by side
  ///   "grads", "hyper", "batch", "outputs", "model"  of an executor: inside a step, hooks find in this region what
  ///                the step works with, and what they write there has its effect. A run with a hook that writes a
  ///                region at an event of a step which the executor does not honour is refused.
  Manifest& provides(std::string_view feature) { return say(ManifestWriter::Word::provides, feature); }
  /// Says which events of a micro-batch an executor fires (micro_events). A run with a hook on another of
  /// them is refused.
  Manifest& fires(std::span<const Event> events) {
    writer_->fires(events);
    return *this;
  }
  Manifest& conflicts(std::string_view plugin) { return say(ManifestWriter::Word::conflicts, plugin); }
  /// Sets another default for an option that every plugin of the kind has.
  template <class T>
  Manifest& common_default(std::string_view option, T value) {
    writer_->common_default(option, detail::member_type_of<T>, &value);
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
    if constexpr (fits)
      writer_->hook(event, [](void* self, StepContext& context) { call<Method>(self, context, Method); });
    return HookRef(*writer_);
  }

 private:
  Manifest& say(ManifestWriter::Word which, std::string_view text) {
    writer_->say(which, text);
    return *this;
  }
  template <auto Method, class T, class Signature>
  static void call(void* self, StepContext& context, Signature T::*) {
    (static_cast<T*>(self)->*Method)(context);
  }

  ManifestWriter* writer_;
};

}  // namespace trainyard
