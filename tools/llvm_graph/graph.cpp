// Makes a graph of a trace: a node an executed instruction, an edge from the one that computes a value to each that uses it, and from
// a store to the loads that read what it wrote.
//   llvm_graph trace.bin graph.edges graph.costs [graph.nodes]
// A memory operation costs 4, any other instruction 1; an edge weighs as much as the instruction that it comes from. graph.nodes
// has the name of each node's instruction. One thread is followed; what functions do that were not instrumented, is not seen.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using Node = std::int64_t;
constexpr Node none = -1;

enum class Kind { load, store, both, copy, set, phi, call, ret, other };

struct Operand {
  char from;  ///< 'i': an instruction, 'a': an argument, '-': neither
  std::size_t number;
};

struct Instruction {
  std::string name;
  Kind kind;
  std::int64_t
      number;  ///< bytes of a memory operation; the function that a call is to, -1: of another module
  std::vector<Operand> operands;
  std::vector<std::size_t> blocks;  ///< of a phi: the block that each operand is for
  std::size_t id;
};

struct Block {
  std::size_t function;
  bool is_entry;
  std::vector<Instruction> instructions;
};

struct Module {
  std::vector<Block> blocks;
};

struct Event {
  enum What : std::uint8_t { end, block, address, length, returned } what;
  std::uint64_t value;
};

[[noreturn]] void fail(const std::string& message) {
  throw std::runtime_error(message);
}

Operand operand_of(const std::string& text) {
  return {text[0], text.size() > 1 ? std::stoul(text.substr(1)) : 0};
}

Kind kind_of(const std::string& word) {
  const std::map<std::string, Kind> kinds = {
      {"load", Kind::load}, {"store", Kind::store}, {"both", Kind::both},
      {"copy", Kind::copy}, {"set", Kind::set},     {"phi", Kind::phi},
      {"call", Kind::call}, {"ret", Kind::ret},     {"other", Kind::other}};
  const auto found = kinds.find(word);
  if (found == kinds.end()) fail("the trace has an instruction of no kind: " + word);
  return found->second;
}

Instruction instruction_of(std::istringstream& line, std::size_t id) {
  Instruction made;
  made.id = id;
  std::string kind, word;
  line >> made.name >> kind >> made.number;
  made.kind = kind_of(kind);
  while (line >> word) {
    if (made.kind == Kind::phi) {
      made.blocks.push_back(std::stoul(word));
      line >> word;
    }
    made.operands.push_back(operand_of(word));
  }
  return made;
}

class Trace {
 public:
  explicit Trace(const std::string& path) : file_(path, std::ios::binary) {
    if (!file_) fail(path + ": cannot be read");
    std::size_t function = 0, id = 0;
    bool is_entry = false;
    for (std::string text; std::getline(file_, text) && text != "T";) {
      std::istringstream line(text);
      std::string what;
      line >> what;
      if (what == "M") {
        modules.emplace_back();
        id = 0;
      } else if (what == "F") {
        line >> function;
        is_entry = true;
      } else if (what == "B") {
        modules.back().blocks.push_back({function, std::exchange(is_entry, false), {}});
      } else if (what == "I") {
        modules.back().blocks.back().instructions.push_back(instruction_of(line, id++));
      }
    }
    if (modules.empty()) fail(path + ": is no trace");
    next();
  }
  const Event& look() const { return ahead_; }
  Event next() {
    const Event now = ahead_;
    std::uint64_t word = 0;
    file_.read(reinterpret_cast<char*>(&word), sizeof word);
    ahead_ =
        file_ ? Event{static_cast<Event::What>(word >> 56), word & 0xffffffffffffff} : Event{Event::end, 0};
    return now;
  }
  std::uint64_t expect(Event::What what) {
    const Event event = next();
    if (event.what != what) fail("the trace does not go on as its program says: was it cut off?");
    return event.value;
  }
  const Block& block(std::uint64_t value) const {
    return modules.at(value >> 32).blocks.at(value & 0xffffffff);
  }

  std::vector<Module> modules;

 private:
  std::ifstream file_;
  Event ahead_{Event::end, 0};
};

class Graph {
 public:
  Graph(Trace& trace, const std::string& edges, const std::string& costs)
      : trace_(trace), edges_(edges), costs_(costs) {
    if (!edges_ || !costs_) fail("the files of the graph cannot be written");
  }

  void run() {
    while (trace_.look().what == Event::block) call({});
    if (trace_.look().what != Event::end)
      fail("the trace goes on where nothing runs: were several threads traced?");
    edges_.close();
    costs_.close();
    if (!edges_ || !costs_) fail("the files of the graph cannot be written");
  }

  std::vector<std::string> names;
  std::size_t edges = 0;

 private:
  struct Frame {
    std::vector<Node> arguments;
    std::unordered_map<std::size_t, Node> values;  ///< by instruction
  };

