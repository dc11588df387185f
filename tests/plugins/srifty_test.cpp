// srifty: sums, steps, revocations, shares and the choice, against the card's figures, brute force and draws.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "plugins/tool/srifty/catalogue.hpp"
#include "plugins/tool/srifty/communication.hpp"
#include "plugins/tool/srifty/iteration.hpp"
#include "plugins/tool/srifty/planner.hpp"
#include "plugins/tool/srifty/profile.hpp"
#include "plugins/tool/srifty/report.hpp"
#include "plugins/tool/srifty/split.hpp"
#include "plugins/tool/srifty/spot.hpp"

namespace srifty_test {

using namespace srifty;
using Catch::Contains;
using Catch::WithinAbs;
using Catch::WithinRel;

namespace {

const char* const header = "type,accelerator,count,price_usd_h,net_gbit_s,spot_usd_h,region\n";
const std::string origin = "# as_of: 2026-11-01\n# source: a test\n";

std::string refusal_of(const std::string& text) {
  try {
    read_catalogue(text, "prices.csv");
  } catch (const trainyard::DataError& error) {
    return error.what();
  }
  return "taken";
}

Profile profile_of(const std::string& device, double forward, double backward) {
  Profile made;
  made.device = device;
  made.as_of = "2026-11-01";
  made.source = "a test";
  made.model = "0123";
  for (const std::int64_t samples : {1, 2, 4, 8, 16})
    made.batches.push_back({samples, 0.001 + forward * static_cast<double>(samples),
                            0.002 + backward * static_cast<double>(samples), 0.0});
  for (const double bytes : {4e5, 6e6, 2e4, 3e6, 1e3, 9e5})
    made.gradients.push_back({bytes, 1.0 - 0.1 * static_cast<double>(made.gradients.size())});
  made.steps = {1.0};
  made.rest = 0.003;
  made.weight_bytes = 10'321'000;
  return made;
}

double played_through(const std::vector<Bucket>& buckets, const std::vector<double>& seconds) {
  std::size_t next = 0;
  return end_of_exchanges(buckets, [&](double) { return seconds[next++]; });
}

}  // namespace

TEST_CASE("a ring's sum takes as long as the card says", "[srifty]") {
  CHECK_THAT(ring_seconds(4, 100e6, {50e-6, 10e9 / 8}), WithinAbs(0.1203, 1e-9));
  CHECK_THAT(ring_seconds(16, 25e6, {50e-6, 25e9 / 8}), WithinAbs(0.0165, 1e-9));
  CHECK(ring_seconds(1, 25e6, {50e-6, 25e9 / 8}) == 0.0);
}

TEST_CASE("exchanges begin when their bucket is ready and the one before is done", "[srifty]") {
  const std::vector<Bucket> four = {{25e6, 0.04}, {25e6, 0.06}, {25e6, 0.08}, {25e6, 0.1}};
  const Link link{50e-6, 10e9 / 8};
  // 30.3 ms each.
  for (std::size_t count = 1; count <= 4; ++count)
    CHECK_THAT(end_of_exchanges(std::span(four).first(count),
                                [&](double bytes) { return ring_seconds(4, bytes, link); }),
               WithinAbs(0.04 + 0.0303 * static_cast<double>(count), 1e-9));
  CHECK_THAT(played_through(four, {0.015, 0.015, 0.015, 0.015}), WithinAbs(0.115, 1e-9));
  CHECK_THAT(played_through({{1, 0.01}, {1, 0.05}, {1, 0.09}, {1, 0.1}}, {0.04, 0.04, 0.04, 0.005}),
             WithinAbs(0.135, 1e-9));
}

TEST_CASE("buckets are cut as the host cuts them", "[srifty]") {
  // In network order; 1 MiB closes the first bucket, 4 MiB leaves by itself, the last waits for backward's end.
  const std::vector<Gradient> gradients = {{0.5 * mebibyte, 0.95},
                                           {5.0 * mebibyte, 0.8},
                                           {0.75 * mebibyte, 0.6},
                                           {0.5 * mebibyte, 0.4},
                                           {0.25 * mebibyte, 0.2}};
  const std::vector<Bucket> buckets = cut_into_buckets(gradients, 25 * mebibyte);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].bytes == 0.75 * mebibyte);
  CHECK(buckets[0].ready == 0.4);
  CHECK(buckets[1].bytes == 5.0 * mebibyte);
  CHECK(buckets[1].ready == 0.8);
  CHECK(buckets[2].bytes == 1.25 * mebibyte);
  CHECK(buckets[2].ready == 1.0);
  const auto cut = [](std::vector<Gradient> gradients, double cap) {
    for (Gradient& each : gradients) each.bytes *= mebibyte;
    std::vector<std::pair<double, double>> sizes;
    for (const Bucket& each : cut_into_buckets(gradients, cap * mebibyte))
      sizes.emplace_back(each.bytes / mebibyte, each.ready);
    return sizes;
  };
  using Sizes = std::vector<std::pair<double, double>>;
  // A bucket is ready with the latest of its gradients, wherever that one stands.
  CHECK((cut({{2, 0.9}, {0.25, 0.2}, {0.5, 0.6}}, 25) == Sizes{{0.75, 0.6}, {2, 1}}));
  // What is larger than the first bucket fills it by itself, and what is smaller than a bucket is in none larger.
  CHECK((cut({{0.25, 0.9}, {2, 0.2}}, 25) == Sizes{{2, 0.2}, {0.25, 1}}));
  CHECK((cut({{0.25, 0.9}, {0.25, 0.6}, {0.25, 0.2}}, 0.5) == Sizes{{0.5, 0.6}, {0.25, 1}}));
}

