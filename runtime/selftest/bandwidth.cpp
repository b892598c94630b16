#include "runtime/selftest/bandwidth.hpp"

#include "runtime/selftest/elements.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace acc::selftest {

using namespace runtime;

namespace {

using Clock = std::chrono::steady_clock;

/// What a table is about.
struct Kind {
  std::string operation;
  bool whole = false;  ///< the size is that of all ranks' parts together
  bool reduces = false;
  bool rooted = false;
  double factor = 1;  ///< busbw ÷ algbw
};

Kind kind_of(const std::string& operation, int size) {
  const double n = size;
  const double part = n > 0 ? (n - 1) / n : 0;
  if (operation == "all_reduce") return {operation, false, true, false, 2 * part};
  if (operation == "reduce_scatter") return {operation, true, true, false, part};
  if (operation == "reduce") return {operation, false, true, true, 1};
  if (operation == "broadcast") return {operation, false, false, true, 1};
  const bool rooted = operation == "gather" || operation == "scatter";
  return {operation, true, false, rooted, part};
}

/// Private or shared memory for `count` elements, `misalign` elements behind its begin.
class Buffer {
 public:
  Buffer(ProcessGroup& group, const BandwidthOptions& options, DType type, std::size_t count)
      : first_{options.misalign * size_of(type)} {
    const auto bytes = first_ + count * size_of(type) + 1;
    if (options.registered)
      shared_ = group.allocate_shared(bytes);
    else
      own_.resize(bytes);
  }
  [[nodiscard]] unsigned char* data() {
    return (own_.empty() ? static_cast<unsigned char*>(shared_.data()) : own_.data()) + first_;
  }

 private:
  std::size_t first_;
  std::vector<unsigned char> own_;
  SharedBuffer shared_;
};

struct Timed {
  double us = 0;
  std::optional<std::size_t> wrong;
};

/// One line of a table: an operation with one size, type, reduction and root.
class Line {
 public:
  Line(ProcessGroup& group, const BandwidthOptions& options, const Kind& kind, DType type,
       ReduceOp reduction, int root, std::size_t bytes)
      : group_{group},
        options_{options},
        kind_{kind},
        type_{type},
        reduction_{reduction},
        root_{root},
        ranks_{static_cast<std::size_t>(group.size())},
        count_{bytes / size_of(type) / (kind.whole ? ranks_ : 1)},
        send_{group, options, type, count_ * (kind.whole ? ranks_ : 1)},
        recv_{group, options, type, count_ * (kind.whole ? ranks_ : 1)} {}

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const {
    return count_ * (kind_.whole ? ranks_ : 1) * size_of(type_);
  }

  Timed measure(bool in_place) {
    Timed timed;
    if (options_.checked > 0) timed.wrong = check(in_place);
    for (int i = 0; i < options_.warm_up; ++i) call(in_place);
    group_.barrier();
    const auto began = Clock::now();
    const int calls = options_.iterations * options_.aggregated;
    for (int i = 0; i < calls; ++i) call(in_place);
    const double mine =
        std::chrono::duration<double, std::micro>(Clock::now() - began).count() / calls;
    timed.us = over_ranks(mine);
    return timed;
  }

 private:
  /// -a: rank 0's, the mean, the least or the greatest of the ranks.
  double over_ranks(double mine) {
    constexpr ReduceOp kHow[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max};
    if (options_.average == 0 && group_.rank() != 0) mine = 0;
    group_.all_reduce(&mine, &mine, 1, DType::f64, kHow[options_.average]);
    return mine;
  }

  [[nodiscard]] std::size_t part(int rank) const {
    return static_cast<std::size_t>(rank) * count_ * size_of(type_);
  }

  void call(bool in_place) {
    auto* recv = recv_.data();
    auto* send = in_place ? recv : send_.data();
    const auto& name = kind_.operation;
    if (name == "all_reduce") {
      group_.all_reduce(send, recv, count_, type_, reduction_);
    } else if (name == "reduce") {
      group_.reduce(send, recv, count_, type_, reduction_, root_);
    } else if (name == "broadcast") {
      group_.broadcast(recv, count_, type_, root_);
    } else if (name == "all_gather") {
      group_.all_gather(in_place ? recv + part(group_.rank()) : send, recv, count_, type_);
    } else if (name == "reduce_scatter") {
      group_.reduce_scatter(send, in_place ? recv + part(group_.rank()) : recv, count_, type_,
                            reduction_);
    } else if (name == "gather") {
      group_.gather(send_.data(), recv, count_, type_, root_);
    } else if (name == "scatter") {
      group_.scatter(send_.data(), recv, count_, type_, root_);
    } else {
      group_.all_to_all(send_.data(), recv, count_, type_);
    }
  }

