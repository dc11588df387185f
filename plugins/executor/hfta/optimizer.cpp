// The arithmetic of plugins/optimizer, with columns of coefficients (Wang et al., MLSys 2021, section 3.2).
#include "optimizer.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <trainyard/error.hpp>
#include <trainyard/optimizer.hpp>

#include "kernels/cpu/adam.hpp"

namespace hfta {

namespace kernels = trainyard::kernels;

namespace {

double number_of(const Value& value) {
  if (const auto* whole = value.get_if<std::int64_t>()) return static_cast<double>(*whole);
  return value.as<double>();
}

const Value& at(const Table& table, const char* name) {
  const Value* value = table.find(name);
  if (value == nullptr)
    throw PluginError("optimizer." + std::string(name) + " is not in the resolved run file");
  return *value;
}

std::optional<double> optional_number(const Table& table, const char* name) {
  const Value* value = table.find(name);
  return value == nullptr ? std::nullopt : std::optional(number_of(*value));
}

/// What every optimizer has, as make_groups() takes it.
OptimizerCommon common_of(const Table& options) {
  OptimizerCommon common{.lr = number_of(at(options, "lr")),
                         .weight_decay = optional_number(options, "weight_decay").value_or(0.0)};
  if (const Value* decay = options.find("decay")) common.decay = decay->as<std::string>();
  const Value* groups = options.find("groups");
  if (groups == nullptr) return common;
  for (const Value& each : groups->as<trainyard::Array>()) {
    const auto& table = each.as<Table>();
    GroupRule rule{.match = {},
                   .lr = optional_number(table, "lr"),
                   .lr_factor = optional_number(table, "lr_factor"),
                   .weight_decay = optional_number(table, "weight_decay")};
    for (const Value& pattern : at(table, "match").as<trainyard::Array>())
      rule.match.push_back(pattern.as<std::string>());
    common.groups.push_back(std::move(rule));
  }
  return common;
}

}  // namespace

/// One update: what a rule reads and writes. Tensors are [B, P], columns [B, 1].
struct Update {
  ArrayOptimizer& optimizer;
  const Array& array;
  at::Tensor weights, gradients;
  at::Tensor rate;   ///< lr of each
  at::Tensor decay;  ///< weight decay; undefined: 0
  std::optional<double> momentum;

