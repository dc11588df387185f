#include "translate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace convert {
namespace {

using trainyard::ConfigError;
using trainyard::NamedTensor;
using trainyard::shape_text;
using trainyard::Table;

std::string described(const std::string& name, const at::Tensor& tensor) {
  return "\"" + name + "\" " + shape_text(tensor.sizes().vec());
}

bool matches(const std::vector<Pattern>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const Pattern& each) { return each.match(name).has_value(); });
}

/// The line for one of our tensors, with what stands at the places of its name.
std::optional<std::pair<const Line*, Places>> line_of(const Map& map, const std::string& name) {
  for (const Line& line : map.lines)
    if (std::optional<Places> places = line.ours.match(name)) return std::pair(&line, std::move(*places));
  return std::nullopt;
}

/// What is wrong, all of which is told at once.
class Problems {
 public:
  void add(std::string problem) {
    if (list_.size() < most_told) list_.push_back(std::move(problem));
    ++count_;
  }
  void check(const std::string& head) const {
    if (count_ == 0) return;
    std::string text = head;
    for (const std::string& each : list_) text += "\n  " + each;
    if (count_ > list_.size()) text += "\n  and " + std::to_string(count_ - list_.size()) + " more";
    throw ConfigError(text);
  }

 private:
  static constexpr std::size_t most_told = 10;
  std::vector<std::string> list_;
  std::size_t count_ = 0;
};

std::string with_hint(std::string text, const std::string& hint) {
  return hint.empty() ? text : text + ": " + hint;
}

/// The tensors of a file by the names that the map has for them.
class FileTensors {
 public:
  FileTensors(const Map& map, const Tensors& tensors, Problems& problems) : map_(map) {
    for (const NamedTensor& each : tensors)
      if (!by_name_.emplace(full_name(each.name), Entry{&each, false}).second)
        problems.add("the file holds \"" + full_name(each.name) + "\" twice, once without its beginning");
  }

  /// Null where there is none; it is used then.
  const at::Tensor* take(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    found->second.is_used = true;
    return &found->second.tensor->tensor;
  }

  /// Calls left(name, tensor) for each that was not taken.
  template <class Left>
  void each_left(Left&& left) const {
    for (const auto& [name, entry] : by_name_)
      if (!entry.is_used) left(name, entry.tensor->tensor);
  }

 private:
  struct Entry {
    const NamedTensor* tensor;
    bool is_used;
  };

  bool is_known(const std::string& name) const {
    const auto in = [&](const std::vector<Pattern>& patterns) { return matches(patterns, name); };
    return in(map_.ignored) ||
           std::any_of(map_.lines.begin(), map_.lines.end(),
                       [&](const Line& each) { return in(each.file); }) ||
           std::any_of(map_.twins.begin(), map_.twins.end(),
                       [&](const Twin& each) { return each.file.match(name).has_value(); });
  }

  std::string full_name(const std::string& name) const {
    const std::string full = map_.prefix + name;
    return !is_known(name) && is_known(full) ? full : name;
  }

  const Map& map_;
  std::map<std::string, Entry> by_name_;
};

/// One tensor of ours of the file's; nothing, with a problem, where they do not make it.
std::optional<at::Tensor> made(const Line& line, const Places& places, const NamedTensor& own,
                               FileTensors& file, Problems& problems) {
  std::vector<at::Tensor> parts;
  std::string names;
  bool fits = true;
  for (const Pattern& each : line.file) {
    const std::string name = each.name_of(places);
    const at::Tensor* const tensor = file.take(name);
    if (tensor == nullptr) {
      problems.add(with_hint("the file lacks \"" + name + "\", of which " + described(own.name, own.tensor) +
                                 " of the model is made",
                             line.hint));
      fits = false;
      continue;
    }
    names += (names.empty() ? "" : " and ") + described(name, *tensor);
    const bool as_numbers = at::isFloatingType(tensor->scalar_type());
    if (!as_numbers || (line.transpose && tensor->dim() != 2)) {
      problems.add(described(name, *tensor) + " of the file is of " + c10::toString(tensor->scalar_type()) +
                   ", expected floating-point numbers" + (line.transpose ? " of two dimensions" : ""));
      fits = false;
      continue;
    }
    parts.push_back((line.transpose ? tensor->t() : *tensor).to(own.tensor.scalar_type()));
  }
  if (!fits) return std::nullopt;
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const at::Tensor& each) {
    return each.dim() > 0 && each.dim() == own.tensor.dim() &&
           each.sizes().slice(1) == own.tensor.sizes().slice(1);
  });
  std::int64_t rows = 0;
  for (const at::Tensor& each : parts) rows += each.dim() > 0 ? each.size(0) : 0;
  if (!alike || rows != own.tensor.size(0)) {
    problems.add(with_hint(described(own.name, own.tensor) + " of the model does not fit " + names +
                               (line.transpose ? ", transposed, of the file" : " of the file"),
                           line.hint));
    return std::nullopt;
  }
  return (parts.size() == 1 ? parts.front() : at::cat(parts)).contiguous();
}

