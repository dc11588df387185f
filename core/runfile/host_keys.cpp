#include "core/runfile/host_keys.hpp"

namespace trainyard::config {
namespace {

constexpr double largest_batch = 1 << 30;

}  // namespace

void FileKeys::describe(Keys<FileKeys>& keys) {
  keys.key("schema", &FileKeys::schema, "version of the run file's keys").required().range(1, 1);
  keys.key("extends", &FileKeys::extends, "files that this one builds on, relative to it").no_default();
}

void EntryKeys::describe(Keys<EntryKeys>& keys) {
  keys.key("id", &EntryKeys::id, "name of the entry, unique in the list; its type without one").no_default();
}

void RunKeys::describe(Keys<RunKeys>& keys) {
  keys.key("name", &RunKeys::name, "name of the run; ${run.name}; the file's name without one").no_default();
  keys.key("seed", &RunKeys::seed, "of every random stream").on_resume(ChangeClass::refused);
  keys.key("device", &RunKeys::device,
           "cpu, cuda or cuda:N; of several ranks on a machine cuda: each has a GPU")
      .on_resume(ChangeClass::journalled);
  keys.key("deterministic", &RunKeys::deterministic, "warn of, or refuse, what may differ between runs")
      .on_resume(ChangeClass::journalled);
  keys.key("output_dir", &RunKeys::output_dir, "folder of the run, relative to the working directory")
      .also({"output", "out_dir", "dir", "log_dir"});
  keys.key("resume", &RunKeys::resume,
           "never; auto: go on from the newest checkpoint of output_dir where there is one; must: the same, "
           "and refuse to begin anew; or the path of a run or a checkpoint to begin from")
      .also({"autoresume", "resume_from_checkpoint", "load_path"});
  keys.key("load", &RunKeys::load, "what resume takes from a path: the whole state, or the weights alone");
  keys.key("load_match", &RunKeys::load_match,
           "patterns of the parameters that load = \"weights\" takes, * and ? allowed; all without one")
      .no_default();
  keys.key("data", &RunKeys::data, "folder of the data; ${run.data}; TRAINYARD_DATA without one");
}

void ThreadKeys::describe(Keys<ThreadKeys>& keys) {
  keys.key("intra_op", &ThreadKeys::intra_op, "within an operation; 0: LibTorch's choice").range(0, 4096);
  keys.key("inter_op", &ThreadKeys::inter_op, "between operations; 0: LibTorch's choice").range(0, 4096);
  keys.key("flush_denormals", &ThreadKeys::flush_denormals,
           "numbers below 1.2e-38 count as 0; false: as in IEEE 754, which takes many times as long");
}

void PluginKeys::describe(Keys<PluginKeys>& keys) {
  keys.key("paths", &PluginKeys::paths, "folders to look in, relative to the file").no_default();
}

void DataKeys::describe(Keys<DataKeys>& keys) {
  keys.key("workers", &DataKeys::workers, "loader threads; 0: the loop's own")
      .on_resume(ChangeClass::allowed)
      .also({"num_workers"})
      .range(0, 256);
  keys.key("prefetch", &DataKeys::prefetch, "batches ready ahead, per worker")
      .on_resume(ChangeClass::allowed)
      .range(1, 1024);
}

constexpr const char* take_help =
    "the part of the samples, from which alone a dataset learns: \"first 1000\", \"last 10%\", \"fold 0 of "
    "5\", \"folds 0 to 2 of 5\" (the same folds in every run), or \"all but\" one of these; all without one";

void BatchKeys::describe(Keys<BatchKeys>& keys) {
  const auto size = [&](const char* name, std::int64_t BatchKeys::*member, const char* help) {
    KeyRef<std::int64_t> key = keys.key(name, member, help);
    key.no_default().range(1, largest_batch);
    return key;
  };
  size("batch_size", &BatchKeys::batch_size, "samples a step: micro_batch_size x accumulation x ranks")
      .also({"batch", "bs", "batchsize"});
  size("global_batch_size", &BatchKeys::global_batch_size, "the same as batch_size");
  // The split of the same batch into micro-batches differs with the number of ranks.
  size("micro_batch_size", &BatchKeys::micro_batch_size,
       "samples a forward pass; without one the part of batch_size that a rank has")
      .on_resume(ChangeClass::journalled);
  size("accumulation", &BatchKeys::accumulation, "micro-batches a step and rank")
      .on_resume(ChangeClass::journalled)
      .also({"gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches"});
  keys.key("shuffle", &BatchKeys::shuffle, "another order each epoch");
  keys.key("drop_last", &BatchKeys::drop_last, "leave out a last batch that is not full");
  keys.key("take", &BatchKeys::take, take_help).also({"subset", "limit_train_batches", "max_samples"});
}

void EvaluationKeys::describe(Keys<EvaluationKeys>& keys) {
  keys.key("batch_size", &EvaluationKeys::batch_size,
           "samples a forward pass; the training's micro_batch_size without one")
      .no_default()
      .also({"batch", "bs", "batchsize"})
      .range(1, largest_batch);
  keys.key("take", &EvaluationKeys::take, take_help).also({"subset", "limit_val_batches", "max_samples"});
}

void TrainerKeys::describe(Keys<TrainerKeys>& keys) {
  keys.key("max_duration", &TrainerKeys::max_duration, "length of the training")
      .in(Units::length)
      .also({"epochs", "max_epochs", "num_epochs", "max_steps", "steps"})
      .required()
      .above(0);
  keys.key("max_wall_time", &TrainerKeys::max_wall_time, "the training ends early when it is up")
      .on_resume(ChangeClass::allowed)
      .in(Units::time)
      .above(0);
  keys.key("eval_interval", &TrainerKeys::eval_interval,
           "time between evaluations; at the end only without one")
      .in(Units::progress)
      .also({"eval_every", "val_interval", "check_val_every_n_epoch"})
      .above(0);
  keys.key("precision", &TrainerKeys::precision,
           "arithmetic of forward and backward, on weights in fp32; fp64: all of the run, weights too")
      .on_resume(ChangeClass::refused)
      .also({"amp", "dtype"});
  keys.key("restore_best", &TrainerKeys::restore_best,
           "end with the weights that checkpoint.keep_best holds best, in place of the last")
      .on_resume(ChangeClass::allowed)
      .also({"restore_best_weights", "load_best_model_at_end"});
}

void GradClip::describe(Keys<GradClip>& keys) {
  keys.key("type", &GradClip::type, "of the norm of the whole gradient, or of each value");
  keys.key("max", &GradClip::max, "the bound").also({"max_norm", "value"}).required().above(0);
}

void DistributedKeys::describe(Keys<DistributedKeys>& keys) {
  keys.key(
          "ranks", &DistributedKeys::ranks,
          "that micro_batch_size and accumulation are written for; those that train, by default. torchrun or "
          "--ranks says how many train")
      .no_default()
      .range(1, 1 << 20);
  keys.key("backend", &DistributedKeys::backend,
           "of what ranks exchange in the memory of the CPU; on GPUs they exchange by NCCL");
  keys.key("bucket_cap_mb", &DistributedKeys::bucket_cap_mb,
           "MiB of gradients that are summed in one go, while backward goes on")
      .above(0)
      .max(4096);
  keys.key("timeout", &DistributedKeys::timeout, "for a rank that gives no sign of life")
      .in(Units::time)
      .above(0);
  keys.key("shares", &DistributedKeys::shares,
           "of each rank in a batch, in proportion: [2, 1] where the first is twice as fast; empty: the same")
      .on_resume(ChangeClass::journalled)
      .range(1, largest_batch);
}

void GuardKeys::describe(Keys<GuardKeys>& keys) {
  keys.key("deadline", &GuardKeys::deadline, "for one call into a plugin; 0s: none").in(Units::time).min(0);
  keys.key(
      "on_deadline", &GuardKeys::on_deadline,
      "when a call takes longer: it is told; or told, and the run ends when 30 times as long has passed or a "
      "signal asks it to; or the run ends at once");
  keys.key("nan", &GuardKeys::nan,
           "when a hook writes a value that is not finite: the run ends, goes on without the plugin, or goes "
           "back to the last checkpoint; weights that are not finite at a checkpoint or at the end have no "
           "hook to blame and end the run; off: nobody looks");
  keys.key("look_for_writes", &GuardKeys::look_for_writes,
           "between steps at which writes that hooks did not declare are looked for; 0ba: never")
      .in(Units::progress)
      .min(0);
  keys.key("strict_state", &GuardKeys::strict_state,
           "find all of them, contexts that are kept, and state that is not saved; slow");
}

void LoggingKeys::describe(Keys<LoggingKeys>& keys) {
  keys.key("interval", &LoggingKeys::interval, "between records of training metrics")
      .in(Units::progress)
      .above(0);
}

void HookKeys::describe(Keys<HookKeys>& keys) {
  keys.key("every", &HookKeys::every, "how often it is called, instead of its own cadence")
      .duration()
      .no_default()
      .in(Units::progress)
      .above(0);
  keys.key("priority", &HookKeys::priority, "low first; instead of its own, 50 by default").range(0, 100);
  keys.key("before", &HookKeys::before, "ids or plugins whose hooks come later").no_default();
  keys.key("after", &HookKeys::after, "ids or plugins whose hooks come first").no_default();
  keys.key("on_error", &HookKeys::on_error, "when it throws: the run ends, or goes on without it");
}

void SwapKeys::describe(Keys<SwapKeys>& keys) {
  keys.key("at", &SwapKeys::at, "when, at the first safe point that is not before it")
      .in(Units::progress)
      .required();
  keys.key("slot", &SwapKeys::slot, "the slot: optimizer, model.dropout, hooks.ID").required();
  keys.key("type", &SwapKeys::type,
           "the plugin that takes over; the same one, with other options, without it")
      .no_default();
  keys.key("change", &SwapKeys::change,
           "replace the plugin of the slot; or add an entry at the end of a list, or remove it: of hooks, "
           "rules, metrics, logging.sinks")
      .one_of({"replace", "add", "remove"});
  keys.key(
      "carry", &SwapKeys::carry,
      "what takes over from the old one: its state, nothing, or of a schedule: restart (begins anew over "
      "the rest of the run), splice (scaled such that the factor does not jump)");
  keys.key("watch", &SwapKeys::watch,
           "length for which the run goes back to before the swap if anything fails")
      .in(Units::progress);
}

}  // namespace trainyard::config
