#include "core/config/typed_fields.hpp"

#include "core/config/rules.hpp"

namespace trainyard::config {
namespace {

template <class T>
T get(const Table& resolved, std::string_view path) {
  return *at_path<T>(resolved, path);
}

std::optional<Duration> get_duration(const Table& resolved, std::string_view path) {
  const auto* text = at_path<std::string>(resolved, path);
  return text == nullptr ? std::nullopt : Duration::parse(*text);
}

}  // namespace

void fill_in(const Table& resolved, RunConfig& config) {
  config.name = get<std::string>(resolved, "run.name");
  config.seed = static_cast<std::uint64_t>(get<std::int64_t>(resolved, "run.seed"));
  config.device = get<std::string>(resolved, "run.device");
  const auto& deterministic = get<std::string>(resolved, "run.deterministic");
  config.deterministic = deterministic == "strict" ? Deterministic::strict
                         : deterministic == "warn" ? Deterministic::warn
                                                   : Deterministic::off;
  config.output_dir = get<std::string>(resolved, "run.output_dir");
  config.resume = get<std::string>(resolved, "run.resume");
  config.load_all = get<std::string>(resolved, "run.load") == "all";
  if (const auto* patterns = at_path<Array>(resolved, "run.load_match"))
    for (const Value& pattern : *patterns) config.load_match.push_back(pattern.as<std::string>());
  config.intra_op_threads = static_cast<int>(get<std::int64_t>(resolved, "run.threads.intra_op"));
  config.inter_op_threads = static_cast<int>(get<std::int64_t>(resolved, "run.threads.inter_op"));

  config.workers = static_cast<int>(get<std::int64_t>(resolved, "data.workers"));
  config.prefetch = static_cast<int>(get<std::int64_t>(resolved, "data.prefetch"));
  config.train.batch_size = get<std::int64_t>(resolved, "data.train.batch_size");
  config.train.micro_batch_size = get<std::int64_t>(resolved, "data.train.micro_batch_size");
  config.train.accumulation = get<std::int64_t>(resolved, "data.train.accumulation");
  config.train.shuffle = get<bool>(resolved, "data.train.shuffle");
  config.train.drop_last = get<bool>(resolved, "data.train.drop_last");
  if (config.val)
    config.val->batch_size = config.val->micro_batch_size =
        get<std::int64_t>(resolved, "data.val.batch_size");
  if (config.test)
    config.test->batch_size = config.test->micro_batch_size =
        get<std::int64_t>(resolved, "data.test.batch_size");

  config.max_duration = *get_duration(resolved, "trainer.max_duration");
  if (const std::optional<Duration> wall = get_duration(resolved, "trainer.max_wall_time"))
    config.max_wall_seconds = wall->count;
  config.eval_interval = get_duration(resolved, "trainer.eval_interval");
  const auto& precision = get<std::string>(resolved, "trainer.precision");
  config.precision = precision == "bf16-mixed"   ? Precision::bf16_mixed
                     : precision == "fp16-mixed" ? Precision::fp16_mixed
                                                 : Precision::fp32;
  if (value_at(resolved, "trainer.grad_clip") != nullptr)
    config.grad_clip = {get<std::string>(resolved, "trainer.grad_clip.type") == "norm"
                            ? GradClip::Type::norm
                            : GradClip::Type::value,
                        get<double>(resolved, "trainer.grad_clip.max")};
  const std::string nan = get<std::string>(resolved, "guard.nan");
  config.guard = {.deadline_seconds = get_duration(resolved, "guard.deadline")->count,
                  .end_overdue = get<std::string>(resolved, "guard.on_deadline") == "abort",
                  .nan = nan == "off"       ? GuardConfig::Nan::off
                         : nan == "disable" ? GuardConfig::Nan::disable
                         : nan == "abort"   ? GuardConfig::Nan::abort
                                            : GuardConfig::Nan::rollback,
                  .strict_state = get<bool>(resolved, "guard.strict_state")};
  if (value_at(resolved, "early_stopping") != nullptr)
    config.early_stopping = {get<std::string>(resolved, "early_stopping.metric"),
                             get<std::string>(resolved, "early_stopping.mode") == "max",
                             get<std::int64_t>(resolved, "early_stopping.patience"),
                             get<double>(resolved, "early_stopping.min_delta")};
  config.log_interval = *get_duration(resolved, "logging.interval");
}

}  // namespace trainyard::config
