#include "agent/pmi_session.hpp"

#include "common/fnv.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <utility>

namespace acc::agent::pmi {

using rendezvous::KvReply;
using rendezvous::KvRequest;
using Op = KvRequest::Op;

namespace {

constexpr std::size_t kMaxSpaceName = 256;
constexpr std::size_t kMaxKeyName = 128;  // with our prefix within the store's limit
constexpr std::size_t kMaxValue = 1024;
constexpr std::string_view kMappingKey = "PMI_process_mapping";
// A rank may compute for days while the others wait for it in MPI_Finalize. The wait is asked anew
// when it runs out and ends with the round at the latest.
constexpr Millis kBarrierWait = std::chrono::hours{24};

// Values hold no spaces: MPICH encodes what could have some.
std::string_view field(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const auto word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const auto equals = word.find('=');
    if (equals != std::string_view::npos && word.substr(0, equals) == name)
      return word.substr(equals + 1);
  }
  return {};
}

Write say(std::string text) { return {std::move(text) + "\n"}; }

Write outcome(std::string_view command, bool is_good, std::string_view why = "success") {
  return say("cmd=" + std::string{command} + " rc=" + (is_good ? "0" : "-1") +
             " msg=" + std::string{why});
}

const char* why_not(KvReply::Status status) {
  switch (status) {
    case KvReply::Status::missing:
      return "key_not_found";
    case KvReply::Status::too_big:
      return "value_too_long";
    case KvReply::Status::full:
      return "store_full";
    case KvReply::Status::wrong_round:
      return "round_over";
    default:
      return "refused";
  }
}

KvRequest request_of(Op op, std::string key) {
  KvRequest request;
  request.op = op;
  request.key = std::move(key);
  return request;
}

}  // namespace

std::string space_name(std::string_view job, Round round) {
  constexpr std::size_t kLongest = 128;
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  std::string name{job.substr(0, kLongest)};
  if (job.size() > kLongest || !std::ranges::all_of(job, is_plain)) {
    std::ranges::replace_if(name, std::not_fn(is_plain), '_');
    name += "-" + std::to_string(fnv1a(job));
  }
  return "acc_" + name + "_" + std::to_string(round.value());
}

Step Session::on_line(std::string_view line) {
  if (in_spawn_ || line.starts_with("mcmd=")) return spawn_line(line);
  const auto command = field(line, "cmd");
  if (command == "init") return begin(line);
  if (command == "get_maxes") {
    return say("cmd=maxes kvsname_max=" + std::to_string(kMaxSpaceName) + " keylen_max=" +
               std::to_string(kMaxKeyName) + " vallen_max=" + std::to_string(kMaxValue));
  }
  if (command == "get_appnum") return say("cmd=appnum appnum=0");
  if (command == "get_universe_size")
    return say("cmd=universe_size size=" + std::to_string(place_.world.value()));
  if (command == "get_my_kvsname") return say("cmd=my_kvsname kvsname=" + place_.space);
  if (command == "put") return put(line);
  if (command == "get") return get(line);
  if (command == "barrier_in") return barrier();
  if (command == "publish_name") return service(Question::publish, line);
  if (command == "lookup_name") return service(Question::lookup, line);
  if (command == "unpublish_name") return service(Question::unpublish, line);
  if (command == "finalize") return say("cmd=finalize_ack");
  if (command == "abort") return abort(line);
  return HangUp{"unknown PMI-1 command " + in_quotes(line, 80)};
}

// MPI_Abort waits to be killed, and would return if it weren't. Code 0 is a failure too.
Step Session::abort(std::string_view line) {
  const int code = parse_number<int>(field(line, "exitcode")).value_or(1) & 0xff;
  return Abort{code == 0 ? 1 : code};
}

Step Session::begin(std::string_view line) const {
  const bool is_ours = field(line, "pmi_version") == "1";
  return say(std::string{"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc="} +
             (is_ours ? "0" : "-1"));
}

Step Session::ask(Question question, KvRequest request) {
  asked_ = question;
  return AskStore{std::move(request)};
}