  Node node(const Instruction& instruction) {
    const bool is_memory = instruction.kind != Kind::phi && instruction.kind <= Kind::set;
    weights_.push_back(is_memory ? 4 : 1);
    costs_ << weights_.back() << '\n';
    names.push_back(instruction.name);
    return static_cast<Node>(weights_.size()) - 1;
  }
  void edge(Node from, Node to) {
    if (from == none) return;
    edges_ << from << ' ' << to << ' ' << weights_[static_cast<std::size_t>(from)] << '\n';
    ++edges;
  }
  static Node value_of(const Frame& frame, const Operand& operand) {
    if (operand.from == 'a')
      return operand.number < frame.arguments.size() ? frame.arguments[operand.number] : none;
    if (operand.from != 'i') return none;
    const auto found = frame.values.find(operand.number);
    return found == frame.values.end() ? none : found->second;
  }

  void read(std::uint64_t address, std::uint64_t bytes, Node reader) {
    Node last = none;
    std::vector<Node> seen;
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const auto found = written_.find(address + i);
      if (found == written_.end() || found->second == last) continue;
      last = found->second;
      if (std::find(seen.begin(), seen.end(), last) != seen.end()) continue;
      seen.push_back(last);
      edge(last, reader);
    }
  }
  void write(std::uint64_t address, std::uint64_t bytes, Node writer) {
    for (std::uint64_t i = 0; i < bytes; ++i) written_[address + i] = writer;
  }

  /// Follows memory, behind the edges of the operands.
  void touch(const Instruction& instruction, Node self) {
    const auto bytes = static_cast<std::uint64_t>(instruction.number);
    switch (instruction.kind) {
      case Kind::load: read(trace_.expect(Event::address), bytes, self); break;
      case Kind::store: write(trace_.expect(Event::address), bytes, self); break;
      case Kind::both: {
        const std::uint64_t address = trace_.expect(Event::address);
        read(address, bytes, self);
        write(address, bytes, self);
        break;
      }
      case Kind::copy: {
        const std::uint64_t to = trace_.expect(Event::address), from = trace_.expect(Event::address);
        const std::uint64_t length = trace_.expect(Event::length);
        read(from, length, self);
        write(to, length, self);
        break;
      }
      case Kind::set: {
        const std::uint64_t to = trace_.expect(Event::address);
        write(to, trace_.expect(Event::length), self);
        break;
      }
      default: break;
    }
  }

  /// Follows a call until it returns; the value of one of an instrumented function is what that returned.
  Node follow(const Instruction& instruction, const std::vector<Node>& arguments, Node self) {
    Node value = self;
    while (trace_.look().what == Event::block) {
      const Node returned = call(instruction.number >= 0 ? arguments : std::vector<Node>());
      if (instruction.number >= 0 && returned != none) value = returned;
    }
    trace_.expect(Event::returned);
    return value;
  }

  /// Follows a function from its first block on. Returns the node of what it returns.
  Node call(std::vector<Node> arguments) {
    Frame frame;
    frame.arguments = std::move(arguments);
    std::size_t before = 0;
    if (!trace_.block(trace_.look().value).is_entry) fail("the trace begins in the middle of a function");
    for (;;) {
      const std::uint64_t value = trace_.expect(Event::block);
      const Block& block = trace_.block(value);
      std::vector<std::pair<std::size_t, Node>> phis;  // all of a block are computed at once
      for (const Instruction& each : block.instructions) {
        const Node self = node(each);
        if (each.kind == Kind::phi) {
          for (std::size_t i = 0; i < each.operands.size(); ++i)
            if (each.blocks[i] == before) {
              edge(value_of(frame, each.operands[i]), self);
              break;
            }
          phis.emplace_back(each.id, self);
          continue;
        }
        for (const auto& [id, phi] : phis) frame.values[id] = phi;
        phis.clear();
        std::vector<Node> operands;
        for (const Operand& operand : each.operands) {
          operands.push_back(value_of(frame, operand));
          edge(operands.back(), self);
        }
        touch(each, self);
        frame.values[each.id] = each.kind == Kind::call ? follow(each, operands, self) : self;
        if (each.kind == Kind::ret) return operands.empty() ? none : self;
      }
      before = value & 0xffffffff;
    }
  }

  Trace& trace_;
  std::ofstream edges_, costs_;
  std::vector<int> weights_;
  std::unordered_map<std::uint64_t, Node> written_;  ///< by byte: the last store
};

}  // namespace

int main(int count, char** words) {
  if (count != 4 && count != 5) {
    std::cerr << "llvm_graph trace.bin graph.edges graph.costs [graph.nodes]\n";
    return 2;
  }
  try {
    Trace trace(words[1]);
    Graph graph(trace, words[2], words[3]);
    graph.run();
    if (count == 5) {
      std::ofstream file(words[4]);
      for (const std::string& name : graph.names) file << name << '\n';
    }
    std::size_t instructions = 0;
    for (const Module& module : trace.modules)
      for (const Block& block : module.blocks) instructions += block.instructions.size();
    std::cout << instructions << " instructions, " << graph.names.size() << " nodes, " << graph.edges
              << " edges\n";
  } catch (const std::exception& error) {
    std::cerr << "llvm_graph: " << error.what() << '\n';
    return 1;
  }
}
