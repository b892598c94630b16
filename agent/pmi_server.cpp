#include "agent/pmi_server.hpp"

#include "agent/pmi_session.hpp"
#include "common/log.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace acc::agent {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// The store tells its askers apart by number: those of the worker socket count from 0.
constexpr std::uint64_t kFirstNumber = std::uint64_t{1} << 62U;

}  // namespace

// Reads a line, carries it out, writes the answer, and only then reads the next one.
class PmiServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::io_context& io, UniqueFd fd, pmi::WorkerPlace place, const WorkerCalls& calls,
             const OnAbort& on_abort)
      : rank_{place.rank},
        socket_{io, asio::local::stream_protocol{}, fd.release()},
        session_{std::move(place)},
        calls_{&calls},
        on_abort_{&on_abort} {}

  void read_line() {
    asio::async_read_until(socket_, asio::dynamic_buffer(input_, pmi::kMaxLine), '\n',
                           [self = shared_from_this()](error_code error, std::size_t size) {
                             if (self->calls_ == nullptr) return;
                             if (error) return self->close();  // the worker ended
                             const std::string line = self->input_.substr(0, size - 1);
                             self->input_.erase(0, size);
                             self->carry_out(self->session_.on_line(line));
                           });
  }

  void close() {
    const auto* calls = std::exchange(calls_, nullptr);
    if (calls == nullptr) return;
    error_code ignored;
    socket_.close(ignored);
    if (calls->on_gone) calls->on_gone(number());
  }

 private:
  [[nodiscard]] std::uint64_t number() const { return kFirstNumber + rank_.value(); }

  void carry_out(pmi::Step step) {
    std::visit([this](auto& s) { act(s); }, step);
  }
  void act(pmi::Continue& /*unused*/) { read_line(); }
  void act(pmi::Write& write) {
    output_ = std::move(write.text);
    asio::async_write(socket_, asio::buffer(output_),
                      [self = shared_from_this()](error_code error, std::size_t) {
                        if (self->calls_ == nullptr) return;
                        error ? self->close() : self->read_line();
                      });
  }
  void act(pmi::AskStore& ask) {
    calls_->on_kv(number(), std::move(ask.request),
                  [weak = weak_from_this()](const rendezvous::KvReply& reply) {
                    later(weak, [reply](Connection& c) { return c.session_.on_reply(reply); });
                  });
  }
  void act(pmi::AskTable& /*unused*/) {
    calls_->on_table([weak = weak_from_this()](const std::vector<rendezvous::TableRow>& rows) {
      later(weak, [rows](Connection& c) { return c.session_.on_table(rows); });
    });
  }
  void act(pmi::Abort& abort) {
    if (*on_abort_) (*on_abort_)(rank_, abort.code);
    read_line();  // no answer: the worker waits for its end
  }
  void act(pmi::HangUp& hang_up) {
    log::warn("pmi_refused", {{"rank", rank_.value()}, {"why", hang_up.why}});
    close();
  }

  // Not at once: an answer may come out of another connection's question.
  template <class Next>
  static void later(const std::weak_ptr<Connection>& weak, Next next) {
    const auto self = weak.lock();
    if (!self || self->calls_ == nullptr) return;
    asio::post(self->socket_.get_executor(), [self, next = std::move(next)] {
      if (self->calls_ != nullptr) self->carry_out(next(*self));
    });
  }

  Rank rank_;
  asio::local::stream_protocol::socket socket_;
  pmi::Session session_;
  const WorkerCalls* calls_;  ///< null: closed. The server's, which closes all before it ends
  const OnAbort* on_abort_;   ///< as calls_
  std::string input_;
  std::string output_;
};

PmiServer::PmiServer(asio::io_context& io, WorkerCalls calls, OnAbort on_abort)
    : io_{io}, calls_{std::move(calls)}, on_abort_{std::move(on_abort)} {}

PmiServer::~PmiServer() { close(); }

void PmiServer::begin_round(const std::string& space, Rank first, WorldSize world) {
  close();
  space_ = space;
  first_ = first;
  world_ = world;
}

Result<UniqueFd> PmiServer::connect(LocalRank worker) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return system_error(errno, "make a socket pair for PMI");
  UniqueFd ours{ends[0]};
  UniqueFd theirs{ends[1]};
  const Rank rank{first_.value() + worker.value()};
  connections_.push_back(std::make_shared<Connection>(
      io_, std::move(ours), pmi::WorkerPlace{rank, world_, space_}, calls_, on_abort_));
  connections_.back()->read_line();
  return theirs;
}

void PmiServer::close() {
  for (const auto& connection : std::exchange(connections_, {})) connection->close();
}

}  // namespace acc::agent
