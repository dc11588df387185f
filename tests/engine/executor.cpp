// The cut between the loop and the executor: an executor that goes its own way comes to the bits of the plain
// one, also where it is swapped in and out, and what it leaves in flight is finished at every pause.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "support/live.hpp"
#include "support/run.hpp"
#include "support/trained.hpp"

namespace executor_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::Ask;
using test::LiveRun;
using test::registry;

namespace {

/// Three micro-batches a step; the last step of an epoch has six samples, and a shorter micro-batch.
std::string run_with(const std::string& executor, const std::string& more = {}) {
  return R"(
schema = 1
[run]
name = "executors"
seed = 3
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = [8, 16, 3]
[model.dropout]
type = "standard"
p = 0.3
[loss]
type = "cross_entropy"
[[metrics]]
type = "accuracy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 102, batch_size = 12, micro_batch_size = 4, shuffle = true }
val = { size = 32, batch_size = 12 }
[schedule]
type = "cosine"
[logging]
interval = "1ba"
sinks = []
[trainer]
max_duration = "20ba"
eval_interval = "5ba"
grad_clip = { max = 0.5 }
)" + more +
         "[executor]\n" + executor;
}

void replace(std::string& text, const std::string& part, const std::string& by) {
  text.replace(text.find(part), part.size(), by);
}

/// The run of an executor, of a model that grows where it takes no other.
std::string run_of(const plugins::PluginFile& executor) {
  std::string text = run_with("type = \"" + executor.manifest.name + "\"\n");
  replace(text, "[model.dropout]\ntype = \"standard\"\np = 0.3\n", "");  // not all executors take it
  if (std::ranges::count(executor.manifest.needs, "grows") == 0)
    return text + "[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n";
  replace(text, "type = \"mlp\"\nlayers = [8, 16, 3]\n", "type = \"trees\"\n");
  replace(text, "grad_clip = { max = 0.5 }\n", "");
  return text + "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n";
}

const std::string eager = "type = \"eager\"\n", by_hand = "type = \"by_hand\"\n";
const std::string optimizers[] = {"[optimizer]\ntype = \"adamw\"\nlr = 0.01\n",
                                  "[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n"};

/// Keeps what is said of each step.
class Told final : public LiveRun {
 public:
  using LiveRun::LiveRun;
  bool log_due(std::int64_t) override { return true; }
  void record(Record&& record) override {
    for (const auto& [name, value] : record.values)
      if (name != "samples_per_second") said += " " + name + "=" + std::to_string(value);
  }
  std::string said;
};

/// Weights and optimizer at the end.
std::string weights(const std::string& text, const std::vector<Ask>& asks = {}) {
  LiveRun run(text, registry(), asks);
  run.fit();
  return run.result();
}

/// The same, and everything that was said on the way.
std::string result(const std::string& text) {
  Told run(text, registry());
  run.fit();
  return run.result() + run.said;
}

}  // namespace

TEST_CASE("an executor that adds gradients up by itself comes to the bits of the plain one") {
  for (const std::string& optimizer : optimizers)
    CHECK(result(run_with(by_hand, optimizer)) == result(run_with(eager, optimizer)));
  const auto asking = [](const char* what, const char* more) {
    return std::string("[[hooks]]\ntype = \"asking\"\nid = \"") + what + "\"\nask = \"" + what + "\"\n" +
           more;
  };
  const std::string repeated =
      optimizers[1] + asking("repeat_step", "at = \"before_step\"\nstep = 3\nperiod = 3\ntimes = 2\n") +
      asking("skip_step", "at = \"before_step\"\nstep = 7\nperiod = 7\n") +
      asking("skip_micro", "at = \"before_forward\"\nstep = 4\nperiod = 4\n");
  CHECK(result(run_with(by_hand, repeated)) == result(run_with(eager, repeated)));
  const std::string held = optimizers[0] + "[[hooks]]\ntype = \"ema\"\ndecay = 0.9\n";
  CHECK(result(run_with(by_hand, held)) == result(run_with(eager, held)));
}

