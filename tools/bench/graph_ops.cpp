// What layers of graph networks do over the edges of a block, one core, against LibTorch's operators.
//   trainyard bench graph_ops          15 sampled neighbours for each of 15,000 targets among 90,000 sources
//   trainyard bench graph_ops NAME     only what begins with it: sum, max, attention

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "plugins/model/segments.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using namespace models;

std::string wanted;

/// Targets with `degree` edges each to sources whose numbers are near-uniform, as those of sampled neighbours
/// are once they are numbered by first sight.
EdgesPtr sampled(std::int64_t targets, std::int64_t degree, std::int64_t sources) {
  const Tensor rowptr = at::arange(targets + 1, at::kLong) * degree;
  return std::make_shared<Edges>(Block{rowptr, at::randint(sources, {targets * degree}, at::kLong), sources});
}

/// Ours check a block and sort it by source anew in every pass, as in training; what LibTorch's operators
/// read of it beside is there before.
EdgesPtr anew(const EdgesPtr& edges) {
  return std::make_shared<Edges>(Block{edges->rowptr(), edges->col(), edges->sources()});
}

using Pass = std::function<Tensor()>;

void compare(const std::string& title, const std::vector<std::pair<const char*, Pass>>& passes, int rounds,
             const std::vector<Tensor>& leaves) {
  if (!title.starts_with(wanted)) return;
  for (const bool backward : {false, true}) {
    std::vector<Contender> contenders;
    for (const auto& [name, pass] : passes)
      contenders.push_back({name, [&pass = pass, &leaves, backward] {
                              const c10::AutoGradMode mode(backward);
                              const Tensor y = pass();
                              if (backward) torch::autograd::grad({y}, leaves, {at::ones_like(y)});
                            }});
    const Tensor expected = passes.front().second(), found = passes.back().second();
    if (!at::allclose(found, expected, 1e-3, 1e-4)) {
      std::fprintf(stderr, "%s: the contenders differ\n", title.c_str());
      std::exit(1);
    }
    print((title + (backward ? ", forward and backward" : ", forward")).c_str(), "ms", 1e-3, 1, contenders,
          contest(contenders, rounds));
  }
}

/// The row of zeros that embedding_bag wants behind the last offset is there already: rowptr has it.
Tensor bag(const Tensor& x, Edges& edges, std::int64_t mode) {
  return std::get<0>(at::embedding_bag(x, edges.col(), edges.rowptr(), false, mode, false, {}, true));
}

void sums(const EdgesPtr& edges, std::int64_t width, int rounds) {
  const Tensor x = at::randn({edges->sources(), width}).requires_grad_();
  const Tensor csr = at::sparse_csr_tensor(edges->rowptr(), edges->col(), at::ones({edges->count()}),
                                           {edges->targets(), edges->sources()}, at::kFloat);
  compare(
      "sum of width " + std::to_string(width),
      {{"index_select and index_add_", [&] { return plain::sum(x.index_select(0, edges->col()), *edges); }},
       {"segment_reduce",
        [&] {
          return at::segment_reduce(x.index_select(0, edges->col()), "sum", {}, {}, edges->rowptr(), 0, true,
                                    0);
        }},
       {"sparse CSR mm", [&] { return csr.mm(x); }},
       {"embedding_bag", [&] { return bag(x, *edges, 0); }},
       {"sum_neighbours", [&] { return sum_neighbours(x, anew(edges)); }}},
      rounds, {x});
}

void maxima(const EdgesPtr& edges, std::int64_t width, int rounds) {
  const Tensor x = at::randn({edges->sources(), width}).requires_grad_();
  compare("max of width " + std::to_string(width),
          {{"index_select and segment_reduce",
            [&] {
              return at::segment_reduce(x.index_select(0, edges->col()), "max", {}, {}, edges->rowptr(), 0,
                                        true);
            }},
           {"max_neighbours", [&] { return max_neighbours(x, anew(edges)); }}},
          rounds, {x});
}

/// GAT's, from scores on.
void attention(const EdgesPtr& edges, std::int64_t heads, std::int64_t width, int rounds) {
  const Tensor x = at::randn({edges->sources(), heads, width}).requires_grad_();
  const Tensor scores = at::randn({edges->count(), heads}).requires_grad_();
  compare("attention of " + std::to_string(heads) + " heads of width " + std::to_string(width),
          {{"index_select and index_add_",
            [&] {
              const Tensor weights = plain::softmax(scores, *edges);
              return plain::sum(x.index_select(0, edges->col()).mul(weights.unsqueeze(2)), *edges);
            }},
           {"edge_softmax and weighted_sum",
            [&] {
              const EdgesPtr block = anew(edges);
              return weighted_sum(edge_softmax(scores, block), x, block);
            }}},
          rounds, {scores, x});
}

void run(bool quick) {
  at::set_num_threads(1);
  at::manual_seed(1);
  const std::int64_t targets = quick ? 500 : 15'000;
  const EdgesPtr edges = sampled(targets, 15, targets * 6);
  const int rounds = quick ? 1 : 12;
  for (const std::int64_t width : {16, 100, 128, 256}) sums(edges, width, rounds);
  maxima(edges, 128, rounds);
  attention(edges, 8, 8, rounds);
  attention(edges, 1, 128, rounds);
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  const trainyard::bench::Arguments given(argc, argv);
  trainyard::bench::wanted = given.part;
  trainyard::bench::run(given.quick);
}
