// Losses of several labels a sample, and of sparse outputs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <catch2/catch.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/loss.hpp>

#include "golden.hpp"
#include "plugins/loss/stored_softmax.hpp"
#include "support/files.hpp"
#include "tests/support/plugin.hpp"

namespace labels_tests {

using namespace trainyard;
using Catch::Contains;
using test::message_of;
using test::table;
using Shape = std::vector<std::int64_t>;

namespace {

std::unique_ptr<Loss> multi_label(double smoothing = 0.0) {
  return test::make<Loss>("cross_entropy", table({{"multi_label", true}, {"label_smoothing", smoothing}}));
}

Batch with_target(const at::Tensor& target) {
  Batch batch;
  batch.target = target;
  batch.indices.resize(static_cast<std::size_t>(target.size(0)));
  return batch;
}

BatchSchema several(std::int64_t most, std::int64_t classes) {
  BatchSchema schema;
  schema.target = labels_field(most);
  schema.classes = classes;
  return schema;
}

/// Between 0 (or 1) and `most` different labels a sample.
at::Tensor random_labels(std::int64_t size, std::int64_t most, std::int64_t classes, bool some_none = true) {
  const at::Tensor labels = at::full({size, most}, no_label, at::kLong);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t count =
        some_none && i % 4 == 1 ? 0 : 1 + at::randint(most, {1}, at::kLong).item<std::int64_t>();
    labels[i]
        .narrow(0, 0, count)
        .copy_(std::get<0>(at::randperm(classes, at::kLong).narrow(0, 0, count).sort()));
  }
  return labels;
}

/// Each label's share of its sample's target: what torch takes as probabilities.
at::Tensor shares(const at::Tensor& labels, std::int64_t classes) {
  const at::Tensor target = at::zeros({labels.size(0), classes}, at::kDouble);
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const at::Tensor own = labels[i].masked_select(labels[i].ge(0));
    for (std::int64_t j = 0; j < own.numel(); ++j)
      target[i][own[j].item<std::int64_t>()] = 1.0 / static_cast<double>(own.numel());
  }
  return target;
}

at::Tensor labelled(const at::Tensor& labels) {
  return labels.ge(0).any(1).nonzero().squeeze(1);
}

struct Graded {
  double loss;
  at::Tensor gradient;  ///< of `leaf`
};
Graded graded(const at::Tensor& loss, const at::Tensor& leaf) {
  REQUIRE(loss.dim() == 0);
  return {loss.item<double>(), torch::autograd::grad({loss}, {leaf}, {}, /*retain_graph=*/true)[0]};
}

/// Which classes a sparse output stores: the labels, and some more, in no order.
at::Tensor random_store(const at::Tensor& labels, std::int64_t classes, double share) {
  at::Tensor stored = at::rand({labels.size(0), classes}).lt(share);
  const at::Tensor own = at::zeros({labels.size(0), classes + 1}, at::kBool);
  own.scatter_(1, labels.add(1), true);  // place 0: of -1
  return stored.logical_or(own.narrow(1, 1, classes));
}

/// As a model makes it. What LibTorch has, sparse_compressed_tensor, mixes up the gradients of a row whose
/// entries are in no order.
class AsSparse : public torch::autograd::Function<AsSparse> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& values,
                            const at::Tensor& ends, const at::Tensor& classes, at::IntArrayRef shape) {
    return at::_sparse_csr_tensor_unsafe(ends, classes, values, shape,
                                         values.options().layout(at::kSparseCsr));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].values(), {}, {}, {}};
  }
};

/// The output that has those entries of `dense` alone, differentiable in `values`.
struct Sparse {
  at::Tensor rows, classes;  ///< of each entry
  at::Tensor values, output;