/// A twin of one of ours may be left over; another tensor may only where the map says so.
void check_left(const Map& map, const FileTensors& file, Translated& result, Problems& problems) {
  file.each_left([&](const std::string& name, const at::Tensor& tensor) {
    const auto twin = std::find_if(map.twins.begin(), map.twins.end(),
                                   [&](const Twin& each) { return each.file.match(name).has_value(); });
    if (twin != map.twins.end()) {
      const auto own = std::find_if(result.tensors.begin(), result.tensors.end(),
                                    [&](const NamedTensor& each) { return each.name == twin->ours; });
      const bool same = own != result.tensors.end() && own->tensor.sizes() == tensor.sizes() &&
                        at::equal(own->tensor, tensor.to(own->tensor.scalar_type()));
      if (!same)
        problems.add(with_hint(described(name, tensor) + " of the file is not the same as \"" + twin->ours +
                                   "\", which stands for it in the model",
                               twin->hint));
    } else if (!matches(map.ignored, name)) {
      problems.add("the file's " + described(name, tensor) + " is of no tensor of the model");
      return;
    }
    result.ignored.push_back(name);
  });
}

std::int64_t option_of(const Table& model, const std::string& share) {
  std::string rest = share;
  while (!rest.empty()) {
    const std::size_t end = rest.find(" or ");
    const trainyard::Value* const value = model.find(rest.substr(0, end));
    if (value != nullptr && value->get_if<std::int64_t>() != nullptr) return value->as<std::int64_t>();
    rest = end == std::string::npos ? "" : rest.substr(end + 4);
  }
  throw ConfigError("the map divides rows by the option \"" + share +
                    "\" of the model, which has no such number");
}

/// How many rows each tensor of the file has of one of ours.
std::vector<std::int64_t> rows_of(const Line& line, const NamedTensor& own, const Table& model) {
  std::vector<std::int64_t> rows(line.file.size(), 1);
  for (std::size_t i = 0; i < line.shares.size(); ++i) rows[i] = option_of(model, line.shares[i]);
  std::int64_t all = 0;
  for (const std::int64_t each : rows) all += each;
  if (own.tensor.dim() == 0 || all <= 0 || own.tensor.size(0) % all != 0)
    throw ConfigError(described(own.name, own.tensor) + " does not divide into " +
                      std::to_string(rows.size()) + " tensors of the file");
  for (std::int64_t& each : rows) each *= own.tensor.size(0) / all;
  return rows;
}

}  // namespace

Translated to_ours(const Map& map, const Tensors& file, const Tensors& ours, const std::string& source) {
  const at::NoGradGuard no_grad;
  Problems problems;
  FileTensors given(map, file, problems);
  Translated result;
  for (const NamedTensor& own : ours) {
    if (matches(map.kept, own.name)) {
      result.tensors.push_back({own.name, own.tensor.detach().contiguous()});
      continue;
    }
    const auto line = line_of(map, own.name);
    if (!line) {
      problems.add("the map has no line for " + described(own.name, own.tensor) + " of the model");
      continue;
    }
    if (std::optional<at::Tensor> tensor = made(*line->first, line->second, own, given, problems))
      result.tensors.push_back({own.name, std::move(*tensor)});
  }
  check_left(map, given, result, problems);
  problems.check(source + " does not fit the model by map \"" + map.name + "\":");
  return result;
}

Tensors to_file(const Map& map, const Tensors& ours, const Table& model) {
  const at::NoGradGuard no_grad;
  Problems problems;
  Tensors file;
  for (const NamedTensor& own : ours) {
    if (matches(map.kept, own.name)) continue;
    const auto line = line_of(map, own.name);
    if (!line) {
      problems.add("the map has no line for " + described(own.name, own.tensor) + " of the model");
      continue;
    }
    std::int64_t row = 0;
    const std::vector<std::int64_t> rows = rows_of(*line->first, own, model);
    for (std::size_t i = 0; i < rows.size(); ++i, row += rows[i - 1]) {
      const at::Tensor part = own.tensor.detach().narrow(0, row, rows[i]);
      file.push_back({line->first->file[i].name_of(line->second),
                      (line->first->transpose ? part.t() : part).contiguous().clone()});
    }
  }
  problems.check("the model does not fit map \"" + map.name + "\":");
  return file;
}

}  // namespace convert
