// Names of tensors with places in them: "h.{layer}.ln_1.{part:weight|bias}".
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace convert {

/// What stands at each place of a name, by the name of the place.
using Places = std::map<std::string, std::string, std::less<>>;

class Pattern {
 public:
  Pattern() = default;
  /// `{layer}` is a number, `{part:weight|bias}` one of these words. Throws ConfigError where it cannot be read.
  explicit Pattern(const std::string& text);

  const std::string& text() const { return text_; }
  std::set<std::string> places() const;
  /// Nothing where the name is none of these. A place that comes twice has to hold the same twice.
  std::optional<Places> match(std::string_view name) const;
  /// The name with these at its places.
  std::string name_of(const Places& places) const;

 private:
  struct Piece {
    std::string text;  ///< as it stands, or the name of a place
    bool is_place = false;
    std::vector<std::string> words;  ///< that a place may be; none: a number
  };
  bool match_from(std::size_t piece, std::string_view rest, Places& found) const;

  std::string text_;
  std::vector<Piece> pieces_;
};

}  // namespace convert