TEST_CASE("a swap from one executor to another and back changes no bit") {
  const std::string undisturbed = result(run_with(eager, optimizers[0]));
  for (const char* watch : {"0ba", "3ba"}) {
    INFO("watch " << watch);
    const std::vector<Ask> asks = {{3, "executor", "by_hand", {}, "", watch},
                                   {11, "executor", "eager", {}, "", watch}};
    Told run(run_with(eager, optimizers[0]), registry(), asks);
    run.fit();
    REQUIRE(run.told().size() == 2);
    for (const test::Told& told : run.told()) {
      INFO(told.text);
      CHECK(told.done);
    }
    CHECK(run.result() + run.said == undisturbed);
  }
}

TEST_CASE("what an executor leaves in flight is finished at every pause") {
  const std::string late = by_hand + "late = true\n";
  CHECK(weights(run_with(late, optimizers[0])) !=
        weights(run_with(eager, optimizers[0])));  // each a step late
  // An evaluation or a checkpoint between any two steps leaves nothing late.
  const auto often = [](std::string text, const std::string& key) {
    return text.replace(text.find("eval_interval = \"5ba\""), 21, key);
  };
  const std::string evaluated = "eval_interval = \"1ba\"";
  CHECK(weights(often(run_with(late, optimizers[0]), evaluated)) ==
        weights(often(run_with(eager, optimizers[0]), evaluated)));
  const std::string saved = optimizers[0] + "[checkpoint]\ntype = \"full\"\ninterval = \"1ba\"\n";
  CHECK(weights(run_with(late, saved)) == weights(run_with(eager, saved)));
  // So does a swap of anything, and the end: here nothing else comes ahead of it.
  const auto without = [](std::string text, const std::string& line) {
    return text.erase(text.find(line), line.size());
  };
  const auto unseen = [&](const std::string& text) {
    return without(without(text, "val = { size = 32, batch_size = 12 }\n"), "eval_interval = \"5ba\"\n");
  };
  std::vector<Ask> asks;
  for (std::int64_t step = 1; step < 20; ++step)
    asks.push_back({step, "schedule", "cosine", {"min_factor=0.0"}, "", "0ba"});
  CHECK(weights(unseen(run_with(late, optimizers[0])), asks) ==
        weights(unseen(run_with(eager, optimizers[0]))));
  // And a look at the validation loss, which is undone but for this.
  const auto looked_at = [&](const std::string& text) { return without(text, "eval_interval = \"5ba\"\n"); };
  std::vector<Ask> looks;
  for (std::int64_t step = 1; step < 20; ++step) looks.push_back({.step = step});
  CHECK(weights(looked_at(run_with(late, optimizers[0])), looks) ==
        weights(looked_at(run_with(eager, optimizers[0]))));
}

TEST_CASE("an executor that does not like what a swap brings leaves the run as it was") {
  LiveRun unable(run_with(by_hand + "refuses_to_open = 1\n", optimizers[0]), registry());
  CHECK_THROWS_WITH(unable.fit(), Contains("[executor] by_hand") && Contains("does not like this network"));
  LiveRun refused(run_with(eager, optimizers[0]), registry(),
                  {{4, "executor", "by_hand", {"refuses_to_open=1"}, "", "0ba"}});
  refused.fit();
  REQUIRE(refused.told().size() == 1);
  CHECK_FALSE(refused.told()[0].done);
  CHECK_THAT(refused.told()[0].text, Contains("does not like this network"));
  // Opened again for another optimizer, and back for the one before.
  LiveRun again(run_with(by_hand + "refuses_to_open = 2\n", optimizers[0]), registry(),
                {{4, "optimizer", "adamw", {"weight_decay=0.1"}, "", "0ba"}});
  again.fit();
  REQUIRE(again.told().size() == 1);
  CHECK_FALSE(again.told()[0].done);
  CHECK_THAT(again.told()[0].text, Contains("does not like this network"));
  CHECK(refused->config().at("executor").type == "eager");
  const std::string undisturbed = weights(run_with(eager, optimizers[0]));
  CHECK(refused.result() == undisturbed);
  CHECK(again.result() == undisturbed);
}