  Sparse(const at::Tensor& dense, const at::Tensor& store, at::ScalarType index = at::kLong) {
    std::vector<at::Tensor> places;
    for (std::int64_t i = 0; i < store.size(0); ++i) {
      at::Tensor found = store[i].nonzero().squeeze(1);
      found = found.index_select(0, at::randperm(found.numel(), at::kLong));
      places.push_back(at::stack({at::full_like(found, i), found}, 1));
    }
    const at::Tensor all = at::cat(places);
    rows = all.select(1, 0);
    classes = all.select(1, 1);
    values = dense.index({rows, classes}).detach().requires_grad_();
    const at::Tensor ends = at::cat({at::zeros({1}, at::kLong), store.sum(1).cumsum(0)});
    output = AsSparse::apply(values, ends.to(index), classes.to(index), store.sizes());
  }
  /// Of the entries, from that of the dense scores.
  at::Tensor entries_of(const at::Tensor& gradient) const { return gradient.index({rows, classes}); }
};

}  // namespace

TEST_CASE("cross_entropy of several labels equals torch's of probabilities") {
  at::manual_seed(1);
  for (const double smoothing : {0.0, 0.2}) {
    const auto loss = multi_label(smoothing);
    const at::Tensor labels = random_labels(13, 4, 9), some = labelled(labels);
    const at::Tensor scores = at::randn({13, 9}, at::kDouble).mul(3.0).requires_grad_();
    const Graded found = graded(loss->forward(scores, with_target(labels)), scores);
    // Those without a label left out of the batch.
    const Graded expected =
        graded(at::cross_entropy_loss(scores.index_select(0, some), shares(labels, 9).index_select(0, some),
                                      {}, at::Reduction::Mean, -100, smoothing),
               scores);
    REQUIRE(some.numel() == 10);
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-12));
    CHECK(test::distance(found.gradient, expected.gradient) < 1e-12);
    CHECK(loss->weight(with_target(labels)) == 10.0);

    const at::Tensor half = loss->forward(scores.detach().to(at::kBFloat16), with_target(labels));
    CHECK(half.scalar_type() == at::kFloat);
    CHECK(half.item<double>() == Approx(expected.loss).epsilon(0.02));
  }
}

TEST_CASE("cross_entropy of one label each is that of a class, and of none is 0") {
  at::manual_seed(2);
  const at::Tensor scores = at::randn({5, 7}).requires_grad_();
  const at::Tensor target = at::randint(7, {5}, at::kLong);
  const at::Tensor filled = at::cat({target.unsqueeze(1), at::full({5, 2}, no_label, at::kLong)}, 1);
  const auto plain = test::make<Loss>("cross_entropy"), several = multi_label();
  CHECK(several->forward(scores, with_target(filled)).item<float>() ==
        Approx(plain->forward(scores, with_target(target)).item<float>()).epsilon(1e-6));
  const Batch none = with_target(at::full({5, 3}, no_label, at::kLong));
  CHECK(several->weight(none) == 0.0);
  const Graded found = graded(several->forward(scores, none), scores);
  CHECK(found.loss == 0.0);
  CHECK(found.gradient.abs().max().item<float>() == 0.0f);
}

TEST_CASE("cross_entropy of several labels: micro-batches, weighted, add up") {
  at::manual_seed(3);
  const auto loss = multi_label();
  const at::Tensor labels = random_labels(11, 3, 6), scores = at::randn({11, 6}, at::kDouble);
  double sum = 0.0, weights = 0.0;
  for (const auto& [first, last] : {std::pair{0, 2}, std::pair{2, 7}, std::pair{7, 11}}) {
    const Batch part = with_target(labels.slice(0, first, last));
    sum += loss->forward(scores.slice(0, first, last), part).item<double>() * loss->weight(part);
    weights += loss->weight(part);
  }
  CHECK(weights == loss->weight(with_target(labels)));
  CHECK(sum / weights == Approx(loss->forward(scores, with_target(labels)).item<double>()).epsilon(1e-12));
}

