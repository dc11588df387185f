#include "core/runfile/between_keys.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <trainyard/duration.hpp>

#include "core/runfile/at_path.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/rank_place.hpp"
#include "core/runfile/take.hpp"

namespace trainyard::config {
namespace {

Origin origin_of(const Table& root, std::string_view path) {
  const Value* value = value_at(root, path);
  return value == nullptr ? Origin{} : value->origin;
}

void device_and_precision(const Table& run, int local_ranks, Findings& findings) {
  const auto* device = at_path<std::string>(run, "run.device");
  const auto* precision = at_path<std::string>(run, "trainer.precision");
  if (device == nullptr) return;
  const bool number_follows = device->rfind("cuda:", 0) == 0 && device->size() > 5 && device->size() <= 8 &&
                              device->find_first_not_of("0123456789", 5) == std::string::npos;
  if (number_follows && local_ranks > 1) {
    findings.error("E208", origin_of(run, "run.device"),
                   "run.device: \"" + *device + "\" is one GPU, and " + std::to_string(local_ranks) +
                       " ranks train on this machine",
                   "set run.device = \"cuda\": each rank has a GPU of its own");
    return;
  }
  if (*device != "cpu" && *device != "cuda" && !number_follows) {
    findings.error("E208", origin_of(run, "run.device"), "run.device: \"" + *device + "\" is not a device",
                   "use cpu, cuda or cuda:N   e.g. \"cuda:0\"");
    return;
  }
  if (*device == "cpu" && precision != nullptr && *precision == "fp16-mixed")
    findings.error("E206", origin_of(run, "trainer.precision"),
                   "trainer.precision: \"fp16-mixed\" does not work on the CPU",
                   "use \"bf16-mixed\" there, or run.device = \"cuda\"");
}

void sampling(const Table& run, Findings& findings) {
  const auto* shuffle = at_path<bool>(run, "data.train.shuffle");
  const auto* type = at_path<std::string>(run, "data.sampler.type");
  if (shuffle != nullptr && *shuffle && type != nullptr && *type != "random")
    findings.error("E201", origin_of(run, "data.train.shuffle"),
                   "data.train.shuffle = true contradicts the sampler \"" + *type + "\" of [data.sampler]",
                   "drop one of the two: the sampler alone makes the order");
}

void parts_of_data(const Table& run, Findings& findings) {
  for (const char* split : {"train", "val", "test"}) {
    const std::string key = std::string("data.") + split + ".take";
    const auto* text = at_path<std::string>(run, key);
    if (text != nullptr && !text->empty() && !parse_take(*text))
      findings.error("E216", origin_of(run, key), key + ": \"" + *text + "\" is no part of the samples",
                     "use \"first 1000\", \"last 10%\", \"fold 0 of 5\", \"folds 0 to 2 of 5\", or \"all "
                     "but\" one of these");
  }
}

void evaluation(const Table& run, Findings& findings) {
  const Value* val = value_at(run, "data.val");
  const Value* interval = value_at(run, "trainer.eval_interval");
  if (val == nullptr && interval != nullptr)
    findings.error("E209", interval->key_origin, "trainer.eval_interval is set, but there is no [data.val]",
                   "add [data.val], or drop the interval");
  const Value* metrics = value_at(run, "metrics");
  const bool any_metric = metrics != nullptr && metrics->get_if<Array>() && !metrics->as<Array>().empty();
  if (val == nullptr && any_metric && value_at(run, "data.test") == nullptr)
    findings.warning(
        "E210", metrics->as<Array>().front().origin,
        "[[metrics]] are computed in evaluations, and there is neither [data.val] nor [data.test]",
        "add [data.val]");
}

void resuming(const Table& run, Findings& findings) {
  const auto* resume = at_path<std::string>(run, "run.resume");
  if (resume == nullptr) return;
  const bool path = *resume != "never" && *resume != "auto" && *resume != "must";
  std::error_code error;
  if (path && !std::filesystem::exists(*resume, error))
    findings.error("E401", origin_of(run, "run.resume"), "run.resume: " + *resume + " does not exist",
                   "never, auto, must, or the path of a run's folder, a checkpoint or a safetensors file");
  else if (const char* kind = path ? no_file(*resume) : nullptr;
           kind != nullptr && !std::filesystem::is_directory(*resume, error))
    findings.error("E401", origin_of(run, "run.resume"), "run.resume: " + *resume + " is " + kind,
                   "name a run's folder, a checkpoint or a safetensors file");
  const auto* load = at_path<std::string>(run, "run.load");
  const auto* match = at_path<Array>(run, "run.load_match");
  if (!path && load != nullptr && *load == "weights")
    findings.error("E211", origin_of(run, "run.load"),
                   "run.load = \"weights\" needs the path that they come from",
                   "set run.resume to a run's folder, a checkpoint or a safetensors file");
  else if (match != nullptr && !match->empty() && load != nullptr && *load != "weights")
    findings.error("E211", origin_of(run, "run.load_match"),
                   "run.load_match holds for load = \"weights\" only",
                   "set run.load = \"weights\", or drop the patterns");
}

void best_weights(const Table& run, Findings& findings) {
  const auto* wanted = at_path<bool>(run, "trainer.restore_best");
  if (wanted == nullptr || !*wanted || value_at(run, "checkpoint.keep_best") != nullptr) return;
  findings.error("E217", origin_of(run, "trainer.restore_best"),
                 "trainer.restore_best: no checkpoint is kept as the best",
                 "add checkpoint.keep_best = { metric = \"val/loss\", mode = \"min\" }");
}

/// Returns a duration as a share of the run; nothing where that depends on the data.
std::optional<double> share(const Table& run, std::string_view path, const Duration& whole) {
  const auto* text = at_path<std::string>(run, path);
  const std::optional<Duration> part = text == nullptr ? std::nullopt : Duration::parse(*text);
  if (!part) return std::nullopt;
  if (part->unit == Duration::Unit::percent) return part->count / 100.0;
  if (part->unit == whole.unit && whole.count > 0) return part->count / whole.count;
  return std::nullopt;
}

void warm_up(const Table& run, Findings& findings) {
  const auto* text = at_path<std::string>(run, "trainer.max_duration");
  const std::optional<Duration> whole = text == nullptr ? std::nullopt : Duration::parse(*text);
  if (!whole) return;
  const std::optional<double> warmup = share(run, "schedule.warmup", *whole);
  const std::optional<double> delay = share(run, "schedule.delay", *whole);
  // The slack allows for rounded decimal shares.
  if (warmup.value_or(0.0) + delay.value_or(0.0) <= 1.0 + 1e-9) return;
  const std::string_view longer =
      warmup.value_or(0.0) >= delay.value_or(0.0) ? "schedule.warmup" : "schedule.delay";
  std::string parts;
  for (const char* key : {"warmup", "delay"})
    if (const auto* length = at_path<std::string>(run, std::string("schedule.") + key);
        length != nullptr && Duration::parse(*length).value_or(Duration{}).count > 0)
      parts += (parts.empty() ? "" : " + ") + std::string(key) + " " + *length;
  findings.error("E204", origin_of(run, longer),
                 "schedule: " + parts + " is longer than the run, trainer.max_duration " + *text,
                 "shorten it: the schedule itself needs a part of the run");
}

void output(const Table& run, Findings& findings) {
  const auto* text = at_path<std::string>(run, "run.output_dir");
  if (text == nullptr) return;
  const Origin at = origin_of(run, "run.output_dir");
  if (text->empty()) {
    findings.error("E402", at, "run.output_dir is empty", "name a folder: \"runs/${run.name}\"");
    return;
  }
  // The folder itself need not exist yet, but its nearest existing parent has to be a writable folder.
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(*text, error).lexically_normal();
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  if (!std::filesystem::is_directory(folder, error))
    findings.error("E402", at, "run.output_dir: " + folder.string() + " is a file, not a folder",
                   "name another folder");
  else if (access(folder.c_str(), W_OK | X_OK) != 0)
    findings.error("E402", at, "run.output_dir: no right to write in " + folder.string(),
                   "name a folder that you may write in");
}

void shares_of_ranks(const Table& run, Findings& findings) {
  const std::int64_t shares = std::ssize(shares_of(run)), ranks = ranks_of(run);
  if (shares == 0 || shares == ranks || ranks == 1) return;
  findings.error("E207", origin_of(run, "distributed.shares"),
                 "distributed.shares has " + std::to_string(shares) + " numbers, and " +
                     std::to_string(ranks) + " ranks train",
                 "give one for each rank");
}

std::optional<std::int64_t> number_of(const Table& train, const char* key) {
  const auto* value = at_path<std::int64_t>(train, key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

/// Splits a batch in which ranks have different shares: a micro-batch has all of the largest part, unless it
/// is said otherwise, and the other ranks have fewer micro-batches or smaller ones.
void cut_by_shares(Table& train, const std::vector<std::int64_t>& shares, const Origin& at,
                   Findings& findings) {
  const std::int64_t sum = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  const auto refuse = [&](const std::string& what, const std::string& mend) {
    findings.error("E207", at, "distributed.shares: " + what, mend);
  };
  const std::optional<std::int64_t> given = number_of(train, "batch_size");
  const std::optional<std::int64_t> batch = given ? given : number_of(train, "global_batch_size");
  if (!batch) return refuse("[data.train] has no batch_size to be shared", "say batch_size there");
  if (*batch % sum != 0)
    return refuse(
        "a batch of " + std::to_string(*batch) + " is no multiple of their sum, " + std::to_string(sum),
        "set data.train.batch_size = " + std::to_string((*batch / sum + 1) * sum));
  const std::int64_t largest = *batch / sum * *std::max_element(shares.begin(), shares.end());
  const auto rounded_up = [&](std::int64_t by) { return (largest + by - 1) / by; };
  const std::optional<std::int64_t> steps = number_of(train, "accumulation");
  const std::int64_t micro = number_of(train, "micro_batch_size").value_or(rounded_up(steps.value_or(1)));
  if (steps && *steps != rounded_up(micro))
    return refuse("accumulation " + std::to_string(*steps) + " contradicts micro-batches of " +
                      std::to_string(micro) + ", as the largest part has " + std::to_string(largest) +
                      " samples",
                  "drop accumulation or micro_batch_size");
  train.erase("global_batch_size");
  train.set("batch_size", Value(*batch));
  train.set("micro_batch_size", Value(std::min(micro, largest)));
  train.set("accumulation", Value(rounded_up(micro)));
}

/// Splits the batch of a file that was written for another number of ranks: micro_batch_size stays if these
/// ranks can each have whole micro-batches.
void cut_again(Table& train, std::int64_t batch, std::int64_t ranks) {
  train.erase("accumulation");
  const auto micro = *at_path<std::int64_t>(train, "micro_batch_size");
  if (batch % (micro * ranks) != 0 && batch % ranks == 0) train.set("micro_batch_size", Value(batch / ranks));
}

}  // namespace

void solve_batch(Table& train, const Origin& at, std::int64_t ranks, std::int64_t written_for,
                 const std::vector<std::int64_t>& shares, Findings& findings) {
  const auto get = [&](const char* key) { return number_of(train, key); };
  const auto place = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (const Value* value = train.find(key)) return value->key_origin;
    return at;
  };
  if (train.contains("batch_size") && train.contains("global_batch_size")) {
    findings.error("E207", place({"global_batch_size"}),
                   "batch_size and global_batch_size are two names of the same number",
                   "drop one of the two");
    return;
  }
  if (ranks > 1 && std::ssize(shares) == ranks) return cut_by_shares(train, shares, at, findings);
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const std::optional<std::int64_t> given = get("batch_size") ? get("batch_size") : get("global_batch_size");
  if (written_for != ranks && given && get("micro_batch_size")) cut_again(train, *given, ranks);
  std::optional<std::int64_t> global = given, micro = get("micro_batch_size");
  const std::optional<std::int64_t> steps = get("accumulation");
  const Origin global_at = place({"batch_size", "global_batch_size"});
  if (!global && !micro) {
    findings.error("E108", at, "[data.train] needs `batch_size`: samples an optimizer step",
                   "batch_size = <integer>, e.g. 64");
    return;
  }
  if (!global) global = *micro * steps.value_or(1) * ranks;
  if (micro && *micro > *global) {
    findings.error("E205", place({"micro_batch_size"}),
                   "micro_batch_size " + number(*micro) + " is larger than the batch of " + number(*global),
                   "a batch is made of whole micro-batches: at most " + number(*global));
    return;
  }
  const std::string of_ranks = ranks > 1 ? " x ranks " + number(ranks) : "";
  if (micro && steps && *micro * *steps * ranks != *global) {
    findings.error(
        "E207", global_at,
        "batch sizes contradict: global " + number(*global) + " != micro " + number(*micro) +
            " x accumulation " + number(*steps) + of_ranks + " (= " + number(*micro * *steps * ranks) + ")",
        "drop one of the three, or set data.train.batch_size = " + number(*micro * *steps * ranks));
    return;
  }
  const std::int64_t part = (micro ? *micro : steps.value_or(1)) * ranks;
  if (*global % part != 0) {
    findings.error("E207", global_at,
                   "batch sizes contradict: global " + number(*global) + " is not a multiple of " +
                       (micro ? "micro " : "accumulation ") + number(part / ranks) + of_ranks,
                   "set data.train.batch_size = " + number((*global / part + 1) * part) +
                       (*global > part ? " or " + number(*global / part * part) : ""));
    return;
  }
  if (!micro) micro = *global / part;
  train.erase("global_batch_size");
  for (const auto& [key, value] : {std::pair("batch_size", *global),
                                   {"micro_batch_size", *micro},
                                   {"accumulation", *global / *micro / ranks}})
    if (at_path<std::int64_t>(train, key) == nullptr) train.set(key, Value(value));
}

void check_between_keys(const Table& resolved, int local_ranks, Findings& findings) {
  shares_of_ranks(resolved, findings);
  device_and_precision(resolved, local_ranks, findings);
  sampling(resolved, findings);
  parts_of_data(resolved, findings);
  evaluation(resolved, findings);
  best_weights(resolved, findings);
  warm_up(resolved, findings);
  output(resolved, findings);
  resuming(resolved, findings);
}

}  // namespace trainyard::config