  /// Fresh values, one call; elements that differ from what must be there.
  std::size_t check(bool in_place) {
    const std::size_t all = count_ * (kind_.whole ? ranks_ : 1);
    Elements values{type_, all};
    ++iteration_;
    for (std::size_t i = 0; i < all; ++i)
      values.set(i, value_of(reduction_, group_.rank(), group_.size(), i, iteration_));
    fill(values, in_place, all);
    call(in_place);
    std::size_t wrong = 0;
    visit_expected([&](std::size_t place, double expected) {
      Elements one{type_, 1};
      const bool own_part = in_place && kind_.operation == "reduce_scatter";
      std::memcpy(one.data(),
                  recv_.data() + (own_part ? part(group_.rank()) : 0) + place * size_of(type_),
                  size_of(type_));
      wrong += one.get(0) != expected ? 1 : 0;
    });
    group_.all_reduce(&wrong, &wrong, 1, DType::u64);
    return wrong;
  }

  void fill(Elements& values, bool in_place, std::size_t all) {
    std::memset(recv_.data(), 0x7B, all * size_of(type_));
    std::memcpy(send_.data(), values.data(), all * size_of(type_));
    const bool needs_input = in_place || kind_.operation == "broadcast";
    if (!needs_input) return;
    if (kind_.operation == "all_gather")
      std::memcpy(recv_.data() + part(group_.rank()), values.data(), count_ * size_of(type_));
    else
      std::memcpy(recv_.data(), values.data(), all * size_of(type_));
  }

  template <class F>
  void visit_expected(F&& f) const {
    const int me = group_.rank();
    const int n = group_.size();
    const auto first = static_cast<std::size_t>(me) * count_;
    const auto& name = kind_.operation;
    const auto plain = [&](int rank, std::size_t i) {
      return value_of(reduction_, rank, n, i, iteration_);
    };
    if ((name == "reduce" || name == "gather") && me != root_) return;
    const bool gathers = name == "all_gather" || name == "gather" || name == "all_to_all";
    for (std::size_t i = 0; i < count_ * (gathers ? ranks_ : 1); ++i) {
      const int from = static_cast<int>(i / std::max<std::size_t>(count_, 1));
      if (name == "reduce_scatter")
        f(i, reduced(reduction_, type_, n, first + i, iteration_));
      else if (kind_.reduces)
        f(i, reduced(reduction_, type_, n, i, iteration_));
      else if (name == "broadcast")
        f(i, plain(root_, i));
      else if (name == "scatter")
        f(i, plain(root_, first + i));
      else if (name == "all_to_all")
        f(i, plain(from, first + i % count_));
      else
        f(i, plain(from, i % count_));
    }
  }

  ProcessGroup& group_;
  const BandwidthOptions& options_;
  Kind kind_;
  DType type_;
  ReduceOp reduction_;
  int root_;
  std::size_t ranks_;
  std::size_t count_;
  Buffer send_, recv_;
  int iteration_ = 0;
};

std::string columns(const Timed& timed, double algbw, double busbw) {
  char text[96];
  std::snprintf(text, sizeof text, "  %9.2f %7.2f %7.2f %6s", timed.us, algbw, busbw,
                timed.wrong ? std::to_string(*timed.wrong).c_str() : "N/A");
  return text;
}

/// All tables, and the sums for the last lines.
class Tables {
 public:
  Tables(ProcessGroup& group, const BandwidthOptions& options, Results& results)
      : group_{group}, options_{options}, results_{results} {}

