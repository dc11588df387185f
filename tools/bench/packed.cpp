// A linear layer at batch 1, as `export --to static` writes it: its weight packed as a Kronecker product and a sparse matrix (Thakker
// et al., "Doping", MLSys 2021), against the dense product of LibTorch. 2600 x 1300 are the gates of an LSTM of 650 cells.
//   trainyard bench packed
#include <random>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "plugins/tool/export/sparse_rows.hpp"
#include "plugins/tool/export/static/runtime.hpp"
#include "plugins/transform/doped/structure.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

constexpr int rows = 2600, columns = 1300;

/// With so many numbers that are not 0.
at::Tensor sparse_matrix(std::int64_t count, std::mt19937_64& random) {
  std::vector<int> all(static_cast<std::size_t>(rows) * columns), drawn;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  std::ranges::sample(all, std::back_inserter(drawn), count, random);
  std::normal_distribution<float> normal;
  at::Tensor matrix = at::zeros({rows, columns});
  for (const int place : drawn) matrix.mutable_data_ptr<float>()[place] = normal(random);
  return matrix;
}

std::vector<float> drawn(std::int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> all(static_cast<std::size_t>(count));
  for (float& each : all) each = normal(random);
  return all;
}

void compare(double factor, bool quick) {
  std::mt19937_64 random(3);
  const auto budget = static_cast<std::int64_t>(rows * columns / factor);
  const doped::Structure k =
      doped::largest({.form = doped::Form::kp, .rows = rows, .columns = columns}, budget / 4);
  const SparseRows sparse = sparse_rows(sparse_matrix(budget - k.parameters(), random));
  const std::vector<float> left = drawn(k.left_rows * k.left_columns, random),
                           right = drawn(k.right_rows * k.right_columns, random);
  std::vector<float> between(static_cast<std::size_t>(k.left_columns * k.right_rows)), y(rows);
  const at::Tensor x = at::randn({columns}), dense = at::randn({rows, columns}), bias = at::randn({rows});
  const auto kronecker = [&] {
    runtime::add_kronecker(left.data(), right.data(), x.const_data_ptr<float>(), y.data(), 1, columns, rows,
                           static_cast<int>(k.left_rows), static_cast<int>(k.left_columns),
                           static_cast<int>(k.right_rows), static_cast<int>(k.right_columns), between.data());
  };
  const auto by_sparse = [&] {
    runtime::add_sparse(sparse.numbers.data(), sparse.places.data(), x.const_data_ptr<float>(), y.data(), 1,
                        columns, rows);
  };
  const auto start = [&] { runtime::start(bias.const_data_ptr<float>(), y.data(), 1, rows); };
  const int times = quick ? 1 : 20;
  const auto repeated = [times](auto once) {
    return [times, once] {
      for (int i = 0; i < times; ++i) once();
    };
  };
  const at::Tensor row = x.unsqueeze(0);
  const std::vector<Contender> contenders{
      {"dense, at::addmv", repeated([&] { at::addmv(bias, dense, x); })},
      {"dense, at::linear", repeated([&] { at::linear(row, dense, bias); })},
      {"packed", repeated([&] {
         start();
         kronecker();
         by_sparse();
       })},
      {"  of it " + k.text(), repeated(kronecker)},
      {"  of it the sparse matrix", repeated(by_sparse)}};
  const std::vector<Times> found = contest(contenders, quick ? 1 : 200);
  char title[120];
  std::snprintf(title, sizeof title, "%d x %d, %g times fewer numbers: %zu of a sparse matrix", rows, columns,
                factor, sparse.numbers.size());
  print(title, "us", 1e-6, times, contenders, found);
  const auto best = [&](std::size_t i) { return percentile(found[i].cpu, 0.2); };
  std::printf("  packed is %.2f times as fast as the better of the dense ones\n",
              std::min(best(0), best(1)) / best(2));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const Arguments given(argc, argv);
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  compare(25, given.quick);
  compare(10, given.quick);
}