TEST_CASE("a step overlaps sums with backward, waits for the slowest rank and for data", "[srifty]") {
  const std::vector<Bucket> shares = {{1e6, 0.5}, {1e6, 1.0}};
  const auto seconds = [](double) { return 0.02; };
  const StepParts rank{.forward = 0.02, .backward = 0.04, .rest = 0.003};
  // First sum 40 to 60 ms, second 60 to 80.
  CHECK_THAT(step_seconds(std::vector{rank}, shares, seconds), WithinAbs(0.083, 1e-12));
  StepParts slow = rank;
  slow.backward = 0.06;  // first sum 50 to 70, second 80 to 100
  CHECK_THAT(step_seconds(std::vector{rank, slow}, shares, seconds), WithinAbs(0.103, 1e-12));
  CHECK_THAT(step_seconds(std::vector{slow, rank}, shares, seconds), WithinAbs(0.103, 1e-12));
  StepParts twice = rank;
  twice.micros = 2;  // gradients leave in the second micro-batch alone
  CHECK_THAT(step_seconds(std::vector{twice}, shares, seconds), WithinAbs(0.143, 1e-12));
  StepParts starved = rank;
  starved.input = 0.2;
  CHECK(step_seconds(std::vector{starved, rank}, shares, seconds) == 0.2);
  StepParts idle = rank;
  idle.rest = 0.001;
  CHECK_THAT(step_seconds(std::vector{rank, idle}, shares, seconds), WithinAbs(0.083, 1e-12));
}

TEST_CASE("revocations cost what the card says, and what draws say", "[srifty]") {
  const SpotScenario rare{0.05, 30, 180}, often{0.2, 30, 180};
  CHECK_THAT(best_interval(1, rare), WithinAbs(2078.5, 0.05));
  CHECK_THAT(expected_overhead(1, rare), WithinAbs(0.03137, 5e-6));
  CHECK_THAT(best_interval(1, often), WithinAbs(1039.2, 0.05));
  CHECK_THAT(expected_overhead(1, often), WithinAbs(0.06774, 5e-6));
  CHECK(expected_overhead(0, often) == 0.0);
  // A revocation a second, and 180 s for a restart: that never ends.
  CHECK(std::isinf(simulated_overhead(1, {3600, 30, 180}, 1000, 7)));
  // 10^5 hours of work, as the card's own draws, which gave 3.19 % and 7.04 %.
  CHECK_THAT(simulated_overhead(1, rare, 3.6e8, 7), WithinRel(expected_overhead(1, rare), 0.05));
  CHECK_THAT(simulated_overhead(1, often, 3.6e8, 7), WithinRel(expected_overhead(1, often), 0.05));
  CHECK_THAT(simulated_overhead(1, often, 3.6e8, 7), WithinRel(0.0704, 0.03));
  // Where restarts are interrupted, too: M exp(R / M) (exp((tau + delta) / M) - 1) for each tau (Daly, FGCS 2006).
  const SpotScenario stormy{10, 30, 180};
  const double m = 360, tau = std::sqrt(2 * 30 * m);
  CHECK_THAT(simulated_overhead(1, stormy, 3.6e7, 7),
             WithinRel(m * std::exp(180 / m) * std::expm1((tau + 30) / m) / tau - 1, 0.02));
}

TEST_CASE("shares of a batch go by speed, in whole samples, within what a rank holds", "[srifty]") {
  const auto by_speed = [](std::size_t rank, double samples) { return samples / (rank == 0 ? 100.0 : 50.0); };
  CHECK((split_batch(150, 2, by_speed, {150, 150}) == std::vector<std::int64_t>{100, 50}));
  CHECK((split_batch(150, 2, by_speed, {80, 150}) == std::vector<std::int64_t>{80, 70}));
  CHECK(!split_batch(150, 2, by_speed, {80, 60}));
  CHECK((rounded_shares({1.2, 1.5, 1.3}, 4) == std::vector<std::int64_t>{1, 2, 1}));
  // Each rank has a sample, however slow it is; more ranks than samples share nothing.
  const auto crawling = [](std::size_t rank, double samples) { return samples * (rank == 0 ? 1.0 : 1000.0); };
  CHECK((split_batch(10, 3, crawling, {10, 10, 10}) == std::vector<std::int64_t>{8, 1, 1}));
  CHECK((split_batch(10, 3, crawling, {9, 10, 10}) == std::vector<std::int64_t>{8, 1, 1}));
  CHECK(!split_batch(1, 2, by_speed, {5, 5}));
  // With a constant cost the times of both ranks come as near as whole samples allow.
  const auto affine = [](std::size_t rank, double samples) {
    return rank == 0 ? 0.1 + samples / 100 : 0.5 + samples / 200;
  };
  const auto split = split_batch(100, 2, affine, {100, 100});
  REQUIRE(split);
  double best = 1e9;
  for (int first = 1; first < 100; ++first)
    best = std::min(best, std::max(affine(0, first), affine(1, 100 - first)));
  CHECK_THAT(
      std::max(affine(0, static_cast<double>((*split)[0])), affine(1, static_cast<double>((*split)[1]))),
      WithinRel(best, 0.02));
}

