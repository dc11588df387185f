// Horizontally fused training array (Wang et al., "Horizontally Fused Training Array: An Effective Hardware Utilization
// Squeezer for Training Novel Deep Learning Models", MLSys 2021): models of one structure that differ in numbers are
// trained as one, on the same batches, each operator for all of them at once.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include <trainyard/error.hpp>
#include <trainyard/helpers/check_rows.hpp>
#include <trainyard/helpers/eager.hpp>
#include <trainyard/host.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/mixins/grades_members.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "array.hpp"
#include "optimizer.hpp"

namespace hfta {

struct Member {
  std::vector<std::string> set;

  static void describe(Fields<Member>& m) {
    m.option("set", &Member::set,
             "keys of the run file that are another for this member, as after --set: of [optimizer], and "
             "run.seed");
  }
};

enum class OnNan : std::uint8_t { freeze, stop };

}  // namespace hfta

template <>
struct trainyard::Words<hfta::OnNan> {
  static constexpr std::string_view words[] = {"freeze", "stop"};
};
template <>
struct trainyard::Words<hfta::Passes> {
  static constexpr std::string_view words[] = {"auto", "compiled", "eager"};
};

namespace hfta {
namespace {

const Value* value_at(const Table& root, const char* section, const char* key) {
  const Value* table = root.find(section);
  return table == nullptr ? nullptr : table->as<Table>().find(key);
}

class Hfta final : public Eager {
 public:
  struct Options {
    std::vector<Member> members;
    std::vector<std::int64_t> only;
    std::int64_t leader = 0;
    OnNan on_nan = OnNan::freeze;
    double compact_at = 0.25;
    Passes passes = Passes::automatic;
  };
  static void describe(Manifest<Options>& m) {
    m.name("hfta").version("1.0.0").summary(
        "Models of one structure trained as one, each with an optimizer and a seed of its own (MLSys 2021).");
    m.option("members", &Options::members,
             "a model each, from 0; with one or none, the run file's is trained plainly");
    m.option("only", &Options::only,
             "members that are trained, all without it: of a run that is resumed the others leave the array")
        .min(0);
    m.option("leader", &Options::leader,
             "the member whose weights and optimizer the run's checkpoints hold, and whose metrics have no "
             "number")
        .min(0);
    m.option("on_nan", &Options::on_nan,
             "what becomes of a member whose loss is not finite: it stays as it is, or the "
             "run ends");
    m.option("compact_at", &Options::compact_at, "frozen share of the array from which on it is made smaller")
        .range(0.0, 1.0);
    m.option(
        "passes", &Options::passes,
        "how the network runs forward and backward: eager, each operator by LibTorch for all members at "
        "once; "
        "compiled, by a plan of the members side by side, as the executor compiled makes it; auto, compiled "
        "where there are convolutions, and the run is of single precision on the processor");
    m.fires(micro_events);
    // The members are not in the network that hooks see, which is the leader's.
    m.provides("hyper").provides("batch").provides("losses").provides("predictions");
    m.provides("members where members != none");
    for (const char* const feature : {"grads", "outputs", "model", "taps"})
      m.provides(std::string(feature) + " where members = none");
    m.needs("graph where members != none").needs("one rank where members != none");
    m.needs("trainer.precision = fp32 | fp64 where members != none");
    m.needs("trainer.precision = fp32 where members != none and passes = compiled");
    m.needs("run.device = cpu where members != none and passes = compiled");
    std::string fused;
    for (const std::string& name : fused_optimizers()) fused += (fused.empty() ? "" : " | ") + name;
    m.needs("optimizer.type = " + fused + " where members != none");
    m.needs("model.dropout.type != blockwise | dropconnect where members != none");
  }
  explicit Hfta(const Options& options) : options_(options) {}

  std::size_t members() const override { return std::max<std::size_t>(1, options_.members.size()); }
  std::size_t leader() const override {
    const auto wanted = static_cast<std::size_t>(options_.leader);
    return !is_array() || is_live(wanted) ? wanted : live().front();
  }