TEST_CASE("cross_entropy refuses what it is not told of") {
  const auto plain = test::make<Loss>("cross_entropy"), several_of = multi_label();
  CHECK_NOTHROW(several_of->check({227}, several(5, 227)));
  CHECK_NOTHROW(several_of->check({300}, several(5, 227)));
  CHECK_THROWS_WITH(plain->check({227}, several(5, 227)), Contains("loss.multi_label = true"));
  CHECK_THROWS_WITH(plain->check({227}, several(227, 227)), Contains("loss.multi_label = true"));
  CHECK_THROWS_WITH(several_of->check({200}, several(5, 227)), Contains("[227]") && Contains("[200]"));
  CHECK_THROWS_WITH(several_of->check({5, 227}, several(5, 227)), Contains("[227]") && Contains("[5, 227]"));
  BatchSchema one = several(5, 227);
  one.target.shape = {};
  CHECK_THROWS_WITH(several_of->check({227}, one), Contains("loss.multi_label") && Contains("[]"));
  BatchSchema links = several(4, 4);  // whose targets say of each pair whether it is an edge
  links.target = {"link", {4}, at::kFloat};
  CHECK_THROWS_WITH(several_of->check({4}, links), Contains("loss.multi_label") && Contains("\"link\""));
  const auto both = test::make<Loss>("cross_entropy", table({{"multi_label", true}, {"ignore_index", 0}}));
  CHECK_THROWS_WITH(both->check({227}, several(5, 227)), Contains("loss.ignore_index"));
  // A class beyond the scores is an error, not a crash.
  CHECK_THROWS(
      several_of->forward(at::randn({1, 3}), with_target(at::tensor({0, 3}, at::kLong).view({1, 2}))));
  CHECK_THROWS(
      several_of->forward(at::randn({1, 3}), with_target(at::tensor({0, -2}, at::kLong).view({1, 2}))));
  for (const char* name : {"bce_with_logits", "mse"}) {
    CHECK_THROWS_WITH(test::make<Loss>(name)->check({227}, several(5, 227)), Contains("multi_label = true"));
    CHECK_THROWS_WITH(test::make<Loss>(name)->check({2}, several(2, 2)), Contains("multi_label = true"));
  }
}

TEST_CASE("cross_entropy of a sparse output that stores every class is that of a dense one") {
  at::manual_seed(4);
  const at::Tensor labels = random_labels(13, 4, 9);
  const at::Tensor scores = at::randn({13, 9}, at::kDouble).mul(20.0).add(1000.0).requires_grad_();
  const auto loss = multi_label();
  const Graded expected = graded(loss->forward(scores, with_target(labels)), scores);
  for (const at::ScalarType index : {at::kLong, at::kInt}) {
    const Sparse sparse(scores, at::ones({13, 9}, at::kBool), index);
    const Graded found = graded(loss->forward(sparse.output, with_target(labels)), sparse.values);
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-12));
    CHECK(test::distance(found.gradient, sparse.entries_of(expected.gradient)) < 1e-12);
  }
}

TEST_CASE("cross_entropy of a sparse output: the softmax is over what is stored") {
  at::manual_seed(5);
  const std::int64_t size = 40, classes = 50;
  const at::Tensor labels = random_labels(size, 5, classes), store = random_store(labels, classes, 0.2);
  const at::Tensor scores = at::randn({size, classes}, at::kDouble).mul(4.0).requires_grad_();
  const auto loss = multi_label();
  const Sparse sparse(scores, store);
  const Graded found = graded(loss->forward(sparse.output, with_target(labels)), sparse.values);
  // Torch's, of probabilities: a score so low that exp of it is 0 stands for those left out.
  const at::Tensor some = labelled(labels), low = at::where(store, scores, -1e9);
  const Graded expected =
      graded(at::cross_entropy_loss(low.index_select(0, some), shares(labels, classes).index_select(0, some)),
             scores);
  CHECK(found.loss == Approx(expected.loss).epsilon(1e-12));
  CHECK(test::distance(found.gradient, sparse.entries_of(expected.gradient)) < 1e-12);

  // Finite differences, of some entries.
  const at::Tensor values = sparse.values.detach();
  for (const std::int64_t entry : {0, 7, 100, 200}) {
    const auto shifted = [&](double by) {
      at::Tensor moved = values.clone();
      moved[entry] += by;
      const at::Tensor output =
          at::_sparse_csr_tensor_unsafe(sparse.output.crow_indices(), sparse.output.col_indices(), moved,
                                        store.sizes(), sparse.output.options());
      return loss->forward(output, with_target(labels)).item<double>();
    };
    CHECK((shifted(1e-5) - shifted(-1e-5)) / 2e-5 ==
          Approx(found.gradient[entry].item<double>()).margin(1e-9));
  }

  const Sparse single(scores.detach().to(at::kFloat), store);
  const Graded rough = graded(loss->forward(single.output, with_target(labels)), single.values);
  CHECK(rough.loss == Approx(expected.loss).epsilon(1e-5));
  CHECK(test::distance(rough.gradient, single.entries_of(expected.gradient)) < 1e-5);
}

