# The coordinator's part in etcd. Included by CMakeLists.txt; only etcd_http.cpp knows Beast, and only it and
# etcd_tls.cpp Asio's TLS.
acc_library(rendezvous_etcd
  SOURCES etcd_json.cpp etcd_base64.cpp etcd_refusal.cpp
    etcd_credentials.cpp etcd_tls.cpp etcd_http.cpp etcd_client.cpp etcd_leadership.cpp
  PUBLIC acc::rendezvous acc::rendezvous_private acc_asio
  PRIVATE nlohmann_json::nlohmann_json acc_openssl)