TEST_CASE("brackets that an executor opens are closed, whatever it does") {
  const auto newest = [](LiveRun& run, std::uint32_t count) {
    std::vector<Event> events;
    for (std::uint32_t age = 0; age < count; ++age) events.push_back(run->bus().trail().back(age).event);
    return events;
  };
  LiveRun throws(run_with(by_hand + "throws_within = 2\n", optimizers[0]), registry());
  CHECK_THROWS_WITH(throws.fit(), Contains("[executor] by_hand, step 3: lost count"));
  const std::vector<Event> after = newest(throws, 4);
  CHECK((after == std::vector{Event::fit_end, Event::epoch_end, Event::batch_end, Event::micro_end}));
  LiveRun leaves(run_with(by_hand + "leaves_open = true\n", optimizers[0]), registry());
  CHECK_THROWS_WITH(leaves.fit(), Contains("[executor] by_hand, step 1: fired micro_start"));
  LiveRun closes(run_with(by_hand + "closes_twice = true\n", optimizers[0]), registry());
  CHECK_THROWS_WITH(closes.fit(), Contains("[executor] by_hand, step 1: fires micro_end, and micro_start is "
                                           "not open"));
}

TEST_CASE("a hook on an event that the executor does not fire is refused") {
  const std::string hooked = optimizers[0] + "[[hooks]]\ntype = \"rdrop\"\n";
  const config::Resolution resolution = test::resolve(run_with(by_hand, hooked), {}, registry());
  CHECK_FALSE(resolution.config);
  CHECK_THAT(resolution.findings.text(),
             Contains("E322") && Contains("\"rdrop\"") && Contains("\"by_hand\""));
  CHECK(test::resolve(run_with(eager, hooked), {}, registry()).config);
}

TEST_CASE("a plugin gets batches of its own, and the run's place in the data stays") {
  const auto curious = [](const std::string& splits) {
    return run_with(eager, optimizers[0] + "[[hooks]]\ntype = \"curious\"\nsplits = " + splits + "\n");
  };
  LiveRun run(curious("[\"train\", \"val\"]"), registry());
  run.fit();
  CHECK(run.logged("runs/executors on cpu"));
  CHECK(run.logged("train: 4 from "));
  CHECK(run.logged(" weighing 4 4 from "));
  CHECK(run.logged("val: 12 from 0 weighing 12 12 from 12 weighing 12"));
  CHECK(run.result() == weights(run_with(eager, optimizers[0])));
  LiveRun without(curious("[\"test\"]"), registry());
  CHECK_THROWS_WITH(without.fit(), Contains("[hooks") && Contains("curious") && Contains("[data.test]"));
}

TEST_CASE("every executor fires the events that it declares, and no other of a micro-batch") {
  int executors = 0;
  for (const plugins::PluginFile& file : registry().files()) {
    if (file.manifest.kind != std::string(Executor::kind.name)) continue;
    INFO(file.manifest.name);
    ++executors;
    LiveRun run(run_of(file), registry());
    run.fit();
    std::set<Event> fired;
    const events::Trail& trail = run->bus().trail();
    for (std::uint32_t age = 0; age < trail.size(); ++age) fired.insert(trail.back(age).event);
    for (const Event event : micro_events) {
      INFO(name(event));
      const std::vector<Event>& declared = file.manifest.fires;
      CHECK(fired.contains(event) == (std::find(declared.begin(), declared.end(), event) != declared.end()));
    }
  }
  CHECK(executors == 8);
}

TEST_CASE("what the host finds wrong within an executor is not laid at its door") {
  for (const std::string& executor : {eager, by_hand}) {
    INFO(executor);
    LiveRun run(run_with(executor, "[optimizer]\ntype = \"sgd\"\nlr = 1e38\n"), registry());
    CHECK_THROWS_WITH(run.fit(), Catch::Matchers::StartsWith("the training loss is"));
  }
}

