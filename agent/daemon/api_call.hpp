#pragma once

#include "agent/daemon/api_file_growth.hpp"
#include "agent/daemon/http_message.hpp"
#include "agent/daemon/jobs.hpp"
#include "agent/daemon/other_nodes.hpp"
#include "agent/daemon/token_issuer.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent::daemon {

/// What the handlers work with; lives as long as the server's loop.
struct ApiContext {
  Jobs& jobs;
  FileGrowth& growth;
  uid_t own = 0;                  ///< the daemon's user
  OtherNodes* nodes = nullptr;    ///< outlives the server; null: none can be asked
  TokenIssuer* tokens = nullptr;  ///< outlives the server; null: no door takes any
  /// Longest without a byte on a stream of events; page/api.js gives up after three times that.
  Millis event_silence{20'000};
  /// Of each user, requests that wait for a job's agent or hold what it said: some MiB each.
  /// Shared with replies that are still to be made.
  std::shared_ptr<std::map<uid_t, std::size_t>> asking =
      std::make_shared<std::map<uid_t, std::size_t>>();
  /// Of each user, its jobs' agents that are asked for metrics, by all requests together.
  std::shared_ptr<std::map<uid_t, std::size_t>> measured =
      std::make_shared<std::map<uid_t, std::size_t>>();
};

/// One of the requests of a user that may ask jobs' agents at once.
class Asking {
 public:
  Asking(ApiContext& api, uid_t uid);
  /// Of another count, with a limit of its own.
  Asking(std::shared_ptr<std::map<uid_t, std::size_t>> count, uid_t uid, std::size_t most);
  ~Asking();
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  [[nodiscard]] bool is_granted() const { return is_granted_; }

 private:
  std::shared_ptr<std::map<uid_t, std::size_t>> count_;
  uid_t uid_;
  bool is_granted_ = false;
};

/// One request, matched with its route and found well-formed: its body has a right type, its query
/// only names that the route knows.
struct ApiCall {
  Principal who;
  HttpRequest request;
  JobId id;  ///< {id} of the path

  /// Of the query; the first of that name.
  [[nodiscard]] std::optional<std::string_view> query(std::string_view name) const;
};

[[nodiscard]] HttpReply json_reply(unsigned status, std::string body);
[[nodiscard]] HttpReply refused(unsigned status, const std::string& what,
                                const std::vector<std::string>& complaints = {});
/// For who isn't granted Asking.
[[nodiscard]] HttpReply too_many_questions();
/// With a code that says more than the status.
[[nodiscard]] HttpReply refused_as(unsigned status, std::string_view code, const std::string& what);
/// 400 with all complaints.
[[nodiscard]] HttpReply refused(const std::vector<std::string>& complaints);
/// The answer to a failed call of Jobs. `bad_usage`: what that means for the route, 400 or 409.
[[nodiscard]] HttpReply failed(const Error& error, unsigned bad_usage);

}  // namespace acc::agent::daemon
