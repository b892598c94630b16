# What workers say to their agent: the unix socket, and the key-value store of a job on one node.
acc_library(agent_accept SOURCES accept_loop.cpp PUBLIC acc::common acc_asio PRIVATE acc::log)
acc_library(agent_workers
  SOURCES worker_server.cpp worker_connection.cpp local_store.cpp pmi_session.cpp pmi_server.cpp
  PUBLIC acc::common acc::rendezvous acc::agent_accept
  PRIVATE acc::log acc_asio)
if(ACC_SANITIZE MATCHES "thread")
  target_compile_options(acc_agent_workers PRIVATE -Wno-tsan)
endif()
