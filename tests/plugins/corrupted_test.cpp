// Corruptions of images, by the kernels alone: what they cost, and pictures of sizes that no dataset of the other tests has.
#include <chrono>
#include <cmath>
#include <iostream>

#include <catch2/catch.hpp>

#include "plugins/dataset/corrupted/kernels.hpp"

namespace corrupted_test {

using corrupted::Corruption, corrupted::Picture;

std::vector<float> some_pixels(std::int64_t count) {
  std::vector<float> pixels(static_cast<std::size_t>(count));
  corrupted::stream_of(Corruption::gaussian_noise, 1, 1).fill_uniform(pixels);
  return pixels;
}

TEST_CASE("images of any size are corrupted, and stay in [0, 1]", "[corrupted]") {
  for (const std::int64_t channels : {1, 3})
    for (const auto& [height, width] : {std::pair{1, 1}, {1, 5}, {2, 2}, {3, 40}, {33, 7}}) {
      for (std::size_t i = 0; i + 1 < corrupted::names.size(); ++i) {
        const auto which = static_cast<Corruption>(i);
        if (which == Corruption::saturate && channels == 1) continue;
        for (std::int64_t severity = 1; severity <= corrupted::most_severe; ++severity) {
          std::vector<float> pixels = some_pixels(channels * height * width), again = pixels;
          const auto random = corrupted::stream_of(which, 3, 5);
          corrupted::corrupt(which, severity, random, {channels, height, width, pixels});
          corrupted::corrupt(which, severity, random, {channels, height, width, again});
          INFO(corrupted::names[i] << " " << severity << " of " << channels << " x " << height << " x "
                                   << width);
          CHECK(pixels == again);
          CHECK(std::ranges::all_of(pixels, [](float each) { return each >= 0.0f && each <= 1.0f; }));
        }
      }
    }
}

TEST_CASE("black and white images stay numbers", "[corrupted]") {
  for (const float value : {0.0f, 1.0f})
    for (std::size_t i = 0; i + 1 < corrupted::names.size(); ++i) {
      const auto which = static_cast<Corruption>(i);
      std::vector<float> pixels(3 * 8 * 8, value);
      corrupted::corrupt(which, 1, corrupted::stream_of(which, 3, 5), {3, 8, 8, pixels});
      INFO(corrupted::names[i] << " of " << value);
      CHECK(std::ranges::all_of(pixels, [](float each) { return std::isfinite(each); }));
    }
}

TEST_CASE("what a corruption costs", "[.][corrupted_cost]") {
  for (std::size_t i = 0; i + 1 < corrupted::names.size(); ++i) {
    std::cout << corrupted::names[i];
    for (const std::int64_t severity : {1, 3, 5}) {
      const auto which = static_cast<Corruption>(i);
      const std::vector<float> pixels = some_pixels(3 * 32 * 32);
      double least = 1e9;
      for (int round = 0; round < 20; ++round) {
        std::vector<float> image = pixels;
        const auto begun = std::chrono::steady_clock::now();
        corrupted::corrupt(which, severity, corrupted::stream_of(which, 3, round), {3, 32, 32, image});
        const std::chrono::duration<double, std::micro> lasted = std::chrono::steady_clock::now() - begun;
        least = std::min(least, lasted.count());
      }
      std::cout << "  " << std::lround(least);
    }
    std::cout << " microseconds at severity 1, 3, 5\n";
  }
}

}  // namespace corrupted_test
