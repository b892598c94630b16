# The daemon's HTTP API. Included by CMakeLists.txt; only the parsers know Beast.
acc_library(agent_json SOURCES json_text.cpp PUBLIC acc::common PRIVATE nlohmann_json::nlohmann_json)
acc_library(agent_http
  SOURCES http_message.cpp http_parser.cpp http_reply_parser.cpp http_quota.cpp quota_owners.cpp signal_loop.cpp http_stream.cpp http_connection.cpp http_socket_file.cpp http_server.cpp sse.cpp
    api_body.cpp api_json.cpp api_file_growth.cpp api_call.cpp api_rank_folders.cpp api_log_stream.cpp api_raw_log.cpp api_event_stream.cpp api_metrics.cpp api_routes.cpp
  PUBLIC acc::common acc::agent_accept
  PRIVATE acc::agent_json acc::agent_metrics acc::agent_output acc::log nlohmann_json::nlohmann_json)
# The daemons of other nodes: the TLS door, and the proxy.
acc_library(agent_peers
  SOURCES cluster_secret.cpp host_lookup.cpp peer_stream.cpp own_address.cpp reserved_ports.cpp peer_dial.cpp peer_door.cpp peer_exchange.cpp kept_peers.cpp listing_turns.cpp peer_greeting.cpp peer_api.cpp peer_proxy.cpp
  PUBLIC acc::agent_http acc::agent_peer_rules acc::rendezvous_net
  PRIVATE acc::agent_daemon acc::log)
# The door for browsers, with the status page: its files become a source.
set(page_files ${CMAKE_CURRENT_LIST_DIR}/page/index.html ${CMAKE_CURRENT_LIST_DIR}/page/style.css ${CMAKE_CURRENT_LIST_DIR}/page/app.js
  ${CMAKE_CURRENT_LIST_DIR}/page/api.js
  ${CMAKE_CURRENT_LIST_DIR}/page/log.js ${CMAKE_CURRENT_LIST_DIR}/page/parts.js ${CMAKE_CURRENT_LIST_DIR}/page/rounds.js ${CMAKE_CURRENT_LIST_DIR}/page/timeline.js ${CMAKE_CURRENT_LIST_DIR}/page/words.js
  ${CMAKE_CURRENT_LIST_DIR}/page/icon.svg)
set(page_source ${CMAKE_CURRENT_BINARY_DIR}/page_files.cpp)
add_custom_command(OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} "-DFILES=${page_files}" -DSOURCE=${page_source} -P ${CMAKE_CURRENT_LIST_DIR}/page/embed.cmake
  DEPENDS ${page_files} ${CMAKE_CURRENT_LIST_DIR}/page/embed.cmake
  VERBATIM)
acc_library(agent_loopback
  SOURCES access_token.cpp loopback_door.cpp status_page.cpp ${page_source}
  PUBLIC acc::agent_http acc::agent_peer_rules acc::rendezvous_net
  PRIVATE acc::agent_peers acc::log)
acc_library(agent_peer_rules SOURCES peer_rules.cpp peer_identity.cpp peer_check.cpp request_shares.cpp loopback_rules.cpp PUBLIC acc::common acc_asio)
acc_library(agent_settings SOURCES settings.cpp PUBLIC acc::common PRIVATE acc::agent_peer_rules nlohmann_json::nlohmann_json)
acc_library(agent_daemon_run SOURCES daemon.cpp connection_bounds.cpp startup_pages.cpp PUBLIC acc::agent_settings acc::agent_http PRIVATE acc::agent_loopback acc::agent_peers acc::agent acc::log)
acc_program(acc-agent SOURCES acc_agent_main.cpp start_jobs.cpp
  LIBRARIES acc::agent_daemon_run acc::agent_peers acc::agent_daemon acc::agent_settings acc::agent acc::log)