  const std::vector<double>& numbers(const char* name, std::optional<std::size_t> element = {}) const {
    return optimizer.option(name, element).values;
  }
  at::Tensor option(const char* name) const { return optimizer.option(name).tensor; }
  /// A momentum or first decay, for which the schedule may have another.
  at::Tensor cycled(const char* name) const { return momentum ? optimizer.column(*momentum) : option(name); }
  at::Tensor beta(std::size_t i) const {
    return i == 0 && momentum ? optimizer.column(*momentum) : optimizer.option("betas", i).tensor;
  }
  bool flag(const char* name) const { return at(optimizer.options_.front(), name).as<bool>(); }
  std::string text(const char* name) const { return at(optimizer.options_.front(), name).as<std::string>(); }
  at::Tensor& slot(std::size_t i) const { return optimizer.slots_[i].values; }
  std::size_t slots() const { return optimizer.slots_.size(); }
  at::Tensor updates() const {  // this one counted
    return optimizer.column(std::vector<double>(optimizer.updates_.begin(), optimizer.updates_.end()));
  }
  std::int64_t count(std::size_t member) const { return optimizer.updates_[member]; }
  /// The gradient with weight decay in it.
  at::Tensor decayed() const { return decay.defined() ? at::addcmul(gradients, weights, decay) : gradients; }
  /// 1 - beta^t, in double: near 1 it has no digits to spare.
  std::vector<double> corrections(std::size_t i) const {
    std::vector<double> values = optimizer.option("betas", i).values;
    for (std::size_t b = 0; b < values.size(); ++b) {
      const double beta = i == 0 ? momentum.value_or(values[b]) : values[b];
      values[b] = 1.0 - std::pow(beta, static_cast<double>(optimizer.updates_[b]));
    }
    return values;
  }
  at::Tensor correction(std::size_t i) const { return optimizer.column(corrections(i)); }
};

namespace {

void sgd(Update& u) {
  at::Tensor g = u.decayed();
  if (u.slots() > 0) {
    const at::Tensor momentum = u.cycled("momentum");
    // The first update of the buffer is the gradient whole, and one without momentum has no dampening.
    const at::Tensor first = at::logical_and(u.updates().gt(1), momentum.gt(0));
    const at::Tensor share = at::where(first, 1.0 - u.option("dampening"), 1.0).to(g.scalar_type());
    at::Tensor& buffer = u.slot(0);
    buffer.mul_(momentum).addcmul_(g, share);
    g = u.flag("nesterov") ? at::addcmul(g, buffer, momentum) : buffer;
  }
  u.weights.addcmul_(g, u.rate, -1);
}

/// v <- beta2 v + (1 - beta2) g^2, and the same of m.
void average(Update& u, const at::Tensor& g) {
  const at::Tensor beta2 = u.beta(1);
  u.slot(0).lerp_(g, 1.0 - u.beta(0));
  u.slot(1).mul_(beta2).addcmul_(at::mul(g, 1.0 - beta2), g);
}

void adam_step(Update& u, const at::Tensor& g) {
  average(u, g);
  const at::Tensor* square = &u.slot(1);
  if (u.flag("amsgrad")) {
    at::maximum_out(u.slot(2), u.slot(2), u.slot(1));
    square = &u.slot(2);
  }
  at::Tensor denominator = square->sqrt().div_(u.correction(1).sqrt_()).add_(u.option("eps"));
  u.weights.addcdiv_(at::mul(u.slot(0), u.rate / u.correction(0)), denominator, -1);
}

/// Adam, and AdamW where decay is `decoupled`, in one pass over all that it reads and writes, a row a member. Of floats in
/// memory, whose members have one rate each; whether it was that.
bool adam_in_one_pass(Update& u, bool decoupled) {
  if (!u.weights.is_cpu() || u.weights.scalar_type() != at::kFloat || u.rate.size(1) > 1 ||
      (u.decay.defined() && u.decay.size(1) > 1) || u.flag("amsgrad"))
    return false;
  const std::vector<double>& beta1 = u.numbers("betas", 0);
  const std::vector<double>& beta2 = u.numbers("betas", 1);
  const std::vector<double>& eps = u.numbers("eps");
  const auto* rates = u.rate.const_data_ptr<float>();
  const auto* decays = u.decay.defined() ? u.decay.const_data_ptr<float>() : nullptr;
  auto* weights = u.weights.mutable_data_ptr<float>();
  auto *averages = u.slot(0).mutable_data_ptr<float>(), *squares = u.slot(1).mutable_data_ptr<float>();
  const auto* gradients = u.gradients.const_data_ptr<float>();
  const std::int64_t width = u.weights.size(1);
  at::parallel_for(0, u.weights.size(0), 1 + 32768 / width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto b = static_cast<std::size_t>(row);
      const kernels::AdamStep step =
          kernels::adam_step({rates[b], u.momentum.value_or(beta1[b]), beta2[b], eps[b],
                              decays != nullptr ? decays[b] : 0.0, decoupled},
                             u.count(b));
      const std::int64_t at = row * width;
      kernels::adam_kernels().step({weights + at, averages + at, squares + at, width}, gradients + at, step);
    }
  });
  return true;
}

void adam(Update& u) {
  if (!adam_in_one_pass(u, false)) adam_step(u, u.decayed());
}

void adamw(Update& u) {
  if (adam_in_one_pass(u, true)) return;
  if (u.decay.defined()) u.weights.mul_(1.0 - u.rate * u.decay);
  adam_step(u, u.gradients);
}

void adagrad(Update& u) {
  const at::Tensor g = u.decayed();
  u.slot(0).addcmul_(g, g);
  const at::Tensor rate = u.rate / (1.0 + (u.updates() - 1.0) * u.option("lr_decay"));
  u.weights.addcdiv_(at::mul(g, rate), u.slot(0).sqrt().add_(u.option("eps")), -1);
}

