// Finds samples in the memory of other ranks. Each sample belongs to one rank by its number, whichever rank reads it in an
// epoch, so that an order that changes finds all of them that some rank has read before.
//
// A rank listens on a TCP port and writes where into its folder (`cache-SPLIT.address`), and the others look there when
// they connect: a rank that is replaced by a new process writes a new address. So nothing waits for a collective.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/staged_dataset.hpp>

#include "lib/descriptor.hpp"
#include "memory_level.hpp"

namespace cache {

using trainyard::lib::Descriptor;

/// Gives other ranks the samples that this rank has in memory, and takes those that they decoded in its place.
class SampleServer {
 public:
  /// The others look for the address in `address_file`. `identity`, a word, says what the samples are: a rank whose
  /// samples are others does not connect. `local` says that all ranks are on this machine. Throws DataError if no port
  /// is free.
  SampleServer(MemoryLevel& memory, std::string address_file, const std::string& identity, bool local);
  /// Removes the address file, unless another server has written its own there.
  ~SampleServer();

  /// Writes the address file. Another server, whose dataset was to replace this one and did not, may have written it.
  void publish() const;
  /// Answers until it is asked to stop.
  void serve(const std::stop_token& stop);

 private:
  bool welcome(int connection) const;
  bool answer(int connection);

  MemoryLevel& memory_;
  const std::string address_file_, token_;
  Descriptor listener_;
  std::string address_;  ///< content of the file: host, port, token, identity
};

/// Asks the ranks to which samples belong. Any thread.
class SampleOwners {
 public:
  struct Setup {
    int rank = 0;                            ///< of this process
    std::int64_t shard = 64;                 ///< neighbours that belong to the same rank
    std::string identity;                    ///< as of SampleServer
    std::vector<std::string> address_files;  ///< of each rank
  };
  explicit SampleOwners(Setup setup);
  ~SampleOwners();

  bool is_own(std::int64_t index) const { return owner_of(index) == setup_.rank; }
  /// Returns nothing if the owner does not have the sample or gives no answer.
  std::optional<trainyard::Sample> get(std::int64_t index);
  /// Returns false if the owner gives no answer.
  bool put(std::int64_t index, const trainyard::Sample& sample);
  /// Returns "rank 1 (connection refused)" for each rank that gives no answer now; for each only once.
  std::string silent();

 private:
  struct Owner;
  int owner_of(std::int64_t index) const {
    return static_cast<int>((index / setup_.shard) % static_cast<std::int64_t>(owners_.size()));
  }
  std::optional<std::string> ask(int rank, char what, std::int64_t index, std::string_view bytes);
  Descriptor connection_to(int rank);

  const Setup setup_;
  std::vector<std::unique_ptr<Owner>> owners_;
};

}  // namespace cache
