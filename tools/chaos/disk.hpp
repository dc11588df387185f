// A disk that keeps no more than it has to: what can be found on it after the power failed, from the calls
// that were made before.
//
// A file holds what it held at its last sync; of what was written since, nothing, all, the first half, zeros
// in its place, or the last write alone. A folder holds the names that it held at its last sync; of what was
// done to them since, any part, in the order in which it was done: as POSIX allows. Most file systems keep
// more: their journal keeps the names of all folders up to one moment (Crash::ordered).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace trainyard::chaos {

/// One call that changed a file or a folder, or waited for the disk. Nodes are numbered as they are made; 0
/// is the folder that everything lies in.
struct Call {
  enum class What : std::uint8_t { make_file, make_folder, remove, rename, exchange, write, cut, sync, mark };
  What what;
  int node = 0;    ///< that is made, written, cut or synced; of the others the folder of the names
  int folder = 0;  ///< in which a node is made
  std::string name, to;
  std::int64_t offset = 0;  ///< of a write; the size after a cut; the number of a mark
  std::string bytes;
};

/// What a disk holds: paths below its folder, the content of each file; folders have none.
using Tree = std::map<std::string, std::optional<std::string>>;

struct Crash {
  Tree tree;
  bool ordered;  ///< no name is newer than one that is missing
};

class Disk {
 public:
  Disk() { nodes_[0] = {.folder = true}; }

  void apply(const Call& call) {
    using enum Call::What;
    ++time_;
    switch (call.what) {
      case mark: return;
      case make_file:
      case make_folder:
        nodes_[call.node] = {.folder = call.what == make_folder};
        nodes_.at(call.folder).pending.push_back({time_, &call});
        return;
      case sync: settle(nodes_.at(call.node)); return;
      default: nodes_.at(call.node).pending.push_back({time_, &call});
    }
  }

  /// With everything that was done: what the real disk shows.
  Tree whole() const {
    return tree([](const Pending&) { return true; }, [](int) { return Fate::whole; });
  }

  /// Trees that a crash now may leave, each once: all where there are no more than `most` choices of names,
  /// else a sample that has those of every moment and those with one change missing, or one alone.
  void crashes(std::mt19937_64& random, std::size_t most,
               const std::function<void(const Crash&)>& see) const {
    std::vector<Pending> names;
    std::vector<int> files;
    for (const int node : reachable()) {
      const Node& each = nodes_.at(node);
      if (each.folder)
        names.insert(names.end(), each.pending.begin(), each.pending.end());
      else if (!each.pending.empty())
        files.push_back(node);
    }
    std::sort(names.begin(), names.end(), [](const Pending& a, const Pending& b) { return a.time < b.time; });
    std::unordered_set<std::string> seen;
    for (const std::vector<bool>& kept : choices(names.size(), most, random)) {
      const bool ordered = std::is_sorted(kept.rbegin(), kept.rend());
      std::set<std::int64_t> times;
      for (std::size_t i = 0; i < names.size(); ++i)
        if (kept[i]) times.insert(names[i].time);
      const auto had = [&](const Pending& each) { return times.contains(each.time); };
      const auto look = [&](const std::function<Fate(int)>& fate) {
        Crash crash{tree(had, fate), ordered};
        if (seen.insert(key(crash)).second) see(crash);
      };
      look([](int) { return Fate::whole; });
      if (files.empty()) continue;
      for (const Fate fate : {Fate::absent, Fate::torn, Fate::zeros, Fate::last})
        look([=](int) { return fate; });
      if (files.size() == 1) continue;
      std::map<int, Fate> mixed;
      for (const int file : files) mixed[file] = static_cast<Fate>(random() % 5);
      look([&](int file) { return mixed.contains(file) ? mixed.at(file) : Fate::whole; });
    }
  }

 private:
  struct Pending {
    std::int64_t time;
    const Call* call;
  };
  struct Node {
    bool folder = false;
    std::string content;                 ///< of a file, at its last sync
    std::map<std::string, int> entries;  ///< of a folder, the same
    std::vector<Pending> pending;
  };
  /// Of what was written to a file since its sync.
  enum class Fate : std::uint8_t { whole, absent, torn, zeros, last };
  using Entries = std::map<std::string, int>;