TEST_CASE("batches that are not those of the model are refused in the same words by every executor") {
  const std::string two_members =
      "type = \"hfta\"\nmembers = [{ set = [\"optimizer.lr=0.1\"] }, { set = [\"optimizer.lr=0.2\"] }]\n";
  std::vector<std::string> executors = {two_members, "type = \"compiled\"\nfuse = \"none\"\n",
                                        "type = \"wavelet\"\nsync = \"stale1\"\n"};
  for (const plugins::PluginFile& file : registry().files())
    if (file.manifest.kind == Executor::kind.name &&
        std::ranges::count(file.manifest.needs, "grows") == 0)  // what grows has no graph that would say so
      executors.push_back("type = \"" + file.manifest.name + "\"\n");
  CHECK(executors.size() == 10);
  const auto trained = [](const std::string& executor, const std::string& hook) {
    std::string text =
        run_with(executor, "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[[hooks]]\n" + hook + "\"\nstep = 2\n");
    const std::string dropout = "[model.dropout]\ntype = \"standard\"\np = 0.3\n";
    if (executor.find("pipelined") != std::string::npos) text.erase(text.find(dropout), dropout.size());
    LiveRun run(text, registry());
    run.fit();
  };
  const auto shaped = [](const std::string& shape) {
    return "input \"features\" has shape [" + shape + "], the graph takes [batch, 8]";
  };
  const std::string holds = "input \"features\" holds ", two = "the batch has 2 inputs, the graph takes 1";
  struct Wrong {
    std::string with, trained, evaluated, cut;  ///< the last: by who cuts micro-batches into samples
  };
  for (const Wrong& wrong : std::vector<Wrong>{
           {"doubles", holds + "Double", holds + "Double", holds + "Double"},
           {"integers", holds + "Long", holds + "Long", holds + "Long"},
           {"fewer columns", shaped("4, 4"), shaped("12, 4"), shaped("1, 4")},
           {"more columns", shaped("4, 128"), shaped("12, 128"), shaped("1, 128")},
           {"second input", two, two, two},
           {"rows twice", "the model gives 8 rows for 4 targets", "the model gives 24 rows for 12 targets",
            "a batch of 4 samples has a field of 8 rows"},
           {"fewer targets", "the model gives 4 rows for 2 targets", "the model gives 12 rows for 6 targets",
            "a batch of 4 samples has a field of 2 rows"}})
    for (const std::string& executor : executors) {
      INFO(executor << wrong.with);
      const bool cuts = executor.find("pipelined") != std::string::npos,
                 is_late = executor.find("stale1") != std::string::npos;
      const std::string with = "with = \"" + wrong.with;
      CHECK_THROWS_WITH(trained(executor, "type = \"misfeeding\"\n" + with),
                        Contains(is_late ? "step " : "step 2") && Contains(cuts ? wrong.cut : wrong.trained));
      CHECK_THROWS_WITH(trained(executor, "type = \"misfeeding\"\nevaluations = true\n" + with),
                        Contains(wrong.evaluated));
    }
  // Behind all that comes ahead of the pass.
  for (const std::string& executor : {eager, two_members, std::string("type = \"compiled\"\n")})
    CHECK_THROWS_WITH(trained(executor, "type = \"meddling\"\nwith = \"doubles"),
                      Contains("step 2") && Contains("holds Double, the graph takes Float"));
}

TEST_CASE(
    "what a hook makes of rates and decay at the start of an epoch, every executor that takes it goes by") {
  const std::string sgd = "[optimizer]\ntype = \"sgd\"\nlr = 0.1\nweight_decay = 0.1\nmomentum = 0.9\n",
                    hook = "[[hooks]]\ntype = \"decaying\"\n";
  const auto of = [](const std::string& executor, const std::string& more) {
    LiveRun run(run_with(executor, more), registry());
    run.fit();
    std::vector<at::Tensor> all;
    for (const NamedTensor& each : run->states().weights())
      all.push_back(each.tensor.detach().reshape(-1).clone());
    return at::cat(all);
  };
  const at::Tensor plain = of(eager, sgd), expected = of(eager, sgd + hook);
  const double moved = (expected - plain).norm().item<double>();
  CHECK(moved > 0.01);
  for (const char* executor : {"type = \"compiled\"\n", "type = \"by_hand\"\n", "type = \"wavelet\"\n",
                               "type = \"hfta\"\nmembers = [{}, { set = [\"optimizer.lr=0.2\"] }]\n"}) {
    INFO(executor);
    CHECK((of(executor, sgd + hook) - expected).norm().item<double>() <= 1e-3 * moved);
  }
}