TEST_CASE("a line, a knee, and a ring are found again in times that they made", "[srifty]") {
  std::vector<BatchTimes::Point> knee;
  for (const double samples : {1., 2., 4., 8., 16., 32., 64., 128.})
    knee.push_back({samples, samples <= 8 ? 0.01 : 0.002 + 0.001 * samples});
  const BatchTimes two(knee);
  CHECK_THAT(two.seconds(3), WithinRel(0.01, 1e-6));
  CHECK_THAT(two.seconds(256), WithinRel(0.258, 1e-6));
  std::vector<BatchTimes::Point> jump;
  for (const auto& [samples, seconds] : knee) jump.push_back({samples, seconds + (samples > 8 ? 0.02 : 0.0)});
  CHECK_THAT(BatchTimes(jump).seconds(11), WithinRel(0.01, 1e-6));  // halfway to 16, in the logarithm
  CHECK_THAT(BatchTimes(jump).seconds(12), WithinRel(0.034, 1e-6));
  const BatchTimes one({{1, 0.011}, {2, 0.012}, {4, 0.014}, {8, 0.018}});
  CHECK_THAT(one.seconds(100), WithinRel(0.11, 1e-6));
  // A line whose times scatter by 3 % stays one, where the last two by themselves would be off by 7 %.
  std::vector<BatchTimes::Point> scattered;
  for (const double samples : {1., 2., 4., 8., 16., 32., 64., 128.})
    scattered.push_back({samples, samples * (scattered.size() % 2 == 0 ? 1.03 : 0.97)});
  CHECK_THAT(BatchTimes(scattered).seconds(512), WithinRel(512.0, 0.03));
  CHECK_THAT(BatchTimes({{4, 0.02}}).seconds(8), WithinRel(0.04, 1e-12));  // of a single size
  // Neither constant is below 0, and no other two such constants are nearer to the times.
  for (const std::vector<Observation>& times : {std::vector<Observation>{{1, 1, 0.5}, {1, 2, 2}, {1, 4, 9}},
                                                {{1, 1, 3}, {1, 2, 2}, {1, 4, 1}},
                                                {{1, 1, 2.1}, {1, 2, 2.9}, {1, 8, 9}}}) {
    const auto errors = [&](double constant, double slope) {
      double sum = 0.0;
      for (const Observation& each : times)
        sum += std::pow((constant * each.first + slope * each.second) / each.seconds - 1, 2);
      return sum;
    };
    const auto [constant, slope] = fit_two(times);
    CHECK(constant >= 0.0);
    CHECK(slope >= 0.0);
    double least = 1e9;
    for (double c = 0; c < 4; c += 0.01)
      for (double s = 0; s < 4; s += 0.01) least = std::min(least, errors(c, s));
    CHECK(errors(constant, slope) <= least + 1e-12);
  }
  std::vector<Exchange> sums;
  for (const double bytes : {1e4, 1e5, 1e6, 1e7})
    sums.push_back({bytes, ring_seconds(4, bytes, {2e-4, 1e8})});
  const Link link = fit_link(4, sums);
  CHECK_THAT(link.latency, WithinRel(2e-4, 1e-6));
  CHECK_THAT(link.bandwidth, WithinRel(1e8, 1e-6));
}

TEST_CASE("a curve of measured sums is monotone, linear between sizes and goes on at its last rate",
          "[srifty]") {
  const Curve curve({{1e6, 0.01}, {1e4, 0.002}, {1e5, 0.001}});
  CHECK_THAT(curve.seconds(1e4), WithinAbs(0.0015, 1e-12));  // pooled
  CHECK_THAT(curve.seconds(5.5e5), WithinAbs(0.00575, 1e-12));
  CHECK_THAT(curve.seconds(1.9e6), WithinAbs(0.0185, 1e-12));
  for (double bytes = 1e3; bytes < 1e8; bytes *= 1.1)
    CHECK(curve.seconds(bytes) <= curve.seconds(1.1 * bytes));
  // All three are pooled, as the last one is below the mean of the others.
  const Curve pooled({{1e4, 0.004}, {1e5, 0.006}, {1e6, 0.001}});
  for (const Exchange& each : pooled.points()) CHECK_THAT(each.seconds, WithinAbs(0.011 / 3, 1e-12));
  // Where one size was measured, the time goes with the bytes.
  CHECK_THAT(Curve({{1e6, 0.01}}).seconds(2e6), WithinAbs(0.02, 1e-12));
  CHECK_THAT(Curve({{1e6, 0.01}, {1e6, 0.02}}).seconds(2e6), WithinAbs(0.04, 1e-12));
}

TEST_CASE("catalogues: what is wrong is told with line and unit", "[srifty]") {
  const Catalogue read = read_catalogue(origin + header + "a,x,2,1.5,10,0,here\n", "prices.csv");
  REQUIRE(read.machines.size() == 1);
  CHECK((read.machines[0].price == 1.5));
  CHECK(!read.machines[0].spot_price);  // 0 is how public tables say that there is none
  CHECK(read.machines[0].network == 1.25e9);
  CHECK_THAT(refusal_of(""), Contains("has no rows"));
  CHECK_THAT(refusal_of(origin + header), Contains("has no rows"));
  CHECK_THAT(refusal_of(std::string(header) + "a,x,2,1.5,10,0,here\n"),
             Contains("prices.csv:2: has no date or no source"));
  CHECK_THAT(refusal_of(origin + "type,accelerator,count,price_usd_h,net_mbit_s\na,x,1,1,1\n"),
             Contains("net_mbit_s") && Contains("net_gbit_s"));
  CHECK_THAT(refusal_of(origin + header + "a,x,2,1.5,25000,,here\n"),
             Contains("prices.csv:4: net_gbit_s is 25000") && Contains("another unit"));
  CHECK_THAT(refusal_of(origin + header + "a,x,2,1.5 USD,10,,here\n"),
             Contains("price_usd_h is \"1.5 USD\""));
  CHECK_THAT(refusal_of(origin + header + "a,x,2,-1,10,,here\n"), Contains("below 0"));
  CHECK_THAT(refusal_of(origin + header + "a,x,2,1,10\n"), Contains("has 5 cells"));
  CHECK_THAT(refusal_of(origin + header + "a,x,0,1,10,,here\n"), Contains("count is 0"));
  CHECK_THAT(refusal_of(origin + header + "a,x,1,nan,10,,here\n"), Contains("expected a number"));
  CHECK_THAT(refusal_of("# as_of: 2026-13-01\n" + std::string(header)), Contains("expected a date"));
  CHECK_THAT(refusal_of(origin + header + "a,\"x\",1,1,10,,here\n"), Contains("has a quotation mark"));
  CHECK_THAT(refusal_of(origin + "type,accelerator,count,count,price_usd_h,net_gbit_s\n"),
             Contains("has the column \"count\" twice"));
  CHECK_THAT(refusal_of(origin + "type,accelerator,count,price_usd_h\n"),
             Contains("has no column net_gbit_s"));
  CHECK_THAT(refusal_of(origin + header + ",x,1,1,10,,here\n"), Contains("has no type or no accelerator"));
  CHECK_THAT(refusal_of(origin + header + "a,x,1.5,1,10,,here\n"), Contains("count is 1.5"));
  const std::string all =
      "type,accelerator,count,price_usd_h,net_gbit_s,gpu_mem_gib,intra_gbyte_s,link,zone,as_of,source\n";
  const Machine whole =
      read_catalogue(origin + all + "a,\tx ,2,1.5,10,2,3,eth,z1,2026-10-01,a letter\r\n", "prices.csv")
          .machines[0];
  CHECK(whole.accelerator == "x");
  CHECK(whole.memory_bytes == 2.0 * (1 << 30));
  CHECK(whole.inside == 3e9);
  CHECK((whole.link == "eth" && whole.zone == "z1" && whole.as_of == "2026-10-01" &&
         whole.source == "a letter"));
  const Machine bare = read_catalogue(origin + all + "a,x,2,1.5,10,,,,,,\n", "prices.csv").machines[0];
  CHECK((bare.memory_bytes == 0.0 && bare.as_of == "2026-11-01" && bare.source == "a test"));
  CHECK_THAT(refusal_of(origin + all + "a,x,2,1.5,10,,,,,soon,\n"),
             Contains("prices.csv:4: as_of is \"soon\""));
  CHECK(!days_between("2026/11/01", "2026/11/02"));
  CHECK((days_between("2026-02-27", "2026-03-01") == 2));
  CHECK(!days_between("2026-02-30", "2026-03-01"));
}