  static void change(Entries& entries, const Call& call) {
    using enum Call::What;
    switch (call.what) {
      case make_file:
      case make_folder: entries[call.name] = call.node; return;
      case remove: entries.erase(call.name); return;
      case rename:
        if (const auto found = entries.find(call.name); found != entries.end()) {
          const int node = found->second;
          entries.erase(found);
          entries[call.to] = node;
        }
        return;
      case exchange:
        if (entries.contains(call.name) && entries.contains(call.to))
          std::swap(entries[call.name], entries[call.to]);
        return;
      default: throw std::logic_error("not a change of names");
    }
  }

  static void change(std::string& content, const Call& call, const std::string& bytes) {
    const auto offset = static_cast<std::size_t>(call.offset);
    if (call.what == Call::What::cut) return content.resize(offset);
    content.resize(std::max(content.size(), offset + bytes.size()));
    content.replace(offset, bytes.size(), bytes);
  }

  void settle(Node& node) {
    for (const Pending& each : node.pending)
      if (node.folder)
        change(node.entries, *each.call);
      else
        change(node.content, *each.call, each.call->bytes);
    node.pending.clear();
  }

  static std::string content(const Node& file, Fate fate) {
    std::string content = file.content;
    std::size_t left = 0;
    for (const Pending& each : file.pending) left += each.call->bytes.size();
    left = fate == Fate::torn ? left / 2 : left;
    for (const Pending& each : file.pending) {
      if (fate == Fate::absent) break;
      const std::string& bytes = each.call->bytes;
      const bool lost = fate == Fate::zeros || (fate == Fate::last && each.call != file.pending.back().call);
      const std::size_t length = std::min(left, bytes.size());
      change(content, *each.call, lost ? std::string(bytes.size(), '\0') : bytes.substr(0, length));
      left -= length;
      if (left == 0) break;
    }
    return content;
  }

  /// Nodes that some crash may leave a name for.
  std::set<int> reachable() const {
    std::set<int> found;
    const std::function<void(int)> visit = [&](int number) {
      if (!found.insert(number).second) return;
      const Node& node = nodes_.at(number);
      for (const auto& [name, child] : node.entries) visit(child);
      if (!node.folder) return;
      for (const Pending& each : node.pending)
        if (each.call->what == Call::What::make_file || each.call->what == Call::What::make_folder)
          visit(each.call->node);
    };
    visit(0);
    return found;
  }

  Tree tree(const std::function<bool(const Pending&)>& had, const std::function<Fate(int)>& fate) const {
    Tree tree;
    const std::function<void(int, const std::string&)> add = [&](int number, const std::string& path) {
      const Node& node = nodes_.at(number);
      if (!node.folder) {
        tree[path] = content(node, fate(number));
        return;
      }
      if (!path.empty()) tree[path] = std::nullopt;
      Entries entries = node.entries;
      for (const Pending& each : node.pending)
        if (had(each)) change(entries, *each.call);
      for (const auto& [name, child] : entries) add(child, path.empty() ? name : path + "/" + name);
    };
    add(0, "");
    return tree;
  }

  static std::vector<std::vector<bool>> choices(std::size_t count, std::size_t most,
                                                std::mt19937_64& random) {
    std::vector<std::vector<bool>> made;
    if (count < 20 && std::size_t{1} << count <= most) {
      for (std::size_t bits = 0; bits < std::size_t{1} << count; ++bits) {
        std::vector<bool>& choice = made.emplace_back(count);
        for (std::size_t i = 0; i < count; ++i) choice[i] = (bits >> i & 1) != 0;
      }
      return made;
    }
    for (std::size_t i = 0; i <= count; ++i) {
      std::vector<bool>& moment = made.emplace_back(count);
      std::fill_n(moment.begin(), i, true);
      if (i == count) break;
      made.emplace_back(count, true)[i] = false;
      made.emplace_back(count)[i] = true;
    }
    while (made.size() < most) {
      std::vector<bool>& choice = made.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) choice[i] = (random() & 1) != 0;
    }
    return made;
  }

  static std::string key(const Crash& crash) {
    std::string key = crash.ordered ? "o" : "r";
    for (const auto& [path, content] : crash.tree) {
      key += path;
      key += content ? '\1' : '\2';
      key += std::to_string(content ? content->size() : 0) + ':';
      if (content) key += *content;
    }
    return key;
  }

  std::map<int, Node> nodes_;
  std::int64_t time_ = 0;
};

}  // namespace trainyard::chaos
