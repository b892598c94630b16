# Included by CMakeLists.txt.
acc_unit_tests(etcd
  SOURCES etcd_json_test.cpp etcd_records_test.cpp etcd_tls_test.cpp leadership_test.cpp
  LIBRARIES acc::rendezvous_etcd acc::common acc_asio acc_openssl)
