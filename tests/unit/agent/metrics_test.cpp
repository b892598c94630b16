#include "agent/job_metrics.hpp"
#include "agent/metrics_server.hpp"
#include "agent/metrics_text.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace acc;
using namespace acc::agent;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

JobMetrics two_workers() {
  JobMetrics job;
  job.view.id = "job-1";
  job.view.node = "node \"a\"";
  job.view.state = "running";
  job.view.round = Round{2};
  job.view.ledger.restarts = 2;
  job.view.workers.push_back(
      {Rank{4}, LocalRank{0}, 100, std::nullopt, 1.5, control::ProcessUsage{1'048'576, 0.25}});
  job.view.workers.push_back({Rank{5}, LocalRank{1}, 101, ExitStatus{Exited{0}}, 1.0, {}});
  job.output_bytes = 123'456'789'012;
  return job;
}

template <class Rows>
void check_names(const Rows& rows, std::set<std::string_view>& seen) {
  for (const auto& row : rows) {
    INFO(row.name);
    CHECK(seen.insert(row.name).second);
    CHECK(row.name.starts_with("acc_"));
    CHECK(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string_view::npos);
    CHECK(row.name.ends_with("_total") == (row.kind == MetricKind::counter));
    CHECK(row.help.ends_with('.'));
  }
}

/// What a client reads until the end of the connection.
std::string ask(std::uint16_t port, const std::string& request) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket{io};
  socket.connect({boost::asio::ip::address_v4::loopback(), port});
  std::string reply;
  boost::system::error_code end;
  boost::asio::write(socket, boost::asio::buffer(request), end);
  boost::asio::read(socket, boost::asio::dynamic_buffer(reply), end);
  return reply;
}

}  // namespace

TEST_CASE("metrics have unique names, counters end with _total, and all are explained",
          "[agent][metrics]") {
  std::set<std::string_view> seen;
  check_names(kCommonMetrics, seen);
  check_names(kLaunchMetrics, seen);
  check_names(kDaemonMetrics, seen);
}

TEST_CASE("a scrape has help, type and samples in Prometheus' format", "[agent][metrics]") {
  const auto text = to_metrics(two_workers());
  CHECK_THAT(text, Contains("# HELP acc_job_restarts_total Restarts of the job so far.\n"
                            "# TYPE acc_job_restarts_total counter\n"
                            "acc_job_restarts_total 2\n"));
  CHECK_THAT(text, Contains("acc_job_info{job=\"job-1\",node=\"node \\\"a\\\"\"} 1\n"));
  CHECK_THAT(text, Contains("acc_job_state{state=\"running\"} 1\n"));
  CHECK_THAT(text, Contains("acc_job_state{state=\"waiting for nodes\"} 0\n"));
  CHECK_THAT(text, Contains("acc_worker_resident_memory_bytes{rank=\"4\"} 1048576\n"));
  CHECK_THAT(text, !Contains("rank=\"5\""));  // it has exited
  CHECK_THAT(text, Contains("acc_node_workers{state=\"exited\"} 1\n"));
  CHECK_THAT(text, Contains("acc_output_bytes_total 123456789012\n"));
  CHECK_THAT(text, !Contains("acc_rendezvous_connected"));  // a job on one node
}