TEST_CASE("a profile is the same after it was written and read", "[srifty]") {
  const Profile made = profile_of("x", 0.01, 0.02);
  const std::string text = profile_text(made);
  CHECK(profile_text(read_profile(text, "x.json")) == text);
  const auto refusal = [](std::string text, const std::string& from, const std::string& to) {
    const auto place = text.find(from);
    REQUIRE(place != std::string::npos);
    text.replace(place, from.size(), to);
    try {
      read_profile(text, "x.json");
    } catch (const trainyard::DataError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK_THAT(refusal(text, "2026-11-01", "yesterday"), Contains("x.json: as_of is \"yesterday\""));
  CHECK_THAT(refusal(text, "\"rest_s\": 0.003", "\"rest_s\": \"3 ms\""),
             Contains("rest_s is \"3 ms\": expected seconds"));
  CHECK_THAT(refusal(text, "profile/1", "profile/9"), Contains("expected \"trainyard.profile/1\""));
  CHECK_THAT(refusal(text, "\"samples\": 2", "\"samples\": 0"), Contains("batches[1].samples is 0"));
  CHECK_THAT(refusal(text, "{", "["), Contains("is no JSON object"));
}

TEST_CASE("links of a number of ranks that was not measured are those of a ring", "[srifty]") {
  std::string points;
  for (const double bytes : {1e4, 1e6, 1e8})
    points += (points.empty() ? "" : ",") + std::string("{\"bytes\":") + std::to_string(bytes) +
              ",\"p50_s\":" + std::to_string(ring_seconds(2, bytes, {1e-3, 1e8})) +
              ",\"p90_s\":" + std::to_string(ring_seconds(2, bytes, {2e-3, 5e7})) + "}";
  const Links links = read_links(
      R"({"format":"trainyard.links/1","name":"slow","as_of":"2026-11-01","source":"a test","worlds":[{"ranks":2,"points":[)" +
          points + "]}]}",
      "slow.json");
  CHECK_THAT(links.seconds(2, 1e6, 0.5), WithinRel(0.012, 1e-4));
  CHECK_THAT(links.seconds(4, 1e6, 0.5), WithinRel(ring_seconds(4, 1e6, {1e-3, 1e8}), 1e-3));
  CHECK_THAT(links.seconds(2, 1e6, 0.9), WithinRel(0.024, 1e-4));
}

namespace {

/// A catalogue with prices, links, memory and regions by chance.
Catalogue drawn_catalogue(std::mt19937& draws) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<>(low, high)(draws);
  };
  Catalogue made;
  const int rows = std::uniform_int_distribution<>(1, 5)(draws);
  for (int i = 0; i < rows; ++i) {
    Machine machine;
    machine.type = "m" + std::to_string(i);
    machine.accelerator = uniform(0, 1) < 0.1 ? "unknown" : uniform(0, 1) < 0.5 ? "x" : "y";
    machine.count = 1 << std::uniform_int_distribution<>(0, 2)(draws);
    if (uniform(0, 1) < 0.9) machine.price = uniform(0.1, 10);
    if (uniform(0, 1) < 0.5) machine.spot_price = uniform(0.05, 3);
    machine.network = uniform(1e7, 3e9);
    machine.inside = uniform(0, 1) < 0.5 ? 0.0 : uniform(1e9, 1e11);
    machine.memory_bytes = uniform(0, 1) < 0.5 ? 0.0 : uniform(3e7, 9e7);
    machine.region = uniform(0, 1) < 0.5 ? "here" : "there";
    machine.as_of = "2026-11-01";
    machine.source = "a test";
    made.machines.push_back(machine);
  }
  return made;
}

/// What a cluster of one type would take and cost, written down without any of the planner's parts.
struct Judged {
  double seconds = 0, cost = 0;
};
std::optional<Judged> by_hand(const Job& job, const Machine& machine, int count, int spot,
                              const std::vector<Profile>& profiles) {
  const Profile* profile = nullptr;
  for (const Profile& each : profiles)
    if (each.device == machine.accelerator) profile = &each;
  const bool region = job.regions.empty() || machine.region == job.regions[0];
  const int n = count * machine.count;
  if (profile == nullptr || !region || job.batch % n != 0) return std::nullopt;
  int micros = 0;
  for (int m = 1; micros == 0 && m <= job.batch / n; ++m)
    if (job.batch / n % m == 0 &&
        (machine.memory_bytes == 0 ||
         4 * profile->weight_bytes + static_cast<double>(job.batch / n / m) * profile->sample_bytes <=
             machine.memory_bytes))
      micros = m;
  if (micros == 0) return std::nullopt;
  const double b = static_cast<double>(job.batch) / n / micros;
  // The slopes of profile_of, read off its ends.
  const auto& last = profile->batches.back();
  const double f = 0.001 + (last.forward - 0.001) / 16 * b, w = 0.002 + (last.backward - 0.002) / 16 * b;
  const double nic = count > 1 || machine.inside == 0 ? machine.network : 1e300;
  const double rate = machine.count > 1 && machine.inside > 0 ? std::min(nic, machine.inside) : nic;
  double best = 1e300;
  for (const double cap : job.buckets) {
    // Gradients 6 to 1 of profile_of; its buckets at 1 and at 25 MiB, by hand.
    std::vector<std::pair<double, double>> buckets = {{901'000, .6}, {6e6, .9}, {3.42e6, 1}};
    if (cap == 1 * mebibyte) buckets = {{3e6, .7}, {6e6, .9}, {921'000, .8}, {4e5, 1}};
    double free = 0;
    const double start = micros * f + (micros - 1) * w;
    for (const auto& [bytes, share] : buckets) {
      const double ready = start + share * w;
      const double takes = n == 1 ? 0 : 2 * (n - 1) * job.latency + 2.0 * (n - 1) / n * bytes / rate;
      free = (free > ready ? free : ready) + takes;
    }
    const double step = std::max(free, start + w) + 0.003;
    best = std::min(best, step);
  }
  double lost = 0;
  if (spot > 0) {
    const double mean = 3600 / (spot * job.spot.revocations_per_hour);
    const double tau = std::sqrt(2 * job.spot.checkpoint_seconds * mean);
    lost = job.spot.checkpoint_seconds / tau + (tau / 2 + job.spot.restart_seconds) / mean;
  }
  const double seconds = job.samples / static_cast<double>(job.batch) * best * (1 + lost) + job.startup;
  const double price = spot * machine.spot_price.value_or(0) + (count - spot) * machine.price.value_or(0);
  return Judged{seconds, seconds * price / 3600};
}

}  // namespace

TEST_CASE("the plan is the one that trying all by hand finds, on 1000 catalogues", "[srifty]") {
  std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002), profile_of("y", 0.004, 0.006)};
  for (Profile& each : profiles) each.sample_bytes = 1e6;
  std::mt19937 draws(11);
  int found = 0, none = 0;
  for (int round = 0; round < 1000; ++round) {
    const Catalogue catalogue = drawn_catalogue(draws);
    Job job;
    job.batch = 24 + 8 * (round % 6);
    job.samples = 1e6;
    job.startup = 60;
    job.max_machines = 6;
    job.latency = 5e-5;
    job.buckets = {1 * mebibyte, 25 * mebibyte};
    job.allow_spot = round % 3 != 0;
    job.spot = {0.1, 30, 180};
    if (round % 2 == 0) job.max_seconds = 500 + round;
    if (round % 5 < 2) job.max_cost = 0.3 + 0.003 * round;
    if (round % 7 == 0) job.regions = {"here"};
    job.objective = static_cast<Objective>(round % 3);
    std::optional<std::vector<double>> best;
    for (const Machine& machine : catalogue.machines)
      for (int count = 1; count <= 6; ++count)
        for (const int spot : std::set<int>{0, count - 1, count}) {
          if (spot > 0 && (!job.allow_spot || !machine.spot_price)) continue;
          if (spot < count && !machine.price) continue;
          const auto judged = by_hand(job, machine, count, spot, profiles);
          if (!judged || judged->seconds > job.max_seconds.value_or(1e300) ||
              judged->cost > job.max_cost.value_or(1e300))
            continue;
          const double s = judged->seconds, c = judged->cost;
          const double value = job.objective == Objective::min_cost   ? c
                               : job.objective == Objective::min_time ? s
                                                                      : s * c;
          const std::vector<double> key = {value, static_cast<double>(count)};
          if (!best || key < *best) best = key;
        }
    const Plan plan = Planner(job, catalogue, profiles, {}).plan([](auto, auto) { return false; });
    INFO("round " << round);
    REQUIRE(plan.chosen.has_value() == best.has_value());
    ++(best ? found : none);
    if (!best) continue;
    const Candidate& chosen = plan.candidates[*plan.chosen];
    const double value = job.objective == Objective::min_cost   ? chosen.cost
                         : job.objective == Objective::min_time ? chosen.seconds
                                                                : chosen.cost * chosen.seconds;
    REQUIRE_THAT(value, WithinRel((*best)[0], 1e-9));
  }
  CHECK(found > 300);
  CHECK(none > 30);
}

TEST_CASE("the front has what nothing beats, and no more", "[srifty]") {
  std::mt19937 draws(5);
  const std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002), profile_of("y", 0.004, 0.006)};
  for (int round = 0; round < 50; ++round) {
    const Catalogue catalogue = drawn_catalogue(draws);
    Job job;
    job.batch = 48;
    job.samples = 1e6;
    job.max_machines = 4;
    job.allow_mixed = true;
    job.buckets = {25 * mebibyte};
    const Plan plan = Planner(job, catalogue, profiles, {}).plan([](auto, auto) { return false; });
    for (const Candidate& each : plan.candidates) {
      const bool beaten =
          std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const Candidate& other) {
            return other.usable() && other.seconds <= each.seconds && other.cost <= each.cost &&
                   (other.seconds < each.seconds || other.cost < each.cost);
          });
      if (!each.usable() || beaten) CHECK(!each.pareto);
      if (each.usable() && !beaten)
        CHECK(std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const Candidate& other) {
          return other.pareto && other.seconds == each.seconds && other.cost == each.cost;
        }));
    }
  }
}