TEST_CASE(
    "with every dropout compiled trains as eager does, and so do the members of an array, each time alike") {
  struct End {
    at::Tensor weights;
    double loss;  ///< of the evaluation
  };
  const auto end_of = [](const std::string& text) {
    LiveRun run(text, registry());
    run.fit();
    std::vector<at::Tensor> all;
    for (const NamedTensor& each : run->states().weights())
      all.push_back(each.tensor.detach().reshape(-1).clone());
    return End{at::cat(all), run->loop().latest().at("val/loss")};
  };
  const std::string rows = "kind = \"classification\"\nshape = [8]\nclasses = 3\n",
                    images = "kind = \"classification\"\nshape = [2, 8, 8]\nclasses = 3\n",
                    tokens = "kind = \"language\"\nseq_len = 6\nvocabulary = 9\n";
  struct Model {
    std::string table, data;
  };
  const Model mlp{"type = \"mlp\"\nlayers = [8, 64, 64, 3]\n", rows},
      selu{"type = \"mlp\"\nlayers = [8, 16, 16, 3]\nactivation = \"selu\"\n", rows},
      normed{
          "type = \"sequential\"\nlayers = [{ type = \"linear\", out = 16 }, { type = \"batch_norm\" }, "
          "{ type = \"relu\" }, { type = \"dropout\" }, { type = \"linear\", out = 3 }]\n",
          rows},
      blocks{"type = \"resnet\"\ndepth = 8\nwidth = 2\ndropout_sites = \"blocks\"\n", images},
      branches{"type = \"resnet\"\ndepth = 8\nwidth = 2\ndropout_sites = \"branches\"\n", images},
      lstm{"type = \"lstm\"\nn_layer = 1\nhidden = 6\n", tokens};
  const std::string several = "type = \"multi_sample\"\nsamples = 3\n";
  for (const auto& [model, dropout] : std::vector<std::pair<Model, std::string>>{
           {mlp, "type = \"standard\"\n"},
           {mlp, "type = \"gyro\"\nsigma = 8\ntau = 4\n"},
           {mlp, "type = \"blockwise\"\nsigma = 8\ntau = 4\nblock = 8\n"},
           {mlp, "type = \"dropconnect\"\n"},
           {mlp, several},
           {normed, several + "when = \"late\"\ncutoff = \"3ba\"\n"},
           {normed, several + "when = \"early\"\ncutoff = \"3ba\"\n"},
           {lstm, several},
           {selu, "type = \"alpha\"\np = 0.3\n"},
           {blocks, "type = \"dropblock\"\nblock = 3\np = 0.3\n"},
           {blocks, "type = \"spatial\"\np = 0.3\n"},
           {branches, "type = \"droppath\"\np = 0.4\n"},
           {lstm, "type = \"variational\"\n"},
           {lstm, "type = \"zoneout\"\n"}}) {
    const auto text = [&, &model = model, &dropout = dropout](const std::string& executor) {
      return "schema = 1\n[run]\nseed = 3\nthreads = { intra_op = 1, inter_op = 1 }\n[model]\n" +
             model.table + "[model.dropout]\n" + dropout + "[loss]\ntype = \"cross_entropy\"\n[data]\n" +
             "type = \"synthetic\"\n" + model.data +
             "train = { size = 44, batch_size = 12, micro_batch_size = 4 }\nval = { size = 8, batch_size = 8 "
             "}\n"
             "[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n[schedule]\ntype = \"constant\"\n"
             "[logging]\nsinks = []\n[trainer]\nmax_duration = \"7ba\"\n[executor]\n" +
             executor;
    };
    std::string of_second = text(eager);
    of_second.replace(of_second.find("lr = 0.1"), 8, "lr = 0.2");
    const End first = end_of(text(eager)), second = end_of(of_second);
    CHECK((first.weights - second.weights).norm().item<double>() >
          1e-2 * first.weights.norm().item<double>());
    const std::string members = "type = \"hfta\"\nmembers = [{}, { set = [\"optimizer.lr=0.2\"] }]\n";
    for (const std::string& executor :
         {std::string("type = \"compiled\"\n"), std::string("type = \"compiled\"\nfuse = \"none\"\n"),
          members, members + "leader = 1\n"}) {
      const bool is_array = executor.starts_with(members);
      const End& expected = executor == members + "leader = 1\n" ? second : first;
      if (is_array &&
          (dropout.starts_with("type = \"blockwise") || dropout.starts_with("type = \"dropconnect")))
        continue;  // it refuses what does not drop activations
      INFO(model.table << dropout << executor);
      const End found = end_of(text(executor));
      CHECK((found.weights - expected.weights).norm().item<double>() <=
            1e-4 * expected.weights.norm().item<double>());
      CHECK(found.loss == Approx(expected.loss).epsilon(1e-5));
      CHECK(at::equal(end_of(text(executor)).weights, found.weights));
    }
  }
}

