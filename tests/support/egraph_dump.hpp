// E-graphs as JSON, as the collection extraction-gym has them (https://github.com/egraphs-good/extraction-gym, MIT).
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "plugins/transform/tensat/extraction.hpp"

namespace egraph_dump {

/// The dumps in a folder and in those below it, sorted.
inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder))
    if (each.path().extension() == ".json") found.push_back(each.path());
  std::ranges::sort(found);
  return found;
}

/// Those that are there; empty: nobody said where.
inline std::vector<std::filesystem::path> files() {
  if (const char* const named = std::getenv("TRAINYARD_EGRAPHS")) return files_in(named);
  if (const char* const data = std::getenv("TRAINYARD_DATA")) {
    const std::filesystem::path place = std::filesystem::path(data) / "compiler/egraphs";
    if (std::filesystem::exists(place)) return files_in(place);
  }
  return {};
}

inline tensat::Problem read(const std::filesystem::path& path) {
  const nlohmann::json dump = nlohmann::json::parse(std::ifstream(path));
  std::map<std::string, std::uint32_t> classes;
  const auto number = [&](const std::string& name) {
    return classes.try_emplace(name, static_cast<std::uint32_t>(classes.size())).first->second;
  };
  tensat::Problem problem;
  for (const auto& [name, node] : dump.at("nodes").items()) {
    std::vector<std::uint32_t> children;
    for (const std::string child : node.at("children"))
      children.push_back(number(dump.at("nodes").at(child).at("eclass").get<std::string>()));
    problem.add(number(node.at("eclass").get<std::string>()), node.at("cost").get<double>(),
                std::move(children));
  }
  for (const std::string root : dump.at("root_eclasses")) problem.roots.push_back(number(root));
  return problem;
}

/// What a choice costs, each class once, by Kahn's order of its classes; nothing where it lacks one or is cyclic.
inline std::optional<double> cost_of(const tensat::Problem& problem, const tensat::Choice& choice) {
  std::vector<std::vector<std::uint32_t>> users(problem.classes.size());
  std::vector<std::size_t> missing(problem.classes.size(), 0);
  std::vector<bool> needed(problem.classes.size(), false);
  std::vector<std::uint32_t> all;
  const auto need = [&](std::uint32_t of) {
    if (!needed[of]) all.push_back(of);
    needed[of] = true;
  };
  for (const std::uint32_t root : problem.roots) need(root);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (choice[all[i]] < 0) return std::nullopt;
    for (const std::uint32_t child : problem.nodes[static_cast<std::size_t>(choice[all[i]])].children) {
      users[child].push_back(all[i]);
      ++missing[all[i]];
      need(child);
    }
  }
  std::vector<std::uint32_t> ready;
  for (const std::uint32_t of : all)
    if (missing[of] == 0) ready.push_back(of);
  double cost = 0.0;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    cost += problem.nodes[static_cast<std::size_t>(choice[ready[i]])].cost;
    for (const std::uint32_t user : users[ready[i]])
      if (--missing[user] == 0) ready.push_back(user);
  }
  if (ready.size() != all.size()) return std::nullopt;
  return cost;
}

}  // namespace egraph_dump
