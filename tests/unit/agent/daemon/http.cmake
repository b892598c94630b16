# The daemon's HTTP API against jobs in memory. Included by CMakeLists.txt of the folder above.
acc_unit_tests(agent-http
  SOURCES daemon/http_parser_test.cpp daemon/quota_owners_test.cpp daemon/signal_loop_test.cpp daemon/daemon_stop_test.cpp daemon/connection_bounds_test.cpp daemon/sse_test.cpp daemon/api_json_test.cpp daemon/api_test.cpp daemon/log_stream_test.cpp
    daemon/openapi_test.cpp daemon/api_metrics_test.cpp daemon/settings_test.cpp daemon/peers_test.cpp daemon/peer_identity_test.cpp daemon/peer_check_test.cpp daemon/reserved_ports_test.cpp daemon/listing_turns_test.cpp daemon/kept_peers_test.cpp daemon/peer_dial_test.cpp daemon/raw_log_test.cpp daemon/loopback_test.cpp daemon/status_page_test.cpp
  LIBRARIES acc::agent_http acc::agent_loopback acc::agent_peers acc::agent_settings acc::agent_daemon_run acc::common acc_asio nlohmann_json::nlohmann_json)
target_compile_definitions(test-agent-http PRIVATE ACC_OPENAPI="${PROJECT_SOURCE_DIR}/configs/openapi/acc-agent.json")
target_include_directories(test-agent-http PRIVATE ${CMAKE_CURRENT_LIST_DIR})