TEST_CASE("the executor compiled, where it is strict, ends a run in which others compute") {
  const std::string strict = "type = \"compiled\"\nstrict = true\n",
                    sgd = "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n";
  const auto ended = [](const std::string& text) {
    test::Trained run;
    const int code = run.train(text);
    return std::pair(code, run.log());
  };
  const std::string dropping = run_with(strict, sgd);
  std::string plain = dropping;
  replace(plain, "[model.dropout]\ntype = \"standard\"\np = 0.3\n", "");
  CHECK(ended(plain).first == 0);
  const auto [of_nodes, nodes] = ended(dropping);
  CHECK(of_nodes == 2);
  CHECK_THAT(nodes, Catch::Contains("LibTorch would compute") && Catch::Contains("(Dropout)"));
  replace(plain, "[trainer]\n", "[trainer]\nprecision = \"fp64\"\n");
  const auto [of_passes, passes] = ended(plain);
  CHECK(of_passes == 2);
  CHECK_THAT(passes, Catch::Contains("the kernels are of floats") && Catch::Contains("executor.strict"));
}

TEST_CASE("the executor compiled says once why passes run as eager runs them") {
  const auto said = [](const std::string& text, const std::string& part) {
    test::Trained run;
    REQUIRE(run.train(text, {"model.dropout.p=0.3", "logging.sinks=[]"}) == 0);
    std::size_t lines = 0;
    const std::string log = run.log();
    for (std::size_t at = log.find(part); at != std::string::npos; at = log.find(part, at + 1)) ++lines;
    const std::vector<std::string> journal = run.journal("left to eager");
    const auto says_it = [&](const std::string& why) { return why.find(part) != std::string::npos; };
    CHECK(static_cast<std::size_t>(std::ranges::count_if(journal, says_it)) == lines);
    return lines;
  };
  const std::string compiled = "type = \"compiled\"\n", sgd = "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n";
  const auto dropping = [](std::string text, const std::string& dropout) {
    return text.replace(text.find("type = \"standard\""), 17, "type = \"" + dropout);
  };
  const std::string blockwise = "blockwise\"\nsigma = 8\ntau = 4\nblock = 8",
                    masks = "the dropout of the run masks weights",
                    tapped = "[[rules]]\ntype = \"dead_relu\"\nevery = \"1ba\"\n";
  CHECK(said(run_with(compiled, sgd), "as eager does") == 0);
  CHECK(said(run_with(compiled, "precision = \"bf16-mixed\"\n" + sgd), "trainer.precision is a mixed one") ==
        (__builtin_cpu_supports("avx512bf16") ? 0 : 1));
  CHECK(said(run_with(compiled, "precision = \"fp64\"\n" + sgd), "the kernels are of floats") == 1);
  CHECK(said(dropping(run_with(compiled, sgd), blockwise), masks) == 1);
  CHECK(said(dropping(run_with(compiled, sgd), "dropconnect\""), masks) == 1);
  CHECK(said(run_with(compiled + "on_new_shape = \"eager\"\n", sgd), "as executor.on_new_shape says") == 1);
  CHECK(said(run_with(compiled, sgd + tapped), "looks at nodes") == 1);
  CHECK(said(run_with(compiled, sgd + tapped), masks) == 0);
  // Each of two reasons, one after the other.
  const std::string both = dropping(
      run_with(compiled,
               sgd + tapped + "[[swap]]\nat = \"5ba\"\nslot = \"model.dropout\"\ntype = \"standard\"\n"),
      blockwise);
  CHECK(said(both, masks) == 1);
  CHECK(said(both, "looks at nodes") == 1);
}

}  // namespace executor_tests