void rmsprop(Update& u) {
  const at::Tensor g = u.decayed(), alpha = u.option("alpha");
  at::Tensor& squares = u.slot(0);
  squares.mul_(alpha).addcmul_(at::mul(g, 1.0 - alpha), g);
  at::Tensor denominator;
  if (u.flag("centered")) {
    at::Tensor& averages = u.slot(1);
    averages.lerp_(g, 1.0 - alpha);
    denominator = at::addcmul(squares, averages, averages, -1.0).clamp_min_(0.0).sqrt_();
  } else {
    denominator = squares.sqrt();
  }
  denominator.add_(u.option("eps"));
  const bool has_buffer = u.slots() == (u.flag("centered") ? 3 : 2);
  if (!has_buffer) {
    u.weights.addcdiv_(at::mul(g, u.rate), denominator, -1);
    return;
  }
  at::Tensor& buffer = u.slot(u.slots() - 1);
  buffer.mul_(u.cycled("momentum")).addcdiv_(g, denominator);
  u.weights.addcmul_(buffer, u.rate, -1);
}

/// Multiplies the updates of each parameter with coefficient * |w| / (|d| + decay * |w| + eps), 1 where |w| or |d| is 0
/// (You et al.): a factor a member and parameter. `coefficient` and `eps` undefined: 1 and 0; `decay` as the update has
/// it, or undefined.
void scale_by_trust(Update& u, at::Tensor& updates, const at::Tensor& directions,
                    const at::Tensor& coefficient, const at::Tensor& decay, const at::Tensor& eps) {
  const std::size_t least = u.text("adapt") == "matrices" ? 2 : 0;
  for (const RowRange& place : u.array.places()) {
    if (place.shape.size() < least) continue;
    const auto part = [&](const at::Tensor& matrix) { return matrix.narrow(1, place.first, place.count); };
    const at::Tensor weight = at::linalg_vector_norm(part(u.weights), 2, at::IntArrayRef{1}, true);
    const at::Tensor step = at::linalg_vector_norm(part(directions), 2, at::IntArrayRef{1}, true);
    at::Tensor below = step;
    if (decay.defined())
      below = at::addcmul(below, weight, decay.size(1) == 1 ? decay : decay.narrow(1, place.first, 1));
    if (eps.defined()) below = at::add(below, eps);
    const at::Tensor ratio = (coefficient.defined() ? weight * coefficient : weight) / below;
    part(updates).mul_(
        at::where(at::logical_and(weight.gt(0), step.gt(0)), ratio, 1.0).to(ratio.scalar_type()));
  }
}

void lars(Update& u) {
  at::Tensor updates = at::mul(u.gradients, u.rate);
  if (u.decay.defined()) updates.addcmul_(u.weights, u.rate * u.decay);
  scale_by_trust(u, updates, u.gradients, u.option("trust"), u.decay, u.option("eps"));
  const at::Tensor momentum = u.cycled("momentum");
  at::Tensor& buffer = u.slot(0);
  buffer.mul_(momentum).add_(updates);
  u.weights.sub_(u.flag("nesterov") ? at::addcmul(updates, buffer, momentum) : buffer);
}

void lamb(Update& u) {
  average(u, u.gradients);
  at::Tensor correction1 = u.correction(0), correction2 = u.correction(1);
  if (!u.flag("debias")) {
    correction1.fill_(1.0);
    correction2.fill_(1.0);
  }
  const at::Tensor denominator =
      at::mul(u.slot(1).sqrt(), correction1 / correction2.sqrt()).add_(correction1 * u.option("eps"));
  at::Tensor directions = u.slot(0) / denominator;
  if (u.decay.defined()) directions.addcmul_(u.weights, u.decay);
  scale_by_trust(u, directions, directions, {}, {}, {});
  u.weights.addcmul_(directions, u.rate, -1);
}

/// Whether any member has a number above 0.
bool any_above_0(const std::vector<Table>& options, const char* name) {
  return std::ranges::any_of(options, [&](const Table& each) { return number_of(at(each, name)) > 0.0; });
}

struct UpdateRule {
  std::string_view type;
  void (*update)(Update&);
  std::vector<std::string> (*slots)(const std::vector<Table>&);
  std::vector<const char*> common;  ///< options that an array has in common
};

