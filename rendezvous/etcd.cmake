# The coordinator's part in etcd. Included by CMakeLists.txt; only etcd_http.cpp knows Beast.
acc_library(rendezvous_etcd
  SOURCES etcd_json.cpp etcd_base64.cpp etcd_refusal.cpp etcd_records.cpp
    etcd_http.cpp etcd_client.cpp etcd_leadership.cpp etcd_campaign.cpp etcd_tenure.cpp
  PUBLIC acc::common acc_asio
  PRIVATE nlohmann_json::nlohmann_json)
# One translation unit: GCC 12 at -O3 emits a coroutine that two of them share in pieces that the
# linker then can't match ("defined in discarded section").
set_target_properties(acc_rendezvous_etcd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
set_source_files_properties(etcd_json.cpp etcd_base64.cpp etcd_refusal.cpp etcd_records.cpp etcd_http.cpp etcd_client.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
