// Plans on which rented machines a run is best trained: it profiles the run on this machine, predicts steps on
// clusters of a catalogue, and chooses one under limits of time, cost and throughput. After Luo, West, Patel,
// Krishnamurthy and Ceze, "SRIFTY: Swift and Thrifty Distributed Neural Network Training on the Cloud", MLSys 2022.
#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/dataset.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

#include "catalogue.hpp"
#include "lib/fnv1a.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"
#include "measure.hpp"
#include "planner.hpp"
#include "report.hpp"

template <>
struct trainyard::Words<srifty::Objective> {
  static constexpr std::string_view words[] = {"min_cost", "min_time", "min_cost_time"};
};

namespace {

using namespace trainyard;
using namespace srifty;

class Srifty final : public Tool {
 public:
  struct Options {
    std::string catalogue;
    std::vector<std::string> profiles, links;
    // What is measured
    std::string device = "cpu";
    std::int64_t steps = 20, repeats = 20;
    std::vector<std::int64_t> batches;
    // The job
    std::int64_t batch = 0;
    double epochs = 1.0;
    Objective objective = Objective::min_cost;
    double quantile = 0.5;
    std::optional<double> max_hours, max_cost, min_throughput;
    std::vector<std::string> regions;
    std::int64_t max_machines = 8;
    bool allow_heterogeneous = false, allow_spot = false;
    std::optional<double> spot_rate_per_hour;
    double checkpoint_seconds = 30.0, restart_seconds = 180.0, startup_seconds = 0.0;
    double latency_us = 50.0;
    std::vector<double> bucket_mb = {1.0, 4.0, 25.0};
    std::int64_t max_age_days = 90, show = 20;
  };
  static void describe(Manifest<Options>& m);
  explicit Srifty(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override { return options_.catalogue.empty() ? profile(shop) : plan(shop); }

 private:
  Report profile(Workshop& shop);
  Report plan(Workshop& shop);

  Job job_of(Workshop& shop) const;
  std::vector<Profile> profiles_for(Network& network) const;
  void add_provenance(Report& report, const Catalogue& catalogue, const std::vector<Profile>& profiles,
                      const std::vector<Links>& links);
  void warn_if_old(Array& warnings, const std::string& what, const std::string& as_of);
  void add_choice(Report& report, const Plan& plan, const Job& job, const Catalogue& catalogue,
                  Workshop& shop) const;

  static std::string content_of(const std::string& path) {
    std::optional<std::string> text = lib::read_file(path);
    if (!text) throw DataError(path + ": cannot be read");
    return *std::move(text);
  }
  static void write(const std::string& path, const std::string& text) {
    lib::NewFile made(path);
    std::ofstream file(made.temporary(), std::ios::binary);
    file << text;
    file.close();
    if (!file || made.put_in_place()) throw DataError(path + ": cannot be written");
  }

  Options options_;
};

void Srifty::describe(Manifest<Options>& m) {
  m.name("srifty").version("1.0.0").summary(
      "Predicts and prices a training on clusters of rented machines, and chooses one.");
  m.needs("executor.type = eager").needs("trainer.precision = fp32").needs("rows");
  m.option(
       "catalogue", &Options::catalogue,
       "CSV file of machines with prices, date and source; empty: profiles this machine instead of planning")
      .file();
  m.option("profiles", &Options::profiles, "files that such a profiling wrote, one a device").file();
  m.option("links", &Options::links, "files of measured sums, by the name in the catalogue's column link")
      .file();
  m.option("device", &Options::device,
           "name of this machine's device in the profile, as the catalogue's column accelerator has it");
  m.option("steps", &Options::steps,
           "training steps that are timed, and undone; fewer where the run has no more")
      .min(1);
  m.option("repeats", &Options::repeats, "passes of each batch size that are timed").min(1);
  m.option("batches", &Options::batches,
           "sizes of micro-batches to time; empty: an eighth of the run's to twice it")
      .min(1);
  m.option("batch", &Options::batch, "samples a step of all ranks together; 0: the run's micro-batch").min(0);
  m.option("epochs", &Options::epochs, "length of the training, in passes over its data").above(0);
  m.option("objective", &Options::objective, "what is made least; min_cost_time: their product");
  m.option("quantile", &Options::quantile, "of the predicted step, at which time and cost are judged")
      .range(0.5, 0.9);
  m.option("max_hours", &Options::max_hours, "longest training").above(0);
  m.option("max_cost", &Options::max_cost, "dearest training, in USD").above(0);
  m.option("min_throughput", &Options::min_throughput, "samples a second").above(0);
  m.option("regions", &Options::regions, "regions of the catalogue that may be used; empty: all");
  m.option("max_machines", &Options::max_machines, "most machines of a cluster").range(1, 1024);
  m.option("allow_heterogeneous", &Options::allow_heterogeneous, "clusters of two types of machines, too");
  m.option("allow_spot", &Options::allow_spot, "machines on the spot market, too");
  m.option("spot_rate_per_hour", &Options::spot_rate_per_hour,
           "revocations of a spot machine an hour: an assumption of yours; required with allow_spot")
      .above(0);
  m.option("checkpoint_seconds", &Options::checkpoint_seconds, "that a checkpoint stops the training for")
      .above(0);
  m.option("restart_seconds", &Options::restart_seconds, "from a revocation until all ranks train again")
      .min(0);
  m.option("startup_seconds", &Options::startup_seconds, "that are paid before the first step").min(0);
  m.option("latency_us", &Options::latency_us, "microseconds a message, where links were not measured")
      .min(0);
  m.option("bucket_mb", &Options::bucket_mb, "MiB of a bucket of gradients, sizes to choose from");
  m.option("max_age_days", &Options::max_age_days, "days after which prices and profiles are warned of")
      .min(0);
  m.option("show", &Options::show, "rows of the table, the best first; 0: all. candidates.csv has all")
      .min(0);
}

// Profiling

Report Srifty::profile(Workshop& shop) {
  if (host().run().device != "cpu")
    throw ConfigError("profiles are measured on the processor, and the run is on " + host().run().device +
                      ": set run.device = \"cpu\", or import a profile that was measured there");
  if (options_.device.empty() || options_.device.find('/') != std::string::npos)
    throw ConfigError("device is \"" + options_.device + "\": expected a name without a slash");
  Profile profile =
      measure(shop, {options_.steps, options_.repeats, options_.batches}, host().random("input"));
  if (profile.batches.size() < 2 || profile.steps.empty()) {
    if (shop.stopping()) return {};
    throw ConfigError("the training data has too few samples for two batch sizes: name some with batches");
  }
  profile.device = options_.device;
  profile.as_of = today();
  profile.source =
      "measured by trainyard srifty on this device" + std::string(shop.stopping() ? ", interrupted" : "");
  const std::string path = shop.folder() + "/" + options_.device + ".profile.json";
  write(path, profile_text(profile));

  Report report;
  report.facts = {{"profile", path},
                  {"device", profile.device},
                  {"model", profile.model},
                  {"measured", profile.as_of},
                  {"gradients, bytes", profile.gradient_bytes()},
                  {"activations of a sample, bytes", profile.sample_bytes},
                  {"input of a sample, ms", 1e3 * profile.input},
                  {"rest of a step, ms", 1e3 * profile.rest},
                  {"slowest step / median", profile.steps.back()}};
  report.columns = {"samples", "forward ms", "backward ms", "spread"};
  for (const BatchProfile& each : profile.batches)
    report.rows.push_back({each.samples, 1e3 * each.forward, 1e3 * each.backward, each.spread});
  return report;
}

// Planning

Job Srifty::job_of(Workshop& shop) const {
  if (options_.allow_spot && !options_.spot_rate_per_hour)
    throw ConfigError(
        "allow_spot needs spot_rate_per_hour, how often a spot machine is taken away: nobody publishes it, "
        "so "
        "that it is an assumption of yours, as 0.05");
  Job job;
  job.batch = options_.batch > 0 ? options_.batch : shop.batches("train", 1).front().size();
  job.samples = options_.epochs * static_cast<double>(shop.dataset("train").size());
  job.startup = options_.startup_seconds;
  job.objective = options_.objective;
  job.quantile = options_.quantile;
  if (options_.max_hours) job.max_seconds = 3600.0 * *options_.max_hours;
  job.max_cost = options_.max_cost;
  job.min_throughput = options_.min_throughput;
  job.regions = options_.regions;
  job.max_machines = static_cast<int>(options_.max_machines);
  job.allow_spot = options_.allow_spot;
  job.allow_mixed = options_.allow_heterogeneous;
  job.spot = {options_.spot_rate_per_hour.value_or(0.0), options_.checkpoint_seconds,
              options_.restart_seconds};
  job.latency = options_.latency_us * 1e-6;
  job.has_checkpointer = shop.config().find("checkpoint") != nullptr;
  for (const double each : options_.bucket_mb) {
    if (!(each > 0.0) || each > 4096.0)
      throw ConfigError("bucket_mb has " + lib::shortest(each) +
                        ": expected more than 0 and at most 4096 MiB");
    job.buckets.push_back(each * mebibyte);
  }
  if (job.buckets.empty()) throw ConfigError("bucket_mb is empty: expected a size, as [25.0]");
  return job;
}

std::vector<Profile> Srifty::profiles_for(Network& network) const {
  if (options_.profiles.empty())
    throw ConfigError(
        "a plan needs profiles: run this tool without a catalogue on each kind of device, and give the files "
        "as "
        "profiles");
  const std::string model = model_digest(network);
  std::vector<Profile> profiles;
  for (const std::string& path : options_.profiles) {
    profiles.push_back(read_profile(content_of(path), path));
    const Profile& last = profiles.back();
    if (last.model != model)
      throw ConfigError(path + " is of another model (" + last.model + "; this run's is " + model +
                        "): profile this run on " + last.device);
    for (std::size_t i = 0; i + 1 < profiles.size(); ++i)
      if (profiles[i].device == last.device)
        throw ConfigError(profiles[i].path + " and " + path + " are both of " + last.device + ": give one");
  }
  return profiles;
}

void Srifty::warn_if_old(Array& warnings, const std::string& what, const std::string& as_of) {
  const std::int64_t age = days_between(as_of, today()).value_or(0);
  if (age <= options_.max_age_days) return;
  const std::string text = what + " is of " + as_of + ", " + std::to_string(age) +
                           " days old: prices and machines change, so look up new ones";
  host().log(LogLevel::warning, text);
  warnings.emplace_back(text);
}

void Srifty::add_provenance(Report& report, const Catalogue& catalogue, const std::vector<Profile>& profiles,
                            const std::vector<Links>& links) {
  std::vector<std::pair<std::string, std::string>> origins;  // of the rows: date, source
  for (const Machine& each : catalogue.machines)
    if (const std::pair origin(each.as_of, each.source);
        std::find(origins.begin(), origins.end(), origin) == origins.end())
      origins.push_back(origin);
  Array prices, measured, warnings;
  for (const auto& [as_of, source] : origins) {
    prices.emplace_back(as_of + ", " + source);
    warn_if_old(warnings, catalogue.path + " (" + source + ")", as_of);
  }
  for (const Profile& each : profiles) {
    measured.emplace_back((each.estimated ? "estimated: " : "") + each.device + ": " + each.as_of + ", " +
                          each.source);
    warn_if_old(warnings, each.path, each.as_of);
  }
  for (const Links& each : links) {
    measured.emplace_back("links " + each.name + ": " + each.as_of + ", " + each.source);
    warn_if_old(warnings, each.path, each.as_of);
  }
  report.facts.emplace_back("prices", std::move(prices));
  report.facts.emplace_back("profiles", std::move(measured));
  report.facts.emplace_back("warnings", std::move(warnings));
}

void Srifty::add_choice(Report& report, const Plan& plan, const Job& job, const Catalogue& catalogue,
                        Workshop& shop) const {
  if (!plan.chosen) {
    report.code = ExitCode::config;
    report.facts.emplace_back("chosen", "none: no cluster keeps all limits");
    Array nearest;
    for (const Relaxation& each : plan.relaxations)
      nearest.emplace_back(relaxation_text(each, plan, catalogue));
    report.facts.emplace_back("nearest", std::move(nearest));
    return;
  }
  const Candidate& best = plan.candidates[*plan.chosen];
  report.facts.emplace_back("chosen", cluster_text(best, catalogue));
  report.facts.emplace_back("step, ms", 1e3 * best.p50);
  report.facts.emplace_back("step at 90 %, ms", 1e3 * best.p90);
  report.facts.emplace_back("hours", best.seconds / 3600.0);
  report.facts.emplace_back("cost, USD", best.cost);
  report.facts.emplace_back("bucket_cap_mb", best.bucket / mebibyte);
  report.facts.emplace_back("spot overhead", best.overhead);
  if (const int spot = best.spot_machines(); spot > 0) {
    const double work = (best.seconds - job.startup) / (1.0 + best.overhead);
    std::vector<double> lost;
    for (std::uint64_t seed = 0; seed < 100; ++seed)
      lost.push_back(simulated_overhead(spot, job.spot, work, seed));
    std::sort(lost.begin(), lost.end());
    report.facts.emplace_back("spot overhead, mean of 100 runs played through",
                              std::accumulate(lost.begin(), lost.end(), 0.0) / 100.0);
    report.facts.emplace_back("spot overhead at 90 % of these", quantile_of(lost, 0.9));
  }
  const std::string path = shop.folder() + "/plan.toml";
  write(path, run_file_text(best, job, catalogue));
  report.facts.emplace_back("plan", path);
  report.facts.emplace_back("launch", launch_text(best, catalogue, path));
}

Report Srifty::plan(Workshop& shop) {
  const Job job = job_of(shop);
  const std::string text = content_of(options_.catalogue);
  const Catalogue catalogue = read_catalogue(text, options_.catalogue);
  const std::vector<Profile> profiles = profiles_for(shop.network());
  std::vector<Links> links;
  for (const std::string& path : options_.links) links.push_back(read_links(content_of(path), path));

  Report report;
  report.facts = {{"catalogue", options_.catalogue}, {"catalogue digest", lib::Fnv1a().update(text).hex()}};
  add_provenance(report, catalogue, profiles, links);
  const Planner planner(job, catalogue, profiles, links);
  std::size_t clusters = 0;
  const Plan plan = planner.plan([&](std::size_t done, std::size_t total) {
    clusters = total;
    if (done % 256 == 0) shop.progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
    return shop.stopping();
  });
  const bool is_any_usable = std::any_of(plan.candidates.begin(), plan.candidates.end(),
                                         [](const Candidate& each) { return each.usable(); });
  const bool is_cut = plan.candidates.size() < clusters;
  if (is_cut && !is_any_usable) return {};  // what earlier plans wrote stays
  const std::string log = shop.folder() + "/candidates.csv";
  write(log, log_text(plan, catalogue));
  if (is_cut)
    host().log(LogLevel::warning,
               "interrupted: " + log + " has the first " + std::to_string(plan.candidates.size()) + " of " +
                   std::to_string(clusters) + " clusters, and a plan is the best of these");
  if (!is_any_usable)
    throw ConfigError("no machine of " + options_.catalogue + " can train this job; of the first: " +
                      plan.candidates.front().unusable + "; of all: " + log);
  report.facts.emplace_back("batch", job.batch);
  report.facts.emplace_back("samples", job.samples);
  report.facts.emplace_back("clusters", static_cast<std::int64_t>(plan.candidates.size()));
  report.facts.emplace_back("log", log);
  add_choice(report, plan, job, catalogue, shop);
  add_table(report, plan, job, catalogue, options_.show);
  return report;
}

}  // namespace

TRAINYARD_PLUGIN(Srifty)