const std::vector<UpdateRule>& update_rules() {
  using Options = std::vector<Table>;
  using Names = std::vector<std::string>;
  static const auto of_adam = [](const Options& options) {
    return at(options.front(), "amsgrad").as<bool>() ? Names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                                                     : Names{"exp_avg", "exp_avg_sq"};
  };
  static const std::vector<UpdateRule> all = {
      {"adagrad", adagrad, [](const Options&) { return Names{"sum"}; }, {}},
      {"adam", adam, of_adam, {"amsgrad"}},
      {"adamw", adamw, of_adam, {"amsgrad"}},
      {"lamb",
       lamb,
       [](const Options&) {
         return Names{"exp_avg", "exp_avg_sq"};
       },
       {"debias", "adapt"}},
      {"lars", lars, [](const Options&) { return Names{"momentum_buffer"}; }, {"nesterov", "adapt"}},
      {"rmsprop",
       rmsprop,
       [](const Options& options) {
         Names names{"square_avg"};
         if (at(options.front(), "centered").as<bool>()) names.emplace_back("grad_avg");
         if (any_above_0(options, "momentum")) names.emplace_back("momentum_buffer");
         return names;
       },
       {"centered"}},
      {"sgd",
       sgd,
       [](const Options& options) {
         return any_above_0(options, "momentum") ? Names{"momentum_buffer"} : Names{};
       },
       {"nesterov"}},
  };
  return all;
}

const UpdateRule& rule_of(const std::string& type) {
  for (const UpdateRule& rule : update_rules())
    if (rule.type == type) return rule;
  std::string known;
  for (const std::string& name : fused_optimizers()) known += (known.empty() ? "" : ", ") + name;
  throw ConfigError("the optimizer " + type + " is not fused for members of an array: take one of " + known);
}

bool alike(const Value& a, const Value& b) {
  if (const auto* flag = a.get_if<bool>()) return *flag == b.as<bool>();
  return a.as<std::string>() == b.as<std::string>();
}

}  // namespace

ArrayOptimizer::ArrayOptimizer(std::vector<Table> options, const Table& file, const Array& array)
    : type_(at(file, "type").as<std::string>()),
      options_(std::move(options)),
      numbers_(array.weights().options().requires_grad(false)),
      updates_(options_.size(), 0) {
  const UpdateRule& rule = rule_of(type_);
  for (const Table& each : options_) {
    if (at(each, "type").as<std::string>() != type_)
      throw ConfigError("a member has the optimizer " + at(each, "type").as<std::string>() +
                        ", the run file " + type_ + ": those of an array have one");
    for (const char* name : rule.common)
      if (!alike(at(file, name), at(each, name)))
        throw ConfigError("a member differs from the run file in optimizer." + std::string(name) +
                          ", which all of an array have in common");
  }
  if (type_ == "sgd" && at(options_.front(), "nesterov").as<bool>())
    for (const Table& each : options_)
      if (number_of(at(each, "momentum")) == 0.0 || number_of(at(each, "dampening")) != 0.0)
        throw ConfigError(
            "optimizer.nesterov = true needs momentum above 0 and dampening = 0, of each member");
  std::vector<Table> all = options_;
  all.push_back(file);
  for (std::string& name : rule.slots(all))
    slots_.push_back({std::move(name), at::zeros_like(array.weights())});
  if (type_ == "adagrad") slots_.front().values.add_(option("initial_accumulator").tensor);
  read_groups(array);
  shown_ = make_groups(array.parameters(0), common_of(file));
  for (const RowRange& place : array.places())
    for (std::size_t g = 0; g < shown_.size(); ++g)
      if (std::ranges::find(shown_[g].names, place.name) != shown_[g].names.end()) group_of_.push_back(g);
  for (ParamGroup& group : shown_) group.params.clear();
}