Step Session::put(std::string_view line) {
  const auto key = field(line, "key");
  const auto value = field(line, "value");
  if (field(line, "kvsname") != place_.space) return outcome("put_result", false, "unknown_kvsname");
  if (key.empty() || key.size() > kMaxKeyName) return outcome("put_result", false, "bad_key");
  if (value.size() > kMaxValue) return outcome("put_result", false, "value_too_long");
  auto request = request_of(Op::set, "pmi/" + std::string{key});
  request.value = value;
  return ask(Question::put, std::move(request));
}

Step Session::get(std::string_view line) {
  const auto key = field(line, "key");
  if (field(line, "kvsname") != place_.space) return outcome("get_result", false, "unknown_kvsname");
  if (key == kMappingKey) return AskTable{};
  if (key.empty() || key.size() > kMaxKeyName) return outcome("get_result", false, "bad_key");
  return ask(Question::get, request_of(Op::get, "pmi/" + std::string{key}));
}

// MPI_Publish_name and its sisters.
Step Session::service(Question question, std::string_view line) {
  const auto name = field(line, "service");
  if (name.empty() || name.size() > kMaxKeyName)
    return outcome(question == Question::lookup ? "lookup_result"
                   : question == Question::publish ? "publish_result"
                                                   : "unpublish_result",
                   false, "bad_service_name");
  auto request = request_of(question == Question::publish  ? Op::set
                            : question == Question::lookup ? Op::get
                                                           : Op::remove,
                            "pmi-service/" + std::string{name});
  if (question == Question::publish) request.value = field(line, "port");
  return ask(question, std::move(request));
}

Step Session::barrier() {
  auto request = request_of(Op::barrier, "pmi-barrier/" + std::to_string(barriers_));
  request.count = place_.world.value();
  request.timeout = kBarrierWait;
  return ask(Question::barrier, std::move(request));
}

// MPI_Comm_spawn: answered when the description of the last program is complete.
Step Session::spawn_line(std::string_view line) {
  in_spawn_ = line != "endcmd";
  if (line.starts_with("totspawns=")) spawns_total_ = line.substr(line.find('=') + 1);
  if (line.starts_with("spawnssofar=")) spawns_so_far_ = line.substr(line.find('=') + 1);
  if (in_spawn_ || spawns_so_far_ != spawns_total_) return Continue{};
  return outcome("spawn_result", false, "acc-launch_starts_no_further_processes");
}

Step Session::on_reply(const KvReply& reply) {
  const bool is_good = reply.status == KvReply::Status::ok;
  const auto* why = is_good ? "success" : why_not(reply.status);
  switch (std::exchange(asked_, Question::none)) {
    case Question::put:
      return outcome("put_result", is_good, why);
    case Question::get:
      if (!is_good) return outcome("get_result", false, why);
      return say("cmd=get_result rc=0 msg=success value=" + reply.value);
    case Question::publish:
      return outcome("publish_result", is_good, why);
    case Question::unpublish:
      return outcome("unpublish_result", is_good, why);
    case Question::lookup:
      if (!is_good) return outcome("lookup_result", false, why);
      return say("cmd=lookup_result rc=0 msg=success port=" + reply.value);
    case Question::barrier:
      if (reply.status == KvReply::Status::timed_out) return barrier();
      if (!is_good) return HangUp{std::string{"the barrier failed: "} + why};
      ++barriers_;
      return say("cmd=barrier_out");
    case Question::none:
      break;
  }
  return HangUp{"an answer without a question"};
}

Step Session::on_table(std::span<const rendezvous::TableRow> rows) const {
  return say("cmd=get_result rc=0 msg=success value=" + process_mapping(rows));
}

std::string process_mapping(std::span<const rendezvous::TableRow> rows) {
  std::string text = "(vector";
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i + 1;
    while (end < rows.size() && rows[end].ranks.count == rows[i].ranks.count) ++end;
    text += ",(" + std::to_string(i) + "," + std::to_string(end - i) + "," +
            std::to_string(rows[i].ranks.count) + ")";
    i = end;
  }
  return text + ")";
}

}  // namespace acc::agent::pmi