TEST_CASE("cross_entropy of a sparse output: of one class a sample, and with those that do not count") {
  at::manual_seed(6);
  const at::Tensor target = at::randint(9, {12}, at::kLong), scores = at::randn({12, 9}, at::kDouble);
  for (const bool ignoring : {false, true}) {
    const Table options = ignoring ? table({{"ignore_index", 3}}) : Table{};
    const auto loss = test::make<Loss>("cross_entropy", options);
    const at::Tensor leaf = scores.clone().requires_grad_();
    const Graded expected = graded(loss->forward(leaf, with_target(target)), leaf);
    const Sparse sparse(scores, at::ones({12, 9}, at::kBool));
    const Graded found = graded(loss->forward(sparse.output, with_target(target)), sparse.values);
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-12));
    CHECK(test::distance(found.gradient, sparse.entries_of(expected.gradient)) < 1e-12);
  }
}

TEST_CASE("cross_entropy of a sparse output is the same on any number of threads, and by operators") {
  at::manual_seed(7);
  const std::int64_t size = 200, classes = 2000;
  const at::Tensor labels = random_labels(size, 5, classes), store = random_store(labels, classes, 0.5);
  const at::Tensor scores = at::randn({size, classes}, at::kDouble);
  const auto loss = multi_label();
  const int before = at::get_num_threads();
  const auto on_threads = [&](int threads, const Sparse& sparse) {
    at::set_num_threads(threads);
    const Graded found = graded(loss->forward(sparse.output, with_target(labels)), sparse.values);
    at::set_num_threads(before);
    return found;
  };
  const Sparse exact(scores, store);
  const Graded expected = on_threads(1, exact), four = on_threads(4, exact);
  CHECK(expected.loss == four.loss);
  for (const double scale : {0.1, 0.3, 1.7, 5.0}) {  // sums in another order are the same by chance
    const Sparse other(scores.mul(scale), store);
    CHECK(on_threads(1, other).loss == on_threads(4, other).loss);
  }
  CHECK(at::equal(expected.gradient, four.gradient));

  losses::Stored stored{exact.values, exact.output.crow_indices(), exact.output.col_indices(), labels,
                        no_label};
  const Graded found = graded(losses::stored_cross_entropy_by_operators(stored), exact.values);
  CHECK(found.loss == Approx(expected.loss).epsilon(1e-12));
  CHECK(test::distance(found.gradient, expected.gradient) < 1e-12);
  stored.labels = labels.clone();
  const at::Tensor absent = store[0].logical_not().nonzero()[0][0];
  stored.labels[0][0] = absent;
  CHECK(std::isnan(losses::stored_cross_entropy_by_operators(stored).item<double>()));
}

TEST_CASE("cross_entropy of a sparse output without a label, or of other samples, is the model's mistake") {
  at::manual_seed(8);
  const at::Tensor labels = at::tensor({0, -1, 2, 4}, at::kLong).view({2, 2});
  const at::Tensor store = at::tensor({1, 0, 1, 0, 1, 0, 0, 1, 1, 0}, at::kInt).to(at::kBool).view({2, 5});
  const Sparse sparse(at::randn({2, 5}), store);
  CHECK_THAT(
      message_of<PluginError>([&] { multi_label()->forward(sparse.output, with_target(labels)); }),
      Contains("left out class 2, a label of sample 1") || Contains("left out class 4, a label of sample 1"));
  CHECK_THAT(message_of<PluginError>(
                 [&] { multi_label()->forward(sparse.output, with_target(labels.narrow(0, 0, 1))); }),
             Contains("2 samples") && Contains("[1, 2]"));
  CHECK_THAT(message_of<ConfigError>([&] { multi_label(0.1)->forward(sparse.output, with_target(labels)); }),
             Contains("loss.label_smoothing"));
}

}  // namespace labels_tests
