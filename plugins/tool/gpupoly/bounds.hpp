// Proves lower bounds of linear forms of a network's output over a box of inputs: intervals (Gowal et al. 2018,
// arXiv 1810.12715), and the linear forms of DeepPoly (Singh et al., POPL 2019) substituted back many rows at
// once, for the neurons that need it only (Mueller et al., MLSys 2021, arXiv 2007.10868).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <trainyard/manifest.hpp>

#include "layers.hpp"
#include "products.hpp"
#include "relaxation.hpp"
#include "rows.hpp"

namespace gpupoly {

enum class Method : std::uint8_t {
  ibp,       ///< intervals
  crown,     ///< the last forms are substituted back, over relaxations that intervals gave
  deeppoly,  ///< as crown, and where that proves too little, those of the neurons as well
};

struct Settings {
  Method method = Method::deeppoly;
  /// What a bound is proven for. 1: nothing, it is computed rounding to nearest. 2: the real function of these
  /// weights. 3: also for the program that runs in single precision, each operation rounded to nearest, sums in
  /// any order. 4: the same in any rounding mode.
  int soundness = 3;
  bool area = true;  ///< lower slope of an undecided neuron: 1 where u > -l; else always 0
  bool best_of_depth =
      true;  ///< the best of all layers on a form's way; else that at the input, better or not
  bool early_termination = true;                ///< a neuron whose sign is known goes no deeper
  bool unstable_only = true;                    ///< only neurons of undecided sign are refined
  bool windows = true;                          ///< a form has coefficients for what it depends on only
  std::int64_t memory = std::int64_t{1} << 30;  ///< bytes of coefficients at a time
};

struct Counters {
  std::int64_t multiply_adds = 0;  ///< of interval coefficients
  std::int64_t coefficients = 0;   ///< that forms had over all layers, zeros included
  std::int64_t rows = 0;           ///< that were substituted back
  std::int64_t stopped = 0;        ///< of these, before they came to the input
};

/// Linear forms of the output, whose coefficients are known as the numbers around them.
struct Forms {
  std::vector<double> lower, upper;  ///< [form][output]
  std::vector<double> constants;
  std::vector<std::size_t>
      groups;  ///< one a form, from 0: of a group, one form above 0 is enough; empty: of none
  std::size_t count() const { return constants.size(); }
  /// Whether of every group a form is above 0, or where there are none, all are.
  bool proven(const std::vector<double>& lower_bounds) const;
};

/// Thrown by a verifier that was asked to stop.
struct Stopped {};

class Verifier {
 public:
  /// `layers` must outlive it. `stop` is asked between chunks of work.
  Verifier(const Layers& layers, const Settings& settings, std::function<bool()> stop = {},
           std::unique_ptr<Products> products = processor_products());

  /// Lower bounds of the forms over inputs in [lower, upper], both in the verifier's order; -inf where nothing
  /// was proven. Once that is enough no tighter ones are looked for. Not for several threads.
  std::vector<double> lower_bounds(const std::vector<double>& lower, const std::vector<double>& upper,
                                   const Forms& forms);

  /// Of layer `k`, after lower_bounds.
  const Bounds& bounds(std::size_t k) const { return bounds_[k]; }
  const Counters& counters() const { return counters_; }
  const Layers& layers() const { return layers_; }
  const Settings& settings() const { return settings_; }

 private:
  struct Search;

  void forward(std::size_t k);
  void interval(std::size_t k, Bounds& out, std::vector<double>& sizes) const;
  void relax(std::size_t k);
  void refine(std::size_t k, bool for_relu, bool upper);
  void bound(const Forms& forms, std::vector<double>& best);
  void substitute(Search& search);
  bool drop(Rows& rows, Search& search);
  void expand(Rows rows, std::size_t k, Search& search);
  std::int64_t chunk() const;

  const Layers& layers_;
  Settings settings_;
  std::function<bool()> stop_;
  std::unique_ptr<Products> products_;
  std::vector<Bounds> bounds_;
  std::vector<std::vector<double>> errors_;  ///< of the program, one an element; empty: none
  std::vector<std::vector<Line>> relaxations_;
  Counters counters_;
};

}  // namespace gpupoly

template <>
struct trainyard::Words<gpupoly::Method> {
  static constexpr std::string_view words[] = {"ibp", "crown", "deeppoly"};
};