  void open(Workbench& bench) override {
    check_leader();
    if (members() == 1) return check_single();
    check_run(bench.run_file({}));
    std::optional<State> from = std::exchange(saved_, std::nullopt);
    if (!from && has_begun_) {
      from.emplace();
      StateWriter writer(*from);
      save(writer);
    }
    try {
      build(bench, from);
    } catch (...) {
      saved_ = std::move(from);
      throw;
    }
    has_begun_ = from.has_value();
    show_leader(bench);
    const std::string how = array_->text();
    if (!how.empty() && !std::exchange(told_, true)) host().log(LogLevel::info, how);
  }

  void step(Workbench& bench, StepWork& work) override {
    if (!is_array()) return Eager::step(bench, work);
    has_begun_ = true;
    do {
      has_gradients_ = false;
      for (std::size_t micro = 0; micro < work.micros.size(); ++micro) run_micro(bench, work, micro);
    } while (bench.update([&] { apply(bench); }) == Update::repeat);
    compact(bench);
  }

  std::vector<Graded> evaluate_all(Workbench& bench, const Batch& batch,
                                   const ForwardContext& pass) override {
    if (!is_array()) return {evaluate(bench, batch, pass)};
    const at::Tensor outputs = array_->forward(batch.inputs, pass);
    const std::vector<at::Tensor> each = outputs.unbind(0),
                                  losses = losses_of(bench, outputs, batch).unbind(0);
    std::vector<Graded> all(members());
    for (std::size_t row = 0; row < rows_.size(); ++row)
      if (!frozen_.contains(rows_[row])) all[rows_[row]] = {each[row], losses[row]};
    return all;
  }

  /// The run's optimizer is the leader's wherever it is looked at.
  void settle(Workbench& bench, Pause pause) override {
    if (!has_begun_ || pause == Pause::evaluation) return;
    const State state = optimizer_->state_of(*array_, row_of(leader()));
    bench.optimizer().load(StateReader(state));
  }

  /// Nothing ahead of its first step: open() makes the same array again.
  void save(StateWriter& state) const override {
    if (!has_begun_) return;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const std::string of = "row/" + std::to_string(row);
      state.scalar(of, static_cast<std::int64_t>(rows_[row]));
      state.scalar(of + "/frozen", frozen_.contains(rows_[row]));
      state.scalar(of + "/seed", seeds_[rows_[row]]);
    }
    state.scalar("rows", static_cast<std::int64_t>(rows_.size()));
    state.scalar("members", static_cast<std::int64_t>(members()));
    state.tensor("weights", array_->weights());
    for (const NamedTensor& each : array_->statistics()) state.tensor("statistics/" + each.name, each.tensor);
    optimizer_->save(state);
  }

  /// Of use at the next open().
  void load(const StateReader& state) override {
    saved_.reset();
    if (state.has_scalar("rows"))
      saved_ = state.state();
    else
      array_.reset();
    has_begun_ = has_begun_ && is_array();
  }

 private:
  bool is_array() const { return array_.has_value(); }

  bool is_live(std::size_t member) const {
    return !frozen_.contains(member) && std::ranges::find(rows_, member) != rows_.end();
  }
  std::vector<std::size_t> live() const {
    std::vector<std::size_t> result;
    std::ranges::copy_if(rows_, std::back_inserter(result),
                         [&](std::size_t each) { return !frozen_.contains(each); });
    return result.empty() ? rows_ : result;
  }
  std::int64_t row_of(std::size_t member) const { return std::ranges::find(rows_, member) - rows_.begin(); }

  bool is_wanted(std::int64_t member) const {
    return options_.only.empty() || std::ranges::find(options_.only, member) != options_.only.end();
  }

  void check_leader() const {
    for (const std::int64_t member : options_.only)
      if (static_cast<std::size_t>(member) >= members())
        throw ConfigError("executor.only names member " + std::to_string(member) + ", and there are " +
                          std::to_string(members()) + " members, counted from 0");
    if (!is_wanted(options_.leader))
      throw ConfigError("executor.leader = " + std::to_string(options_.leader) +
                        " is not among those of executor.only: name one of them");
    if (static_cast<std::size_t>(options_.leader) >= members())
      throw ConfigError("executor.leader = " + std::to_string(options_.leader) + ", and there are " +
                        std::to_string(members()) + " members, counted from 0");
  }

