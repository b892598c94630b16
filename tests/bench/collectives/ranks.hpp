#pragma once

#include <cstddef>
#include <memory>

/// The ranks of a benchmark, and what it asks of them.
namespace acc::bench {

class Rank {
 public:
  virtual ~Rank() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void barrier() = 0;
  virtual void all_reduce(float* data, std::size_t count) = 0;
  virtual void broadcast(float* data, std::size_t count) = 0;
  virtual void all_gather(const float* send, float* recv, std::size_t count) = 0;
  virtual void gather(const float* send, float* recv, std::size_t count) = 0;
  virtual float* shared(std::size_t bytes) = 0;  ///< registered memory; it lives as long as the rank
};

/// Made before the ranks are forked.
class Job {
 public:
  explicit Job(int ranks);
  ~Job();
  [[nodiscard]] std::unique_ptr<Rank> join(int rank) const;  ///< in the rank's process

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace acc::bench
