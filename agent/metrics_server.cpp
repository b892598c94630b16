#include "agent/metrics_server.hpp"

#include "agent/metrics_text.hpp"
#include "common/duration.hpp"
#include "common/text.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <deque>
#include <memory>
#include <string_view>
#include <utility>

namespace acc::agent {

using boost::asio::ip::tcp;

namespace {

constexpr std::size_t kMetricsConnections = 16;
constexpr std::size_t kMetricsRequest = 8192;
constexpr Millis kMetricsPatience{5'000};
constexpr Millis kMetricsPause{100};

std::string http_reply(std::string_view status, std::string_view type, std::string_view body,
                       bool has_body) {
  std::string reply = "HTTP/1.1 " + std::string{status} + "\r\nContent-Type: " + std::string{type} +
                      "\r\nContent-Length: " + std::to_string(body.size()) +
                      "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
  if (has_body) reply.append(body);
  return reply;
}

/// One connection; its handlers keep it alive.
class MetricsSession : public std::enable_shared_from_this<MetricsSession> {
 public:
  MetricsSession(tcp::socket socket, const std::function<std::string()>& render)
      : socket_{std::move(socket)}, deadline_{socket_.get_executor()}, render_{render} {}

  void start() {
    deadline_.expires_after(kMetricsPatience);
    deadline_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
      const auto self = weak.lock();
      if (!cancelled && self) self->close();
    });
    boost::asio::async_read_until(
        socket_, boost::asio::dynamic_buffer(request_, kMetricsRequest), "\r\n\r\n",
        [self = shared_from_this()](boost::system::error_code failed, std::size_t) {
          if (!failed) self->reply();
        });
  }

  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  void reply() {
    reply_ = metrics_reply(request_, render_);
    boost::asio::async_write(socket_, boost::asio::buffer(reply_),
                             [self = shared_from_this()](boost::system::error_code, std::size_t) {
                               self->deadline_.cancel();
                               boost::system::error_code ignored;
                               self->socket_.shutdown(tcp::socket::shutdown_both, ignored);
                             });
  }

  tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  const std::function<std::string()> render_;
  std::string request_;
  std::string reply_;
};

}  // namespace

std::string metrics_reply(std::string_view request, const std::function<std::string()>& render) {
  constexpr std::string_view kText = "text/plain; charset=utf-8";
  const auto words = split(request.substr(0, request.find("\r\n")), ' ');
  if (words.size() != 3 || !words[2].starts_with("HTTP/1."))
    return http_reply("400 Bad Request", kText, "this is no HTTP request\n", true);
  const bool is_head = words[0] == "HEAD";
  if (!is_head && words[0] != "GET")
    return http_reply("405 Method Not Allowed\r\nAllow: GET, HEAD", kText, "only GET\n", true);
  const std::string_view target = words[1];
  if (target.substr(0, target.find('?')) != "/metrics")
    return http_reply("404 Not Found", kText, "there is only /metrics\n", !is_head);
  return http_reply("200 OK", kMetricsContentType, render(), !is_head);
}

class MetricsServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(boost::asio::io_context& io, std::function<std::string()> render)
      : acceptor_{io}, pause_{io}, render_{std::move(render)} {}

  Result<std::string> listen(const std::string& host, std::uint16_t port) {
    const std::string shown = (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":";
    boost::system::error_code failed;
    const auto address =
        boost::asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, failed);
    if (failed) return Error{Errc::bad_usage, in_quotes(host) + " is no address of an interface"};
    acceptor_.open(tcp::endpoint{address, port}.protocol(), failed);
    if (!failed) acceptor_.set_option(tcp::acceptor::reuse_address{true}, failed);
    if (!failed) acceptor_.bind({address, port}, failed);
    if (!failed) acceptor_.listen(boost::asio::socket_base::max_listen_connections, failed);
    if (failed) return system_error(failed.value(), "listen at " + shown + std::to_string(port));
    const auto bound = acceptor_.local_endpoint(failed);
    accept();
    return "http://" + shown + std::to_string(bound.port()) + "/metrics";
  }

  void close() {
    is_closed_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    render_ = [] { return std::string{}; };
  }

 private:
  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](boost::system::error_code failed, tcp::socket socket) {
          if (self->is_closed_) return;
          if (failed) return self->accept_later();  // no descriptor, or the client has gone
          self->begin(std::move(socket));
          self->accept();
        });
  }

  // The oldest makes room: any user of the machine can connect and say nothing.
  void begin(tcp::socket socket) {
    std::erase_if(sessions_, [](const auto& one) { return one.expired(); });
    if (sessions_.size() >= kMetricsConnections) {
      if (const auto oldest = sessions_.front().lock()) oldest->close();
      sessions_.pop_front();
    }
    const auto session =
        std::make_shared<MetricsSession>(std::move(socket), [weak = weak_from_this()] {
          const auto alive = weak.lock();
          return alive ? alive->render_() : std::string{};
        });
    sessions_.push_back(session);
    session->start();
  }

  void accept_later() {
    pause_.expires_after(kMetricsPause);
    pause_.async_wait([self = shared_from_this()](boost::system::error_code cancelled) {
      if (!cancelled && !self->is_closed_) self->accept();
    });
  }

  tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::function<std::string()> render_;
  std::deque<std::weak_ptr<MetricsSession>> sessions_;  ///< the oldest first
  bool is_closed_ = false;
};

MetricsServer::MetricsServer(boost::asio::io_context& io, std::function<std::string()> render)
    : impl_{std::make_shared<Impl>(io, std::move(render))} {}

MetricsServer::~MetricsServer() { impl_->close(); }

Result<std::string> MetricsServer::listen(const std::string& host, std::uint16_t port) {
  return impl_->listen(host, port);
}

void MetricsServer::close() { impl_->close(); }

}  // namespace acc::agent