  void run() {
    for (const auto& operation : options_.operations) table(kind_of(operation, group_.size()));
    const double average = lines_ > 0 ? sum_busbw_ / static_cast<double>(lines_) : 0;
    char text[160];
    std::snprintf(text, sizeof text,
                  "# Out of bounds values : %zu %s\n# Avg bus bandwidth    : %g\n", wrong_,
                  wrong_ == 0 ? "OK" : "FAILED", average);
    results_.print(text);
    const char* least = std::getenv("NCCL_TESTS_MIN_BW");
    const bool slow = least != nullptr && average < 0.9 * std::atof(least);
    Result result{"bandwidth", wrong_ == 0 && !slow, {}, 0};
    result.found = wrong_ > 0 ? std::to_string(wrong_) + " elements were wrong"
                   : slow     ? "the average bus bandwidth is below 90 % of NCCL_TESTS_MIN_BW"
                              : "every checked element was right";
    results_.tell(result);
  }

 private:
  void table(const Kind& kind) {
    results_.print(
        "#\n# " + kind.operation + ", " + ranks_text(group_) + ", backend " +
        std::string{group_.backend()} + (options_.registered ? ", registered buffers" : "") +
        "\n#                                                          out-of-place              "
        "             in-place\n"
        "#       size         count    type   redop  root       time   algbw   busbw #wrong  "
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                             (us)  (GB/s)  (GB/s)         "
        "     (us)  (GB/s)  (GB/s)\n");
    for (const auto type : options_.types)
      for (const auto reduction : reductions(kind))
        for (int root = 0; root < (kind.rooted ? group_.size() : 1); ++root) {
          if (kind.rooted && options_.root >= 0 && root != options_.root % group_.size()) continue;
          sizes(kind, type, reduction, root);
        }
  }

  [[nodiscard]] std::vector<ReduceOp> reductions(const Kind& kind) const {
    return kind.reduces ? options_.reductions : std::vector{kMoved};
  }

  void sizes(const Kind& kind, DType type, ReduceOp reduction, int root) {
    for (std::size_t bytes = options_.min_bytes; bytes <= options_.max_bytes;) {
      Line line{group_, options_, kind, type, reduction, root, bytes};
      row(kind, type, reduction, root, line);
      if (options_.factor > 0 && bytes > SIZE_MAX / options_.factor) break;
      bytes = options_.factor > 0 ? bytes * options_.factor : bytes + options_.step_bytes;
    }
  }

  void row(const Kind& kind, DType type, ReduceOp reduction, int root, Line& line) {
    char head[128];
    std::snprintf(head, sizeof head, "%12zu %13zu %7s %7s %5s ", line.bytes(), line.count(),
                  std::string{to_string(type)}.c_str(),
                  kind.reduces ? std::string{to_string(reduction)}.c_str() : "none",
                  kind.rooted ? std::to_string(root).c_str() : "-1");
    std::string text = head;
    std::string json = "{\"op\":\"" + kind.operation +
                       "\",\"bytes\":" + std::to_string(line.bytes()) +
                       ",\"count\":" + std::to_string(line.count()) +
                       ",\"ranks\":" + std::to_string(group_.size()) + ",\"dtype\":\"" +
                       std::string{to_string(type)} + "\",\"redop\":\"" +
                       (kind.reduces ? std::string{to_string(reduction)} : "none") +
                       "\",\"root\":" + std::to_string(kind.rooted ? root : -1);
    for (const bool in_place : {false, true}) {
      const auto timed = line.measure(in_place);
      const double algbw = timed.us > 0 ? static_cast<double>(line.bytes()) / timed.us / 1e3 : 0;
      const double busbw = algbw * kind.factor;
      text += columns(timed, algbw, busbw);
      char values[160];
      std::snprintf(
          values, sizeof values,
          ",\"%s\":{\"time_us\":%.3f,\"algbw_GBps\":%.4f,\"busbw_GBps\":%.4f,\"wrong\":%s}",
          in_place ? "in_place" : "out_of_place", timed.us, algbw, busbw,
          timed.wrong ? std::to_string(*timed.wrong).c_str() : "null");
      json += values;
      sum_busbw_ += busbw;
      ++lines_;
      wrong_ += timed.wrong.value_or(0);
    }
    results_.tell_row(text + "\n", json + "}");
  }

  ProcessGroup& group_;
  const BandwidthOptions& options_;
  Results& results_;
  double sum_busbw_ = 0;
  std::size_t lines_ = 0;
  std::size_t wrong_ = 0;
};

}  // namespace

void measure_bandwidth(ProcessGroup& group, const BandwidthOptions& options, Results& results) {
  Tables{group, options, results}.run();
}

}  // namespace acc::selftest
