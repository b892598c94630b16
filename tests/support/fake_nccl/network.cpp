#include "tests/support/fake_nccl/network.hpp"

#include "tests/support/fake_nccl/wire.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace acc::fake {
namespace {

using runtime::BFloat16;
using runtime::DType;
using runtime::Half;
using runtime::ReduceOp;
using Bytes = std::vector<char>;

/// One operation that a rank has asked for.
struct Wish {
  Item item;
  Bytes payload;
  Bytes answer;
  bool done = false;
};
struct Request {
  std::vector<Wish> wishes;
};

struct Rank {
  int fd = -1;
  int number = -1;
  std::vector<char> inbox;
  std::optional<Request> request;  ///< being worked on
};

template <class Stored, class Sum>
void reduce_as(const std::vector<const char*>& inputs, std::size_t count, ReduceOp op, char* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto load = [&](std::size_t rank) {
      Stored value;
      std::memcpy(&value, inputs[rank] + i * sizeof(Stored), sizeof value);
      return static_cast<Sum>(value);
    };
    Sum total = load(0);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const Sum next = load(rank);
      switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          total = static_cast<Sum>(total + next);
          break;
        case ReduceOp::prod:
          total = static_cast<Sum>(total * next);
          break;
        case ReduceOp::min:
          total = next < total ? next : total;
          break;
        case ReduceOp::max:
          total = total < next ? next : total;
          break;
      }
    }
    if (op == ReduceOp::avg) total = static_cast<Sum>(total / static_cast<Sum>(inputs.size()));
    const Stored stored{static_cast<Stored>(total)};
    std::memcpy(out + i * sizeof(Stored), &stored, sizeof stored);
  }
}

void reduce(const std::vector<const char*>& inputs, std::size_t count, DType type, ReduceOp op,
            char* out) {
  switch (type) {
    case DType::i8:
      return reduce_as<std::int8_t, std::int64_t>(inputs, count, op, out);
    case DType::u8:
      return reduce_as<std::uint8_t, std::uint64_t>(inputs, count, op, out);
    case DType::i32:
      return reduce_as<std::int32_t, std::int64_t>(inputs, count, op, out);
    case DType::u32:
      return reduce_as<std::uint32_t, std::uint64_t>(inputs, count, op, out);
    case DType::i64:
      return reduce_as<std::int64_t, std::int64_t>(inputs, count, op, out);
    case DType::u64:
      return reduce_as<std::uint64_t, std::uint64_t>(inputs, count, op, out);
    case DType::f16:
      return reduce_as<Half, float>(inputs, count, op, out);
    case DType::f32:
      return reduce_as<float, float>(inputs, count, op, out);
    case DType::f64:
      return reduce_as<double, double>(inputs, count, op, out);
    case DType::bf16:
      return reduce_as<BFloat16, float>(inputs, count, op, out);
  }
}

class Network {
 public:
  explicit Network(int listener) : listener_{listener} {}
  ~Network() {
    ::close(listener_);
    for (auto& rank : ranks_) ::close(rank->fd);
  }