namespace {

Machine machine_of(const std::string& type, const std::string& accelerator, int count,
                   std::optional<double> price, std::optional<double> spot = {}) {
  Machine made;
  made.type = type;
  made.accelerator = accelerator;
  made.count = count;
  made.price = price;
  made.spot_price = spot;
  made.network = 1e9;
  made.region = "here";
  return made;
}

Job small_job(std::int64_t batch) {
  Job job;
  job.batch = batch;
  job.samples = 1e6;
  job.max_machines = 2;
  job.buckets = {25 * mebibyte};
  return job;
}

Plan plan_of(const Job& job, const Catalogue& catalogue, const std::vector<Profile>& profiles,
             const std::vector<Links>& links = {}) {
  return Planner(job, catalogue, profiles, links).plan([](auto, auto) { return false; });
}

std::vector<std::string> names_of(const Plan& plan, const Catalogue& catalogue) {
  std::vector<std::string> names;
  for (const Candidate& each : plan.candidates) names.push_back(cluster_text(each, catalogue));
  return names;
}

const Candidate& named(const Plan& plan, const Catalogue& catalogue, const std::string& name) {
  const std::vector<std::string> names = names_of(plan, catalogue);
  const auto found = std::find(names.begin(), names.end(), name);
  REQUIRE(found != names.end());
  return plan.candidates[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace

TEST_CASE("every cluster that can be rented is there, once", "[srifty]") {
  const std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002)};
  Catalogue catalogue;
  catalogue.machines = {machine_of("a", "x", 1, 2.0, 1.0), machine_of("b", "x", 1, 3.0),
                        machine_of("c", "x", 1, {}, 0.5), machine_of("d", "x", 1, {}),
                        machine_of("far", "x", 1, 1.0)};
  catalogue.machines.back().region = "there";
  Job job = small_job(4);
  job.allow_mixed = true;
  using Names = std::vector<std::string>;
  Plan plan = plan_of(job, catalogue, profiles);
  CHECK(names_of(plan, catalogue) == Names{"1 x a here", "2 x a here", "1 x b here", "2 x b here",
                                           "1 x c here", "1 x d here", "1 x far there", "2 x far there",
                                           "1 x a here + 1 x b here"});
  CHECK(named(plan, catalogue, "1 x c here").unusable == "offered as spot only");
  CHECK(named(plan, catalogue, "1 x d here").unusable == "not offered");
  job.allow_spot = true;
  job.spot = {0.1, 30, 180};
  plan = plan_of(job, catalogue, profiles);
  CHECK(names_of(plan, catalogue) ==
        Names{"1 x a here", "1 x a here spot", "2 x a here", "2 x a here spot", "2 x a here (1 spot)",
              "1 x b here", "2 x b here", "1 x c here spot", "2 x c here spot", "1 x d here", "1 x far there",
              "2 x far there", "1 x a here + 1 x b here", "1 x a here spot + 1 x b here",
              "1 x a here + 1 x c here spot", "1 x a here spot + 1 x c here spot",
              "1 x b here + 1 x c here spot"});
}

TEST_CASE("of clusters that are worth the same, the one with fewer machines is chosen, then the better one",
          "[srifty]") {
  std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002), profile_of("slow", 0.001, 0.002)};
  for (BatchProfile& each : profiles[1].batches) {  // twice the time, to the bit
    each.forward *= 2;
    each.backward *= 2;
  }
  profiles[1].rest *= 2;
  Catalogue catalogue;
  catalogue.machines = {machine_of("ones", "x", 1, 1.0), machine_of("pair", "x", 2, 2.0)};
  Job job = small_job(16);
  job.max_seconds = 0.99 * plan_of(job, catalogue, profiles).candidates[0].seconds;  // two ranks at least
  for (const Objective objective : {Objective::min_cost, Objective::min_time, Objective::min_cost_time}) {
    job.objective = objective;
    catalogue.machines[1].network = objective == Objective::min_cost ? 1e9 : 1e12;
    catalogue.machines[0].network = catalogue.machines[1].network;
    job.max_machines = 2;
    Plan plan = plan_of(job, catalogue, profiles);
    plan = plan_of(job, catalogue, profiles);
    REQUIRE(plan.chosen);
    const Candidate& chosen = plan.candidates[*plan.chosen];
    for (const Candidate& each : plan.candidates)
      if (each.feasible() && each.seconds == chosen.seconds && each.cost == chosen.cost)
        CHECK(each.machines >= chosen.machines);
  }
  catalogue.machines = {machine_of("slow", "slow", 1, 1.0), machine_of("fast", "x", 1, 2.0),
                        machine_of("cheap", "x", 1, 1.5)};
  job = small_job(1);
  job.max_machines = 1;
  job.objective = Objective::min_time;
  Plan plan = plan_of(job, catalogue, profiles);
  CHECK((plan.chosen == 2));  // as fast as "fast"
  CHECK((!plan.candidates[1].pareto && plan.candidates[2].pareto));
  catalogue.machines.pop_back();
  job.objective = Objective::min_cost;
  plan = plan_of(job, catalogue, profiles);
  REQUIRE(plan.candidates[0].cost == plan.candidates[1].cost);
  CHECK((plan.chosen == 1));  // as cheap as "slow"
  CHECK((!plan.candidates[0].pareto && plan.candidates[1].pareto));
}

