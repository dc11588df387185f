#include <trainyard/testing/ranks.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

namespace trainyard::testing {
namespace {

constexpr std::chrono::seconds patience{20};

/// Exchanges tensors between the ranks of a group.
class Table {
 public:
  explicit Table(int size) : size_(static_cast<std::size_t>(size)) {}

  /// Brings a rank's tensor to its next collective. Returns the number of the collective.
  std::int64_t bring(int rank, const std::string& what, const at::Tensor& own) {
    const std::lock_guard lock(mutex_);
    const std::int64_t number = rounds_[rank]++;
    Meeting& meeting = meetings_[number];
    if (meeting.brought.empty()) meeting = {std::vector<at::Tensor>(size_), what};
    if (meeting.what != what)
      fail("rank " + std::to_string(rank) + " calls " + what + ", another " + meeting.what);
    meeting.brought[static_cast<std::size_t>(rank)] = own.detach().clone();
    ++meeting.there;
    arrived_.notify_all();
    return number;
  }
  /// Returns the tensors that all ranks brought to a collective, in their order, once all are there.
  std::vector<at::Tensor> meet(std::int64_t number) {
    std::unique_lock lock(mutex_);
    const Meeting& meeting = meetings_[number];
    const auto over = [&] { return meeting.there == size_ || !broken_.empty(); };
    if (!arrived_.wait_for(lock, patience, over)) fail("not all ranks call " + meeting.what);
    if (meeting.there != size_) throw DistributedError(broken_);
    return meeting.brought;
  }

  void leave(const std::string& why) {
    const std::lock_guard lock(mutex_);
    fail_quietly(why);
  }

  /// Returns the table of some of the ranks, the same for all that ask with the same word.
  std::shared_ptr<Table> part(const std::string& word, int size) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Table>& found = parts_[word];
    if (!found) found = std::make_shared<Table>(size);
    return found;
  }

 private:
  struct Meeting {
    std::vector<at::Tensor> brought;
    std::string what;
    std::size_t there = 0;
  };

  void fail_quietly(const std::string& why) {
    if (broken_.empty()) broken_ = why;
    arrived_.notify_all();
    for (auto& [word, part] : parts_) part->leave(why);
  }
  [[noreturn]] void fail(const std::string& why) {
    fail_quietly(why);
    throw DistributedError(why);
  }

  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<int, std::int64_t> rounds_;  ///< collectives that a rank has called
  std::map<std::int64_t, Meeting> meetings_;
  std::map<std::string, std::shared_ptr<Table>> parts_;
  std::string broken_;
};

/// Waits for the other ranks only in wait().
class Pending final : public Exchange {
 public:
  using Take = std::function<void(const std::vector<at::Tensor>& brought)>;
  Pending(std::shared_ptr<Table> table, std::int64_t number, Take take)
      : table_(std::move(table)), number_(number), take_(std::move(take)) {}
  void wait() override {
    const at::NoGradGuard untracked;
    take_(table_->meet(number_));
  }

 private:
  std::shared_ptr<Table> table_;
  std::int64_t number_;
  Take take_;
};

at::Tensor sum(const std::vector<at::Tensor>& tensors) {
  at::Tensor total = tensors.front().clone();
  for (std::size_t i = 1; i < tensors.size(); ++i) total.add_(tensors[i]);
  return total;
}

std::string text(const char* what, const at::Tensor& tensor) {
  return std::string(what) + " of " + std::to_string(tensor.numel()) + " numbers";
}

class Member {
 public:
  Member(std::shared_ptr<Table> table, int rank, int size)
      : table_(std::move(table)), rank_(rank), size_(size) {}

  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) {
    return begin("all_reduce", tensor, [tensor](const auto& brought) { tensor.copy_(sum(brought)); });
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) {
    return begin("all_gather", own, [all](std::vector<at::Tensor> parts) {
      for (at::Tensor& part : parts) part = part.flatten();
      all.copy_(at::cat(parts).view_as(all));
    });
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) {
    return begin("reduce_scatter", all, [own, rank = rank_](const auto& brought) {
      own.copy_(sum(brought).flatten().narrow(0, rank * own.numel(), own.numel()).view_as(own));
    });
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) {
    return begin("broadcast", tensor, [tensor, root](const auto& brought) {
      tensor.copy_(brought.at(static_cast<std::size_t>(root)));
    });
  }
  std::unique_ptr<Exchange> begin(const char* what, const at::Tensor& own, Pending::Take take) {
    return std::make_unique<Pending>(table_, table_->bring(rank_, text(what, own), own), std::move(take));
  }

  const std::shared_ptr<Table> table_;
  const int rank_, size_;
};

/// Implements the four collectives of `Base` by a Member.
template <class Base>
class Group : public Base {
 public:
  explicit Group(Member member) : member_(std::move(member)) {}
  int rank() const override { return member_.rank_; }
  int size() const override { return member_.size_; }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    return member_.all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    return member_.all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    return member_.reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    return member_.broadcast(tensor, root);
  }

 protected:
  Member member_;
};

class Part final : public Group<RankGroup> {
 public:
  using Group::Group;
};

class All final : public Group<Ranks> {
 public:
  using Group::Group;
  int local_rank() const override { return member_.rank_; }
  int local_size() const override { return member_.size_; }

  std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) override {
    std::string word = std::to_string(groups_++);
    for (const int rank : ranks) word += "," + std::to_string(rank);
    const auto size = static_cast<int>(ranks.size());
    const std::shared_ptr<Table> table = member_.table_->part(word, size);
    const auto own = std::ranges::find(ranks, member_.rank_);
    if (own == ranks.end()) return nullptr;
    return std::make_unique<Part>(Member(table, static_cast<int>(own - ranks.begin()), size));
  }

 private:
  int groups_ = 0;
};

}  // namespace

void on_ranks(int count, const std::function<void(Ranks& ranks)>& body) {
  const auto table = std::make_shared<Table>(count);
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep = [&](int rank, const char* what) {
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
    table->leave("rank " + std::to_string(rank) + " ended: " + what);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        All ranks(Member(table, rank, count));
        body(ranks);
      } catch (const std::exception& error) {
        keep(rank, error.what());
      } catch (...) {
        keep(rank, "something that is no std::exception");
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trainyard::testing