  void check_single() const {
    if (!options_.members.empty() && !options_.members.front().set.empty())
      throw ConfigError("executor.members has one member, which is trained plainly: put what it sets (" +
                        options_.members.front().set.front() + ") into the run file, or name a second");
  }

  /// What an array does not do is refused, not left out.
  void check_run(const Table& file) const {
    if (host().run().ranks != nullptr)
      throw ConfigError("an array of models is trained by one process, and this run has several ranks");
    const Value* precision = value_at(file, "trainer", "precision");
    if (precision != nullptr && precision->as<std::string>().ends_with("-mixed"))
      throw ConfigError("trainer.precision = \"" + precision->as<std::string>() +
                        "\": members of an array are trained in fp32 or fp64 (in mixed precision each would "
                        "need a loss scale of its own)");
    for (const Member& member : options_.members)
      for (const std::string& each : member.set)
        if (!each.starts_with("optimizer.") && !each.starts_with("run.seed="))
          throw ConfigError(
              "a member sets " + each +
              ": members of an array differ in keys of [optimizer] and in run.seed; other keys need "
              "runs of their own");
  }

  Table file_of(Workbench& bench, std::size_t member) const {
    try {
      return bench.run_file(options_.members[member].set);
    } catch (const ConfigError& error) {
      throw ConfigError("executor.members[" + std::to_string(member) + "].set: " + error.what());
    }
  }

  void build(Workbench& bench, const std::optional<State>& from) {
    const Table file = bench.run_file({});
    std::vector<Table> optimizers;
    std::vector<std::unique_ptr<Network>> networks;
    std::vector<std::int64_t> seeds;
    for (std::size_t member = 0; member < members(); ++member) {
      const Table own = file_of(bench, member);
      optimizers.push_back(own.find("optimizer")->as<Table>());
      seeds.push_back(value_at(own, "run", "seed")->as<std::int64_t>());
      networks.push_back(bench.build(static_cast<std::uint64_t>(seeds.back())));
    }
    const at::NoGradGuard untracked;
    if (!from && bench.updates() == 0)
      begin(bench, static_cast<std::uint64_t>(value_at(file, "run", "seed")->as<std::int64_t>()), networks);
    Array array(std::move(networks), options_.passes,
                [this](const std::string& text) { host().log(LogLevel::info, text); });
    ArrayOptimizer optimizer(std::move(optimizers), file.find("optimizer")->as<Table>(), array);
    std::vector<std::size_t> rows(members());
    std::set<std::size_t> frozen;
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = row;
    if (from)
      restore(*from, array, optimizer, rows, frozen, seeds, begins_anew(bench, *from, array));
    else if (bench.updates() > 0)
      insert(bench, array, optimizer);
    leave_out(array, optimizer, rows, frozen);
    clip_ = clip_of(file);
    array_.emplace(std::move(array));
    optimizer_.emplace(std::move(optimizer));
    rows_ = std::move(rows);
    frozen_ = std::move(frozen);
    seeds_ = std::move(seeds);
  }

  /// What the network of the run has from elsewhere than its seed, a file or a hook, all members begin with.
  static void begin(Workbench& bench, std::uint64_t seed,
                    const std::vector<std::unique_ptr<Network>>& networks) {
    const std::unique_ptr<Network> bare = bench.build(seed);
    const auto copy = [&](std::vector<NamedTensor> (Network::*all)() const) {
      const std::vector<NamedTensor> shown = (bench.network().*all)(), of_seed = (*bare.*all)();
      for (const std::unique_ptr<Network>& network : networks) {
        const std::vector<NamedTensor> own = ((*network).*all)();
        for (std::size_t i = 0; i < own.size(); ++i)
          if (!at::equal(shown.at(i).tensor, of_seed.at(i).tensor))
            at::Tensor(own[i].tensor).copy_(shown[i].tensor);
      }
    };
    copy(&Network::parameters);
    copy(&Network::buffers);
  }