TEST_CASE("memory cuts a share into micro-batches, caps those by speed, and says what has no room",
          "[srifty]") {
  std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002), profile_of("y", 0.002, 0.004)};
  for (Profile& each : profiles) each.sample_bytes = 1e6;
  const double weights = 4 * profiles[0].weight_bytes;
  Catalogue catalogue;
  catalogue.machines = {machine_of("a", "x", 1, 1.0), machine_of("b", "y", 1, 1.0)};
  Job job = small_job(12);
  job.allow_mixed = true;
  const auto with = [&](double room) {
    catalogue.machines[0].memory_bytes = room;
    return plan_of(job, catalogue, profiles);
  };
  Plan plan = with(weights + 3.5e6);
  CHECK(named(plan, catalogue, "1 x a here").micros == 4);
  CHECK((named(plan, catalogue, "1 x a here + 1 x b here").shares == std::vector<std::int64_t>{3, 9}));
  plan = with(weights + 2.9e6);
  CHECK(named(plan, catalogue, "1 x a here").micros == 6);  // 5 does not divide 12
  plan = with(weights + 0.5e6);
  CHECK_THAT(named(plan, catalogue, "1 x a here").unusable, Contains("memory: one sample needs"));
  CHECK_THAT(named(plan, catalogue, "1 x a here + 1 x b here").unusable,
             Contains("memory: no room for a sample on a"));
  plan = with(weights - 1e6);
  CHECK_THAT(named(plan, catalogue, "1 x a here").unusable, Contains("memory: weights alone need"));
  CHECK(named(plan, catalogue, "1 x b here").usable());
}