  void run() {
    bool began = false;
    while (!began || !ranks_.empty()) {
      std::vector<pollfd> ports{{listener_, POLLIN, 0}};
      for (const auto& rank : ranks_) ports.push_back({rank->fd, POLLIN, 0});
      // A network whose ranks never come must not outlive the test for long.
      if (::poll(ports.data(), ports.size(), 60'000) <= 0 && !began) return;
      std::vector<Rank*> gone;
      for (std::size_t i = 1; i < ports.size(); ++i) {
        if (ports[i].revents != 0 && !take(*ranks_[i - 1])) gone.push_back(ranks_[i - 1].get());
      }
      std::erase_if(ranks_, [&](const auto& rank) {
        const bool over = std::find(gone.begin(), gone.end(), rank.get()) != gone.end();
        if (over) ::close(rank->fd);
        return over;
      });
      if (ports[0].revents != 0) {
        accept();
        began = true;
      }
      serve();
    }
  }

 private:
  void accept() {
    auto rank = std::make_unique<Rank>();
    rank->fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (rank->fd >= 0) ranks_.push_back(std::move(rank));
  }

  /// Reads what has come. false: it hung up.
  bool take(Rank& rank) {
    char buffer[64 * 1024];
    const auto got = ::recv(rank.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    rank.inbox.insert(rank.inbox.end(), buffer, buffer + got);
    if (rank.number < 0 && rank.inbox.size() >= sizeof(Hello)) {
      Hello hello;
      std::memcpy(&hello, rank.inbox.data(), sizeof hello);
      rank.inbox.erase(rank.inbox.begin(), rank.inbox.begin() + sizeof hello);
      rank.number = hello.rank;
      size_ = hello.size;
      if (++joined_ == size_) {
        for (const auto& one : ranks_) (void)write_all(one->fd, "!", 1);
      }
    }
    if (rank.number >= 0 && !rank.request) read_request(rank);
    return true;
  }

  void read_request(Rank& rank) {
    const auto& inbox = rank.inbox;
    std::uint64_t count = 0;
    if (inbox.size() < sizeof count) return;
    std::memcpy(&count, inbox.data(), sizeof count);
    std::size_t at = sizeof count;
    Request request;
    for (std::uint64_t i = 0; i < count; ++i) {
      Wish wish;
      if (inbox.size() < at + sizeof wish.item) return;
      std::memcpy(&wish.item, inbox.data() + at, sizeof wish.item);
      at += sizeof wish.item;
      if (inbox.size() < at + wish.item.bytes) return;
      wish.payload.assign(inbox.begin() + static_cast<std::ptrdiff_t>(at),
                          inbox.begin() + static_cast<std::ptrdiff_t>(at + wish.item.bytes));
      at += wish.item.bytes;
      request.wishes.push_back(std::move(wish));
    }
    rank.inbox.erase(rank.inbox.begin(), rank.inbox.begin() + static_cast<std::ptrdiff_t>(at));
    rank.request = std::move(request);
  }

  Rank* rank_of(int number) {
    for (const auto& rank : ranks_) {
      if (rank->number == number) return rank.get();
    }
    return nullptr;
  }
  static bool is_pairwise(Kind kind) { return kind == Kind::send || kind == Kind::recv; }
  static Wish* next(Rank* rank, auto&& fits) {
    if (rank == nullptr || !rank->request) return nullptr;
    for (auto& wish : rank->request->wishes) {
      if (!wish.done && fits(wish)) return &wish;
    }
    return nullptr;
  }

  void serve() {
    if (size_ == 0 || joined_ < size_) return;
    while (serve_collective() || serve_pair()) {
    }
    for (const auto& rank : ranks_) {
      if (!rank->request) continue;
      bool all = true;
      for (const auto& wish : rank->request->wishes) all = all && wish.done;
      if (!all) continue;
      for (const auto& wish : rank->request->wishes) {
        (void)write_all(rank->fd, wish.answer.data(), wish.answer.size());
      }
      (void)write_all(rank->fd, "!", 1);
      rank->request.reset();
    }
  }

  bool serve_pair() {
    for (const auto& rank : ranks_) {
      if (!rank->request) continue;
      for (auto& wish : rank->request->wishes) {
        if (wish.done || wish.item.kind != Kind::send) continue;
        auto* const other = next(rank_of(wish.item.peer), [&](const Wish& w) {
          return w.item.kind == Kind::recv && w.item.peer == rank->number;
        });
        if (other == nullptr || other->item.count != wish.item.count ||
            other->item.type != wish.item.type)
          continue;
        other->answer = wish.payload;
        other->done = wish.done = true;
        return true;
      }
    }
    return false;
  }

  bool serve_collective() {
    std::vector<Wish*> wishes;
    for (int number = 0; number < size_; ++number) {
      auto* const wish =
          next(rank_of(number), [](const Wish& w) { return !is_pairwise(w.item.kind); });
      if (wish == nullptr) return false;
      const auto& first = wishes.empty() ? wish->item : wishes.front()->item;
      if (wish->item.kind != first.kind || wish->item.type != first.type ||
          wish->item.op != first.op || wish->item.peer != first.peer ||
          wish->item.count != first.count)
        return false;
      wishes.push_back(wish);
    }
    carry_out(wishes);
    for (auto* wish : wishes) wish->done = true;
    return true;
  }

  void carry_out(const std::vector<Wish*>& wishes) const {
    const auto& item = wishes.front()->item;
    const auto type = static_cast<DType>(item.type);
    const auto one = item.count * size_of(type);
    std::vector<const char*> inputs;
    for (auto* wish : wishes) inputs.push_back(wish->payload.data());
    const auto reduced = [&](std::size_t offset) {
      std::vector<const char*> shifted;
      for (const auto* input : inputs) shifted.push_back(input + offset);
      Bytes out(one);
      reduce(shifted, item.count, type, static_cast<ReduceOp>(item.op), out.data());
      return out;
    };
    switch (item.kind) {
      case Kind::all_reduce: {
        const auto out = reduced(0);
        for (auto* wish : wishes) wish->answer = out;
        break;
      }
      case Kind::reduce:
        wishes[static_cast<std::size_t>(item.peer)]->answer = reduced(0);
        break;
      case Kind::broadcast:
        for (auto* wish : wishes) {
          wish->answer = wishes[static_cast<std::size_t>(item.peer)]->payload;
        }
        break;
      case Kind::all_gather: {
        Bytes all;
        for (auto* wish : wishes) {
          all.insert(all.end(), wish->payload.begin(), wish->payload.end());
        }
        for (auto* wish : wishes) wish->answer = all;
        break;
      }
      case Kind::reduce_scatter:
        for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
          wishes[rank]->answer = reduced(rank * one);
        }
        break;
      case Kind::send:
      case Kind::recv:
        break;
    }
  }

  int listener_;
  int size_ = 0;
  int joined_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace

std::string start_network() {
  static std::atomic<int> number{0};
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return {};
  auto name = "acc-fake-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, 64) != 0) {
    ::close(listener);
    return {};
  }
  std::thread{[listener] { Network{listener}.run(); }}.detach();
  return name;
}

}  // namespace acc::fake
