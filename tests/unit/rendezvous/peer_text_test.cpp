#include "rendezvous/peer_text.hpp"

#include "tests/unit/rendezvous/message_tools.hpp"
#include "tests/unit/rendezvous/sample_messages.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace acc;
using namespace acc::rendezvous;

namespace {

const std::string kEvil = "n2\x1b[31m\x1b]0;pwn\x07\xc2\x9bJ\xe2\x80\xae";

template <class M>
M received(const M& sent) {
  const auto frame = decode_of_peer(encode(kSampleEpoch, sent));
  REQUIRE(frame.has_value());
  return std::get<M>(frame->message);
}

bool is_safe(const std::string& text) {
  return !text.empty() && text.find_first_of("\x1b\x07") == std::string::npos &&
         text.find("\xc2\x9b") == std::string::npos &&
         text.find("\xe2\x80\xae") == std::string::npos;
}

}  // namespace

TEST_CASE("a node's name with an escape sequence coloured the terminals of all other nodes",
          "[rendezvous]") {
  Join join;
  join.node.name = join.host = join.address = kEvil + "\n";
  join.facts = {{"script", kEvil, 1}};
  const auto joined = received(join);
  CHECK(joined.node.name == "n2\\x1b[31m\\x1b]0;pwn\\x07\\xc2\\x9bJ\\xe2\\x80\\xae\\x0a");
  CHECK(joined.host == joined.node.name);
  CHECK(is_safe(joined.facts.at(0).value));
  Failure failure;
  failure.node = failure.host = failure.cause = failure.log_path = failure.last_lines =
      failure.stacks_path = failure.no_restart = kEvil;
  const auto failed = received(WorkerFailed{failure}).failure;
  for (const auto& text : {failed.node, failed.host, failed.cause, failed.log_path,
                           failed.stacks_path, failed.no_restart})
    CHECK(is_safe(text));
  CHECK(failed.last_lines == kEvil);  // output is shown safely, and is kept in JSON as it was
  Close close;
  close.reason = "rank 3 on " + kEvil + " failed\nas before";
  close.first = failure;
  close.finished = {{kEvil, Rank{0}, 1}};
  const auto closed = received(close);
  CHECK(is_safe(closed.reason));
  CHECK(closed.reason.ends_with(" failed\nas before"));
  CHECK(is_safe(closed.first->node));
  CHECK(is_safe(closed.finished.at(0).node));
  Table table;
  table.rows = {{kEvil, kEvil, kEvil, Rank{0}, 1}};
  const auto row = received(table).rows.at(0);
  for (const auto& text : {row.node, row.host, row.address}) CHECK(is_safe(text));
  CHECK(is_safe(received(Notice{kEvil}).text));
  CHECK(is_safe(received(Leave{kEvil}).why));
  Welcome welcome;
  welcome.coordinator = kEvil;
  CHECK(is_safe(received(welcome).coordinator));
  Refused refused;
  refused.what = kEvil;
  CHECK(is_safe(received(refused).what));
  Assigned assigned;
  assigned.reason = kEvil;
  CHECK(is_safe(received(assigned).reason));
  Stop stop;
  stop.by = stop.reason = kEvil;
  CHECK(is_safe(received(stop).by));
  CHECK(is_safe(received(stop).reason));
  CHECK(is_safe(received(RestartReply{kEvil}).why_not));
}

TEST_CASE("names and texts that a terminal shows arrive as they were sent", "[rendezvous]") {
  for (const auto* name : {"n2", "knoten-ä", "节点", "a.b@ns-1", "it's"}) {
    Join join;
    join.node.name = name;
    CHECK(received(join).node.name == name);
    CHECK(received(Notice{name}).text == name);
  }
  CHECK(decode_of_peer("").has_error());
}