TEST_CASE("a step has the rest, the data, the slowest of its ranks, and the links of all of them",
          "[srifty]") {
  std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002)};
  Profile& profile = profiles.front();
  Catalogue catalogue;
  catalogue.machines = {machine_of("a", "x", 1, 1.0), machine_of("b", "x", 1, 1.0)};
  Job job = small_job(16);
  job.allow_mixed = true;
  const auto of = [&](const std::string& name, const std::vector<Links>& links = {}) {
    return named(plan_of(job, catalogue, profiles, links), catalogue, name);
  };
  // 16 samples: 0.017 + 0.034, and the rest of 0.003.
  CHECK_THAT(of("1 x a here").p50, WithinRel(0.054, 1e-9));
  profile.input = 0.001;
  CHECK_THAT(of("1 x a here").p50, WithinRel(0.070, 1e-9));  // read ahead of the step
  profile.input = 0.01;
  profile.input_overlaps = true;
  CHECK_THAT(of("1 x a here").p50, WithinRel(0.160, 1e-9));  // read beside it, and slower
  profile.input = 0.0;
  // Steps from 1 to 2 times the median, evenly: the slower of two is within 1 + sqrt(0.9) at 90 %.
  profile.steps = {1.0, 2.0};
  const Candidate one = of("1 x a here"), two = of("2 x a here");
  CHECK_THAT(one.p90, WithinRel(1.9 * 0.054, 1e-9));
  CHECK(two.p90 - two.p50 > (std::sqrt(0.9) - std::sqrt(0.5)) * (0.025 + 0.003));
  const double infinite = 1e30;
  for (Machine& each : catalogue.machines) each.network = infinite;
  // Without sums, of 8 samples each: 0.009 + 0.018 + 0.003.
  CHECK_THAT(of("2 x a here").p90, WithinRel((1 + std::sqrt(0.9)) * 0.030, 1e-9));
  job.quantile = 0.9;
  const Candidate judged = of("2 x a here");
  // Ranks of one machine type with other shares: the largest one counts, wherever it stands.
  Candidate other = judged;
  const Planner planner(job, catalogue, profiles, {});
  other.shares = {6, 8};
  CHECK(planner.step(other, job.buckets[0], 0.5) == planner.step(judged, job.buckets[0], 0.5));
  CHECK_THAT(judged.seconds, WithinRel(1e6 / 16 * judged.p90, 1e-9));
  job.quantile = 0.5;
  // Of two types with one name of a link, the link; of two names, the network.
  const Links slow = read_links(
      R"({"format":"trainyard.links/1","name":"slow","as_of":"2026-11-01","source":"a test","worlds":[{"ranks":2,)"
      R"("points":[{"bytes":1000,"p50_s":1.0,"p90_s":1.0},{"bytes":100000000,"p50_s":1.0,"p90_s":1.0}]}]})",
      "slow.json");
  catalogue.machines[0].link = "slow";
  CHECK(of("2 x a here", {slow}).p50 > 1.0);
  CHECK(of("1 x a here + 1 x b here", {slow}).p50 < 1.0);
  catalogue.machines[1].link = "slow";
  CHECK(of("1 x a here + 1 x b here", {slow}).p50 > 1.0);
}

TEST_CASE("where nothing keeps all limits, the nearest limit that would do is told", "[srifty]") {
  const Catalogue catalogue =
      read_catalogue(origin + header + "a,x,1,1,100,,here\nb,y,1,0.5,100,,here\n", "prices.csv");
  const std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002), profile_of("y", 0.004, 0.006)};
  Job job;
  job.batch = 16;
  job.samples = 1e6;
  job.max_machines = 4;
  job.buckets = {25 * mebibyte};
  job.max_seconds = 2000;
  job.max_cost = 0.95;
  const Plan plan = Planner(job, catalogue, profiles, {}).plan([](auto, auto) { return false; });
  REQUIRE(!plan.chosen);
  REQUIRE(plan.relaxations.size() == 2);
  for (const Relaxation& each : plan.relaxations) {
    // With the limit that it tells there is a plan, and with a hundredth less there is none.
    const double need = each.limit == "max_hours" ? plan.candidates[each.candidate].seconds
                                                  : plan.candidates[each.candidate].cost;
    for (const bool less : {false, true}) {
      Job relaxed = job;
      (each.limit == "max_hours" ? relaxed.max_seconds : relaxed.max_cost) = need * (less ? 0.99 : 1.0);
      CHECK(Planner(relaxed, catalogue, profiles, {})
                .plan([](auto, auto) { return false; })
                .chosen.has_value() == !less);
    }
  }
}

TEST_CASE("a throughput counts what revocations take, is a limit, and is told where it is out of reach",
          "[srifty]") {
  const std::vector<Profile> profiles = {profile_of("x", 0.001, 0.002)};
  Catalogue catalogue;
  catalogue.machines = {machine_of("a", "x", 1, 2.0, 1.0), machine_of("b", "x", 2, 5.0)};
  Job job = small_job(16);
  job.allow_spot = true;
  job.spot = {5, 30, 180};
  const Candidate spot = named(plan_of(job, catalogue, profiles), catalogue, "1 x a here spot");
  CHECK(spot.overhead > 0.1);
  CHECK_THAT(spot.throughput, WithinRel(16 / (spot.p50 * (1 + spot.overhead)), 1e-12));
  job.min_throughput = 1e6;
  Plan plan = plan_of(job, catalogue, profiles);
  CHECK_THAT(plan.candidates[0].over, Contains("samples/s < 1e+06"));
  REQUIRE(plan.relaxations.size() == 1);
  CHECK(plan.relaxations[0].limit == "min_throughput");
  for (const Candidate& each : plan.candidates)
    CHECK(each.throughput <= plan.candidates[plan.relaxations[0].candidate].throughput);
  // Where each limit is out of reach, the cluster that is over them by the least factor altogether.
  for (const auto& [seconds, cost, rate] :
       {std::tuple{1.0, 1e-3, 1e6}, std::tuple{1.0, 0.4, 1e3}, std::tuple{1300.0, 1e-3, 590.0}}) {
    job.max_seconds = seconds;
    job.max_cost = cost;
    job.min_throughput = rate;
    plan = plan_of(job, catalogue, profiles);
    REQUIRE(plan.relaxations.size() == 1);
    CHECK(plan.relaxations[0].limit == "several limits");
    const auto factor = [&](const Candidate& each) {
      return std::max(1.0, each.seconds / seconds) * std::max(1.0, each.cost / cost) *
             std::max(1.0, rate / each.throughput);
    };
    for (const Candidate& each : plan.candidates)
      CHECK(factor(each) >= factor(plan.candidates[plan.relaxations[0].candidate]));
  }
}