TEST_CASE("heartbeats and goodput have figures, and a job without heartbeats none of ranks",
          "[agent][metrics]") {
  auto job = two_workers();
  CHECK_THAT(to_metrics(job), !Contains("acc_worker_step"));
  job.view.goodput = {Millis{100'000}, Millis{2'000}, Millis{8'000}, Millis{0}, false};
  job.view.workers[0].progress = control::WorkerView::Progress{1200, 0.5, std::nullopt, ""};
  auto text = to_metrics(job);
  CHECK_THAT(text, Contains("acc_worker_step{rank=\"4\"} 1200\n"));
  CHECK_THAT(text, Contains("acc_worker_heartbeat_age_seconds{rank=\"4\"} 0.5\n"));
  CHECK_THAT(text, !Contains("acc_worker_steps_per_second"));
  CHECK_THAT(text, Contains("acc_job_goodput_ratio 0.9\n"));
  CHECK_THAT(text, Contains("acc_job_lost_seconds_total{cause=\"waiting\"} 2\n"));
  CHECK_THAT(text, Contains("acc_job_lost_seconds_total{cause=\"restarts\"} 8\n"));
  CHECK_THAT(text, !Contains("lost_steps\""));  // unknown, which isn't 0
  job.view.workers[0].progress->steps_per_second = 3.5;
  job.view.workers[1].progress = job.view.workers[0].progress;  // it has exited
  job.view.goodput.knows_checkpoints = true;
  text = to_metrics(job);
  CHECK_THAT(text, Contains("acc_worker_steps_per_second{rank=\"4\"} 3.5\n"));
  CHECK_THAT(text, !Contains("rank=\"5\""));
  CHECK_THAT(text, Contains("acc_job_lost_seconds_total{cause=\"lost_steps\"} 0\n"));
}

TEST_CASE("a job whose name isn't UTF-8 made the page of all metrics unreadable",
          "[agent][metrics]") {
  MetricsText text;
  text.begin("acc_daemon_job_round").add({"caf\xe9 \xc3\xa9\n\"\\"}, 1);
  CHECK_THAT(text.take(), Catch::Contains("caf\xef\xbf\xbd \xc3\xa9\\n\\\"\\\\"));
}

TEST_CASE("a label has few values: a path isn't one", "[agent][metrics]") {
  auto job = two_workers();
  job.losses = {{"log files in /a/b", "full", 10, 2, {}}, {"stdout", "gone", 5, 1, {}}};
  const auto text = to_metrics(job);
  CHECK_THAT(text, Contains("acc_output_dropped_bytes_total{destination=\"log_files\"} 10\n"));
  CHECK_THAT(text, Contains("acc_output_dropped_lines_total{destination=\"stdout\"} 1\n"));
}

TEST_CASE("the server answers GET /metrics and refuses all else", "[agent][metrics]") {
  boost::asio::io_context io;
  MetricsServer server{io, [] { return std::string{"acc_build_info 1\n"}; }};
  const auto url = server.listen("127.0.0.1", 0);
  REQUIRE(url);
  CHECK_THAT(*url, StartsWith("http://127.0.0.1:"));
  const auto port = static_cast<std::uint16_t>(std::stoul(url->substr(url->rfind(':') + 1)));
  std::thread loop{[&] { io.run(); }};
  CHECK_THAT(ask(port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
             StartsWith("HTTP/1.1 200 OK\r\n") && Contains("\r\n\r\nacc_build_info 1\n") &&
                 Contains("text/plain; version=0.0.4"));
  CHECK_THAT(ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n"), !Contains("acc_build_info 1"));
  CHECK_THAT(ask(port, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  CHECK_THAT(ask(port, "POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  CHECK_THAT(ask(port, "\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  CHECK(ask(port, std::string(100'000, 'x')).empty());
  // Another user held all 16 connections, and said nothing.
  boost::asio::io_context of_clients;
  std::vector<boost::asio::ip::tcp::socket> silent;
  for (int i = 0; i < 20; ++i) {
    silent.emplace_back(of_clients);
    silent.back().connect({boost::asio::ip::address_v4::loopback(), port});
  }
  CHECK_THAT(ask(port, "GET /metrics HTTP/1.1\r\n\r\n"), Contains("acc_build_info 1"));
  io.stop();
  loop.join();
  boost::asio::io_context other;
  MetricsServer second{other, [] { return std::string{}; }};
  CHECK(second.listen("127.0.0.1", port).has_error());
  CHECK(second.listen("nonsense", 0).has_error());
}