/// A column where no parameter of a member has other numbers than the rest.
void ArrayOptimizer::read_groups(const Array& array) {
  std::vector<std::vector<double>> rates, decays;
  bool even = true, any_decay = false;
  for (std::size_t b = 0; b < options_.size(); ++b) {
    std::map<std::string, std::pair<double, double>> of_name;
    for (const ParamGroup& group :
         make_groups(array.parameters(static_cast<std::int64_t>(b)), common_of(options_[b])))
      for (const std::string& name : group.names) of_name[name] = {group.base_lr, group.weight_decay};
    rates.emplace_back();
    decays.emplace_back();
    for (const RowRange& place : array.places()) {
      const auto [rate, decay] = of_name.at(place.name);
      rates.back().push_back(rate);
      decays.back().push_back(decay);
      even = even && rate == rates.back().front() && decay == decays.back().front();
      any_decay = any_decay || decay != 0.0;
    }
  }
  const auto of_place = [](const std::vector<std::vector<double>>& values, std::size_t place) {
    std::vector<double> all;
    for (const std::vector<double>& own : values) all.push_back(own[place]);
    return all;
  };
  const auto matrix = [&](const std::vector<std::vector<double>>& values) {
    if (even) return column(of_place(values, 0));
    at::Tensor all = at::zeros_like(array.weights());
    for (std::size_t i = 0; i < array.places().size(); ++i)
      all.narrow(1, array.places()[i].first, array.places()[i].count)
          .copy_(column(of_place(values, i)).expand({array.members(), array.places()[i].count}));
    return all;
  };
  rates_ = matrix(rates);
  decays_ = any_decay ? matrix(decays) : at::Tensor();
}

at::Tensor ArrayOptimizer::column(const std::vector<double>& values) const {
  return at::tensor(values, at::kDouble).to(numbers_).unsqueeze(1);
}

const ArrayOptimizer::Column& ArrayOptimizer::option(const std::string& name,
                                                     std::optional<std::size_t> element) const {
  const std::string key = element ? name + "/" + std::to_string(*element) : name;
  if (const auto known = columns_.find(key); known != columns_.end()) return known->second;
  Column made;
  for (const Table& each : options_) {
    const Value& value = at(each, name.c_str());
    made.values.push_back(number_of(element ? value.as<trainyard::Array>()[*element] : value));
  }
  made.tensor = column(made.values);
  return columns_.emplace(key, std::move(made)).first->second;
}

/// At a rate, with what hooks have made of the run's groups.
ArrayOptimizer::Numbers ArrayOptimizer::numbers_of(const Array& array, const Rate& rate,
                                                   std::span<const ParamGroup> groups) const {
  const Numbers own{rate.factor == 1.0 ? rates_ : rates_ * rate.factor, decays_, rate.momentum};
  if (groups.empty()) return own;
  if (groups.size() != shown_.size())
    throw PluginError("the optimizer has " + std::to_string(groups.size()) + " groups, the run file " +
                      std::to_string(shown_.size()));
  std::vector<double> rates, set_rates, decays, set_decays;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    rates.push_back(shown_[g].base_lr * rate.factor);
    set_rates.push_back(groups[g].lr);
    decays.push_back(shown_[g].weight_decay);
    set_decays.push_back(groups[g].weight_decay);
    if (groups[g].momentum != groups[0].momentum)
      throw ConfigError(
          "a hook gives the groups of the optimizer different momenta, and an array of models has one for "
          "all "
          "parameters: take the hook out, or set executor.type = \"eager\"");
  }
  return {changed(array, own.rates, rates, set_rates), changed(array, own.decays, decays, set_decays),
          groups[0].momentum};
}

/// The members' numbers `own`, where a hook changed those of the run's groups from `before` to `now`.
at::Tensor ArrayOptimizer::changed(const Array& array, const at::Tensor& own,
                                   const std::vector<double>& before, const std::vector<double>& now) const {
  if (now == before) return own;
  std::vector<double> factors, put;
  for (std::size_t g = 0; g < now.size(); ++g) {
    const bool scales = before[g] != 0.0 || now[g] == 0.0;
    factors.push_back(!scales ? 0.0 : now[g] == before[g] ? 1.0 : now[g] / before[g]);
    put.push_back(scales ? 0.0 : now[g]);
  }
  const auto is_first = [&](double factor) { return std::abs(factor - factors[0]) <= 1e-12 * factors[0]; };
  if (std::ranges::all_of(factors, is_first) && std::ranges::count(put, 0.0) == std::ssize(put))
    return own.defined() ? own * factors[0] : own;
  const auto of_places = [&](const std::vector<double>& of_groups) {
    at::Tensor all = at::zeros_like(array.weights());
    for (std::size_t i = 0; i < array.places().size(); ++i)
      all.narrow(1, array.places()[i].first, array.places()[i].count).fill_(of_groups[group_of_[i]]);
    return all;
  };
  return own.defined() ? own * of_places(factors) + of_places(put) : of_places(put);
}

