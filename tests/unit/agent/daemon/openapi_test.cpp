// The description of the API against the code: what one of them has, the other has, too.
#include "agent/daemon/api_body.hpp"
#include "agent/daemon/api_json.hpp"
#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/peer_dial.hpp"
#include "common/text.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;
using nlohmann::json;
using Names = std::set<std::string>;

namespace {

json description() {
  std::ifstream file{ACC_OPENAPI};
  REQUIRE(file.good());
  return json::parse(file);
}

Names keys_of(const json& object) {
  Names names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

Names words(std::string_view text) {
  Names names;
  for (const auto& word : split(text, ' ')) {
    if (!word.empty()) names.insert(word);
  }
  return names;
}

const Route* route_of(const std::string& method, const std::string& path) {
  for (const auto& route : routes()) {
    if (route.method == method && route.path == path) return &route;
  }
  return nullptr;
}

Names properties(const json& api, const std::string& schema) {
  INFO("schema " << schema);
  return keys_of(api.at("components").at("schemas").at(schema).at("properties"));
}

Names written(const std::string& text) { return keys_of(json::parse(text)); }

}  // namespace

TEST_CASE("each route is described, with its statuses, query and body, and no other is",
          "[agent][http]") {
  const auto api = description();
  std::size_t described = 0;
  for (const auto& [path, methods] : api.at("paths").items()) {
    for (const auto& [method, operation] : methods.items()) {
      if (method == "parameters") continue;
      INFO(method << " " << path);
      ++described;
      const auto* route = route_of(to_upper(method), path);
      REQUIRE(route != nullptr);
      auto statuses = words(route->errors);
      for (const auto& one : words(kCommonErrors)) statuses.insert(one);
      statuses.insert(std::to_string(route->success));
      CHECK(keys_of(operation.at("responses")) == statuses);
      Names queries;
      for (const auto& parameter : operation.value("parameters", json::array())) {
        if (parameter.at("in") == "query") queries.insert(parameter.at("name"));
      }
      CHECK(queries == words(route->queries == kAnyQuery ? std::string_view{} : route->queries));
      const bool has_body = operation.contains("requestBody");
      CHECK(has_body == (route->body != BodyUse::none));
      if (has_body)
        CHECK(operation["requestBody"].value("required", false) ==
              (route->body == BodyUse::required));
      const bool has_parts = std::string{path}.find('{') != std::string::npos;
      CHECK(methods.contains("parameters") == has_parts);
      CHECK_FALSE(operation.value("summary", "").empty());
    }
  }
  CHECK(described == routes().size());
}

TEST_CASE("the described properties are those that are written and read", "[agent][http]") {
  const auto api = description();
  for (const auto& body : body_keys()) {
    Names keys;
    for (const auto key : body.keys) keys.insert(std::string{key});
    CHECK(properties(api, std::string{body.schema}) == keys);
  }
  JobRecord long_one;
  long_one.submission.edit().words = {std::string(kListedWordBytes + 1, 'x')};
  long_one.program = "serve.py";
  auto of_job = written(encode_job(JobRecord{}, {"{}", "{}"}));
  of_job.merge(written(encode_job(JobRecord{}, {"no JSON", "no JSON"})));
  of_job.merge(keys_of(json::parse(encode_jobs({long_one}))["jobs"][0]));
  CHECK(properties(api, "Job") == of_job);
  CHECK(properties(api, "Jobs") == written(encode_jobs({})));
  CHECK(properties(api, "Submitted") == written(encode_submitted("a")));
  CHECK(properties(api, "Node") == written(encode_node(NodeFacts{}, {})));
  CHECK(properties(api, "Event") == written(encode_event(JobEvent{})));
  CHECK(properties(api, "Events") == written(encode_events({})));
  CHECK(properties(api, "End") == written(encode_end(JobRecord{})));
  CHECK(properties(api, "Checked") == written(encode_check({})));
  CHECK(properties(api, "Nodes") == written(encode_nodes({})));
  Names node;
  for (const NodeAnswer& one : {NodeAnswer{"a", "{}", "", ""}, NodeAnswer{"b", "", "x", "y"}}) {
    for (const auto& key : keys_of(json::parse(encode_nodes({one}))["nodes"][0])) node.insert(key);
  }
  CHECK(properties(api, "ClusterNode") == node);
  CHECK(properties(api, "Error") == written(encode_error(400, "x", {"x"})));
}

TEST_CASE("each error status has a code of its own, and the description lists it",
          "[agent][http]") {
  const auto api = description();
  Names described;
  for (const auto& code : api["components"]["schemas"]["Error"]["properties"]["code"]["enum"])
    described.insert(code);
  // For doors with a token; and those that say more than their status.
  Names used = {"unauthorized", "no_secret", "no_such_user", "version_differs",
                std::string{kNodeFull}};
  for (const auto code : peer_error_codes()) used.insert(std::string{code});
  const auto add = [&](std::string_view statuses) {
    for (const auto& status : words(statuses)) {
      const std::string code{error_code_of(*parse_number<unsigned>(status))};
      if (!code.empty()) used.insert(code);  // of another node's reply, which may be none
    }
  };
  add(kCommonErrors);
  add("405");
  for (const auto& route : routes()) add(route.errors);
  CHECK(described == used);
}

TEST_CASE("every reference of the description leads somewhere", "[agent][http]") {
  const auto api = description();
  const std::function<void(const json&)> look = [&](const json& value) {
    if (value.is_object() && value.contains("$ref")) {
      const std::string at = value["$ref"];
      INFO(at);
      REQUIRE(at.starts_with("#"));
      CHECK(api.contains(json::json_pointer{at.substr(1)}));
    }
    if (value.is_structured()) {
      for (const auto& inner : value) look(inner);
    }
  };
  look(api);
}