  /// Members that `only` does not name, and those that it names have to be there.
  void leave_out(Array& array, ArrayOptimizer& optimizer, std::vector<std::size_t>& rows,
                 std::set<std::size_t>& frozen) const {
    for (const std::int64_t member : options_.only)
      if (std::ranges::find(rows, static_cast<std::size_t>(member)) == rows.end())
        throw ConfigError("executor.only names member " + std::to_string(member) +
                          ", which has left the array: its loss was not finite, or it was not named before");
    std::vector<std::int64_t> kept;
    std::vector<std::size_t> left;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (!is_wanted(static_cast<std::int64_t>(rows[row]))) continue;
      kept.push_back(static_cast<std::int64_t>(row));
      left.push_back(rows[row]);
    }
    if (kept.size() == rows.size()) return;
    array.keep(kept);
    optimizer.keep(array, kept);
    rows = std::move(left);
    std::erase_if(frozen, [&](std::size_t member) { return !is_wanted(static_cast<std::int64_t>(member)); });
  }

  /// An array that was saved, perhaps of fewer rows.
  void restore(const State& from, Array& array, ArrayOptimizer& optimizer, std::vector<std::size_t>& rows,
               std::set<std::size_t>& frozen, const std::vector<std::int64_t>& seeds, bool fresh) const {
    const StateReader state(from);
    if (state.integer("members") != static_cast<std::int64_t>(members()))
      throw ConfigError("the array that was saved is of " + std::to_string(state.integer("members")) +
                        " members, executor.members of " + std::to_string(members()) +
                        ": leave their number as it is (executor.only trains some of them), or begin anew");
    std::vector<std::int64_t> kept(static_cast<std::size_t>(state.integer("rows")));
    for (std::size_t row = 0; row < kept.size(); ++row) {
      const std::string of = "row/" + std::to_string(row);
      kept[row] = state.integer(of);
      const std::int64_t seed = seeds[static_cast<std::size_t>(kept[row])];
      if (state.integer(of + "/seed") != seed)
        throw ConfigError(
            "member " + std::to_string(kept[row]) +
            " of executor.members began with run.seed = " + std::to_string(state.integer(of + "/seed")) +
            " and has " + std::to_string(seed) + " now: leave it as it is, or begin anew");
      if (state.boolean(of + "/frozen")) frozen.insert(static_cast<std::size_t>(kept[row]));
    }
    rows.assign(kept.begin(), kept.end());
    array.keep(kept);
    optimizer.keep(array, kept);
    const auto copy = [&](const std::string& name) {  // a checkpoint lies in the memory of the CPU
      const at::Tensor& saved = state.tensor(name);
      return saved.to(array.weights().device(), saved.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    };
    if (state.tensor("weights").sizes() != array.weights().sizes())
      throw ConfigError("the model has other parameters than that of the array which was trained so far");
    std::vector<NamedTensor> statistics = array.statistics();
    for (NamedTensor& each : statistics) each.tensor = copy("statistics/" + each.name);
    array.take(copy("weights"), std::move(statistics));
    if (!fresh) optimizer.load(state);
  }

  /// Whether a swap brought an optimizer that takes nothing over: it has no update behind it, and the array has.
  static bool begins_anew(Workbench& bench, const State& from, const Array& array) {
    State own;
    StateWriter writer(own);
    bench.optimizer().save(writer);
    const auto count = own.scalars.find("step/" + array.places().front().name);
    if (count == own.scalars.end() || std::get<std::int64_t>(count->second) > 0) return false;
    const StateReader state(from);
    for (std::int64_t row = 0; row < state.integer("rows"); ++row)
      if (state.integer("updates/" + std::to_string(row)) > 0) return true;
    return false;
  }

  /// The run was a plain one so far: it goes on as the leader, the others begin.
  void insert(Workbench& bench, Array& array, ArrayOptimizer& optimizer) const {
    const std::int64_t row = options_.leader;
    const auto put = [](const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from) {
      for (const NamedTensor& own : to)
        for (const NamedTensor& given : from)
          if (given.name == own.name) at::Tensor(own.tensor).copy_(given.tensor);
    };
    put(array.parameters(row), bench.network().parameters());
    put(array.buffers(row), bench.network().buffers());
    State state;
    StateWriter writer(state);
    bench.optimizer().save(writer);
    optimizer.insert(array, row, state);
  }

  /// The run's network lies in the array, as the leader's row: hooks and checkpoints see it as it is.
  void show_leader(Workbench& bench) const {
    const at::NoGradGuard untracked;
    const auto lay = [](const std::vector<NamedTensor>& shown, const std::vector<NamedTensor>& of_row) {
      for (const NamedTensor& each : shown)
        for (const NamedTensor& own : of_row)
          if (own.name == each.name) at::Tensor(each.tensor).set_data(own.tensor);
    };
    const std::int64_t row = row_of(leader());
    lay(bench.network().parameters(), array_->parameters(row));
    lay(bench.network().buffers(), array_->buffers(row));
  }

  struct Clip {
    bool by_norm = true;
    double most = 0.0;
  };

  static std::optional<Clip> clip_of(const Table& file) {
    const Value* rule = value_at(file, "trainer", "grad_clip");
    if (rule == nullptr) return std::nullopt;
    const auto& table = rule->as<Table>();
    const Value* type = table.find("type");
    const Value& most = *table.find("max");
    const auto* whole = most.get_if<std::int64_t>();
    return Clip{type == nullptr || type->as<std::string>() == "norm",
                whole != nullptr ? static_cast<double>(*whole) : most.as<double>()};
  }

  at::Tensor losses_of(Workbench& bench, const at::Tensor& outputs, const Batch& batch) const {
    check_rows(batch, outputs.sizes().slice(1));
    if (const auto* at_once = dynamic_cast<const GradesMembers*>(&bench.loss()))
      return at_once->forward_members(outputs, batch);
    std::vector<at::Tensor> losses;
    for (const at::Tensor& output : outputs.unbind(0)) losses.push_back(bench.loss().forward(output, batch));
    return at::stack(losses);
  }

  /// Events are the leader's; hooks may look on.
  void fire(Workbench& bench, Event event, StepWork& work, std::size_t micro, Graded& graded) const {
    const Graded before = graded;
    bench.fire(event, work, micro, graded);
    if (!graded.output.is_same(before.output) || !graded.loss.is_same(before.loss))
      throw ConfigError("a hook puts another output or loss in place at " + std::string(name(event)) +
                        ", which would be the leader's alone: take it out, or the executor \"eager\"");
  }

  void run_micro(Workbench& bench, StepWork& work, std::size_t micro) {
    const Batch& batch = work.micros[micro];
    Graded graded;
    const auto at = [&](Event event) { fire(bench, event, work, micro, graded); };
    at(Event::micro_start);
    if (batch.weight > 0.0) train_micro(bench, work, micro, graded, at);
    at(Event::micro_end);
  }

  template <class At>
  void train_micro(Workbench& bench, StepWork& work, std::size_t micro, Graded& graded, const At& at) {
    const Batch& batch = work.micros[micro];
    const auto row = static_cast<std::size_t>(row_of(leader()));
    at::Tensor outputs;
    std::vector<at::Tensor> each_output;
    at(Event::before_forward);
    const bool skips = bench.take(Control::skip_micro);
    if (!skips) {
      outputs = array_->forward(batch.inputs, work.pass(micro));
      each_output = rows_of(outputs);
      graded.output = each_output[row];
    }
    at(Event::after_forward);
    if (skips || bench.take(Control::skip_micro)) return;
    at(Event::before_loss);
    const at::Tensor losses = losses_of(bench, outputs, batch);
    const std::vector<at::Tensor> each_loss = rows_of(losses);
    graded.loss = each_loss[row];
    at(Event::after_loss);
    freeze_where(bench, losses);
    report(bench, batch, each_output, each_loss);
    at(Event::before_backward);
    if (!bench.take(Control::skip_micro))
      array_->backward(losses, work.share(micro), std::exchange(has_gradients_, true));
    at(Event::after_backward);
  }

  /// To be looked at: autograd is told nothing of them.
  static std::vector<at::Tensor> rows_of(const at::Tensor& all) {
    const at::AutoDispatchBelowADInplaceOrView untold;
    return all.detach().unbind(0);
  }

  void report(Workbench& bench, const Batch& batch, const std::vector<at::Tensor>& outputs,
              const std::vector<at::Tensor>& losses) const {
    const auto first = static_cast<std::size_t>(row_of(leader()));
    bench.report({outputs[first], losses[first]}, batch);
    for (std::size_t row = 0; row < rows_.size(); ++row)
      if (!frozen_.contains(rows_[row])) bench.report({outputs[row], losses[row]}, batch, rows_[row]);
  }

  void freeze_where(Workbench& bench, const at::Tensor& losses) {
    const at::Tensor found_losses = losses.detach().to(at::kCPU, at::kDouble).contiguous();
    const std::span values(found_losses.const_data_ptr<double>(), static_cast<std::size_t>(losses.numel()));
    const auto is_finite = [](double loss) { return std::isfinite(loss); };
    if (std::ranges::all_of(values, is_finite)) return;
    const std::size_t before = leader();
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const std::size_t member = rows_[row];
      if (frozen_.contains(member) || is_finite(values[row])) continue;
      const std::string found = "the loss of member " + std::to_string(member) + " is not finite";
      if (options_.on_nan == OnNan::stop)
        throw NumericError(found + ": executor.on_nan = \"freeze\" goes on without it");
      if (live().size() == 1) return;  // the run ends as a plain one does
      frozen_.insert(member);
      host().journal("froze member " + std::to_string(member), found);
    }
    if (leader() == before) return;
    host().journal("member " + std::to_string(leader()) + " leads",
                   "member " + std::to_string(before) + " is frozen");
    show_leader(bench);
  }