void ArrayOptimizer::step(const Array& array, const Rate& rate, const std::vector<std::int64_t>& frozen,
                          std::span<const ParamGroup> groups) {
  const at::NoGradGuard untracked;
  // Rows of frozen members are put back: the others are updated by the very operations of a whole array.
  std::vector<std::pair<at::Tensor, at::Tensor>> before;
  if (!frozen.empty()) {
    const at::Tensor rows = at::tensor(frozen, at::kLong).to(array.weights().device());
    before.emplace_back(array.weights(), array.weights().index_select(0, rows));
    for (const Slot& slot : slots_) before.emplace_back(slot.values, slot.values.index_select(0, rows));
  }
  for (std::int64_t& each : updates_) ++each;
  const Numbers now = numbers_of(array, rate, groups);
  Update update{*this, array, array.weights(), array.gradients(), now.rates, now.decays, now.momentum};
  rule_of(type_).update(update);
  if (frozen.empty()) return;
  const at::Tensor rows = at::tensor(frozen, at::kLong).to(array.weights().device());
  for (auto& [all, kept] : before) all.index_copy_(0, rows, kept);
  for (const std::int64_t member : frozen) --updates_[static_cast<std::size_t>(member)];
}

void ArrayOptimizer::keep(const Array& array, const std::vector<std::int64_t>& rows) {
  const at::NoGradGuard untracked;
  const at::Tensor index = at::tensor(rows, at::kLong).to(array.weights().device());
  std::vector<Table> options;
  std::vector<std::int64_t> updates;
  for (const std::int64_t row : rows) {
    options.push_back(options_[static_cast<std::size_t>(row)]);
    updates.push_back(updates_[static_cast<std::size_t>(row)]);
  }
  options_ = std::move(options);
  updates_ = std::move(updates);
  columns_.clear();
  for (Slot& slot : slots_) slot.values = slot.values.index_select(0, index);
  rates_ = rates_.index_select(0, index);
  if (decays_.defined()) decays_ = decays_.index_select(0, index);
}

State ArrayOptimizer::state_of(const Array& array, std::int64_t member) const {
  State state;
  for (const RowRange& place : array.places())
    state.scalars.emplace("step/" + place.name, updates_[static_cast<std::size_t>(member)]);
  for (const Slot& slot : slots_)
    for (const NamedTensor& each : array.row(slot.values, member))
      state.tensors.emplace(slot.name + "/" + each.name, each.tensor.clone());
  return state;
}

void ArrayOptimizer::insert(const Array& array, std::int64_t member, const State& state) {
  const at::NoGradGuard untracked;
  const auto count = state.scalars.find("step/" + array.places().front().name);
  if (count == state.scalars.end()) return;
  updates_[static_cast<std::size_t>(member)] = std::get<std::int64_t>(count->second);
  for (const Slot& slot : slots_)
    for (const NamedTensor& each : array.row(slot.values, member))
      if (const auto saved = state.tensors.find(slot.name + "/" + each.name); saved != state.tensors.end())
        at::Tensor(each.tensor).copy_(saved->second);
}

void ArrayOptimizer::save(StateWriter& state) const {
  for (std::size_t b = 0; b < updates_.size(); ++b) state.scalar("updates/" + std::to_string(b), updates_[b]);
  for (const Slot& slot : slots_) state.tensor("slots/" + slot.name, slot.values);
}

void ArrayOptimizer::load(const StateReader& state) {
  for (std::size_t b = 0; b < updates_.size(); ++b)
    updates_[b] = state.integer("updates/" + std::to_string(b));
  for (Slot& slot : slots_) {
    const std::string name = "slots/" + slot.name;
    if (state.has_tensor(name) && state.tensor(name).sizes() == slot.values.sizes())
      slot.values = state.tensor(name).to(numbers_, /*non_blocking=*/false, /*copy=*/true);
  }
}

std::vector<std::string> ArrayOptimizer::slot_names() const {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) names.push_back(slot.name);
  return names;
}

std::vector<std::string> fused_optimizers() {
  std::vector<std::string> names;
  for (const UpdateRule& rule : update_rules()) names.emplace_back(rule.type);
  return names;
}

}  // namespace hfta