TEST_CASE("a plan becomes a run file and the line that starts it", "[srifty]") {
  const Catalogue catalogue = read_catalogue(origin + header + "a,x,4,1,1,0.5,here\n", "prices.csv");
  Job job;
  job.batch = 64;
  Candidate cluster{
      .groups = {{0, 2, 1}}, .shares = {8, 8, 8, 8, 8, 8, 8, 8}, .machines = 2, .ranks = 8, .micros = 2};
  cluster.bucket = 4 * mebibyte;
  cluster.p50 = 0.0125;
  CHECK(cluster_text(cluster, catalogue) == "2 x a here (1 spot)");
  CHECK(launch_text(cluster, catalogue, "plan.toml") ==
        "torchrun --no-python --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint "
        "FIRST_HOST:29500 "
        "trainyard train RUN.toml plan.toml");
  const std::string text = run_file_text(cluster, job, catalogue);
  CHECK_THAT(text, Contains("batch_size = 64\nmicro_batch_size = 4\n"));
  CHECK_THAT(text, Contains("bucket_cap_mb = 4.0"));
  CHECK_THAT(text, Contains("predicted_ms = 12.5"));
  CHECK_THAT(text, Contains("# Prices of 2026-11-01, a test\n"));
  // Checkpoints at Young's interval: sqrt(2 * 32 s * 3600 s / (2 * 0.5)) = 480 s; the run goes on by itself.
  CHECK(text.find("[checkpoint]") == std::string::npos);
  job.spot = {.revocations_per_hour = 0.5, .checkpoint_seconds = 32.0, .restart_seconds = 60.0};
  cluster.groups = {{0, 2, 2}};
  CHECK_THAT(run_file_text(cluster, job, catalogue),
             Contains("[checkpoint]\ninterval = \"38400ba\"\n\n[run]\nresume = \"auto\"\n"));
  job.has_checkpointer = false;
  CHECK_THAT(run_file_text(cluster, job, catalogue), Contains("[checkpoint]\ntype = \"full\"\ninterval"));
  cluster = {.groups = {{0, 1, 1}}, .shares = {16, 16, 16, 16}, .machines = 1, .ranks = 4};
  CHECK(launch_text(cluster, catalogue, "plan.toml") == "trainyard train RUN.toml plan.toml --ranks 4");
}

TEST_CASE("a plan of two types says each rank's share, and which machines have the first ranks", "[srifty]") {
  const Catalogue catalogue =
      read_catalogue(origin + header + "a,x,2,1,1,,here\nb,y,1,1,1,,here\n", "prices.csv");
  Job job;
  job.batch = 64;
  const Candidate cluster{
      .groups = {{0, 1, 0}, {1, 2, 0}}, .shares = {23, 23, 9, 9}, .machines = 3, .ranks = 4};
  CHECK_THAT(run_file_text(cluster, job, catalogue), Contains("batch_size = 64\nmicro_batch_size = 23\n"));
  CHECK_THAT(run_file_text(cluster, job, catalogue), Contains("shares = [23, 23, 9, 9]\n"));
  const auto line = [](const std::string& where, int local) {
    return "on " + where + ": torchrun --no-python --nnodes 3 --node-rank NODE --nproc-per-node " +
           std::to_string(local) +
           " --master-addr FIRST_HOST --master-port 29500 trainyard train RUN.toml plan.toml";
  };
  CHECK(launch_text(cluster, catalogue, "plan.toml") ==
        line("a, as NODE 0", 2) + "\n" + line("b, as NODE 1 to 2", 1));
}

TEST_CASE(
    "scaling is worse than linear on a slow link, a slower device takes less of a batch, a straggler costs",
    "[srifty]") {
  const Catalogue catalogue = read_catalogue(
      origin + header + "a,x,1,1,1,,here\nb,y,1,1,100,,here\nc,x,1,1,100,,here\n", "prices.csv");
  std::vector<Profile> profiles = {profile_of("x", 0.001, 0.001), profile_of("y", 0.002, 0.002)};
  Job job;
  job.batch = 64;
  job.samples = 1e6;
  job.max_machines = 16;
  job.allow_mixed = true;
  job.buckets = {25 * mebibyte};
  const auto plan_of = [&] {
    return Planner(job, catalogue, profiles, {}).plan([](auto, auto) { return false; });
  };
  const auto find = [](const Plan& plan, std::vector<std::pair<std::size_t, int>> groups) {
    for (const Candidate& each : plan.candidates) {
      std::vector<std::pair<std::size_t, int>> has;
      for (const Group& group : each.groups) has.emplace_back(group.machine, group.count);
      if (has == groups) return each;
    }
    throw std::logic_error("no such cluster");
  };
  const Plan plan = plan_of();
  CHECK(find(plan, {{0, 16}}).p50 > find(plan, {{0, 1}}).p50 / 16 * 4);
  CHECK(find(plan, {{0, 16}}).p50 > find(plan, {{2, 16}}).p50);
  const std::vector<std::int64_t> shares = find(plan, {{1, 1}, {2, 1}}).shares;
  REQUIRE(shares.size() == 2);
  CHECK(shares[0] + shares[1] == 64);
  CHECK(shares[1] > shares[0] * 3 / 2);
  const double quiet = find(plan, {{2, 8}}).p90;
  profiles[0].steps = {0.98, 1.0, 1.0, 1.01, 1.5};
  CHECK(find(plan_of(), {{2, 8}}).p90 > 1.1 * quiet);
}

}  // namespace srifty_test