  void apply(Workbench& bench) {
    if (!has_gradients_) return;  // nothing in the batch counted
    const at::Tensor& gradients = array_->gradients();
    if (clip_ && clip_->by_norm) {
      const at::Tensor norms = at::linalg_vector_norm(gradients, 2, at::IntArrayRef{1}, true);
      at::Tensor(gradients).mul_(norms.add(1e-6).reciprocal_().mul_(clip_->most).clamp_max_(1.0));
    } else if (clip_) {
      at::Tensor(gradients).clamp_(-clip_->most, clip_->most);
    }
    std::vector<std::int64_t> frozen;
    for (std::size_t row = 0; row < rows_.size(); ++row)
      if (frozen_.contains(rows_[row])) frozen.push_back(static_cast<std::int64_t>(row));
    optimizer_->step(*array_, bench.rate(bench.updates()), frozen, bench.optimizer().groups());
  }

  void compact(Workbench& bench) {
    if (frozen_.empty() ||
        static_cast<double>(frozen_.size()) < options_.compact_at * static_cast<double>(rows_.size()))
      return;
    std::vector<std::int64_t> kept;
    for (std::size_t row = 0; row < rows_.size(); ++row)
      if (!frozen_.contains(rows_[row])) kept.push_back(static_cast<std::int64_t>(row));
    array_->keep(kept);
    optimizer_->keep(*array_, kept);
    rows_ = live();
    frozen_.clear();
    show_leader(bench);
    host().journal("made the array smaller", std::to_string(rows_.size()) + " members are left in it");
  }

  Options options_;
  std::optional<State> saved_;  ///< of an array, until it is opened
  std::optional<Array> array_;
  std::optional<ArrayOptimizer> optimizer_;
  std::vector<std::size_t> rows_;    ///< the member of each row
  std::set<std::size_t> frozen_;     ///< those that have a row and are trained no more
  std::vector<std::int64_t> seeds_;  ///< of the members
  std::optional<Clip> clip_;
  bool has_begun_ = false;      ///< the array has made a step, or comes from one that had
  bool has_gradients_ = false;  ///< of this step
  bool told_ = false;
};

}  // namespace
}  // namespace hfta

using hfta::Hfta;
TRAINYARD_PLUGIN(Hfta)
