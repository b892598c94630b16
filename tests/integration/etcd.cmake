# Leadership in Debian's real etcd. Exit code 77: skipped, as etcd isn't installed.
add_executable(etcd-leadership-test etcd_leadership_test.cpp etcd_server.cpp)
target_link_libraries(etcd-leadership-test PRIVATE acc_options acc::rendezvous_etcd acc::common Catch2::Catch2)
target_link_options(etcd-leadership-test PRIVATE -no-pie)
target_compile_options(etcd-leadership-test PRIVATE -O0)  # 30 s of compiling otherwise
add_test(NAME integration:etcd COMMAND etcd-leadership-test "~[timing]")
set_tests_properties(integration:etcd PROPERTIES LABELS integration TIMEOUT 180 COST 180
  SKIP_RETURN_CODE 77 ENVIRONMENT "ACC_TEST_SLACK=${ACC_TEST_SLACK}")
add_test(NAME integration:etcd-timing COMMAND etcd-leadership-test "[timing]")
set_tests_properties(integration:etcd-timing PROPERTIES LABELS "integration;timing" TIMEOUT 180 RUN_SERIAL ON
  SKIP_RETURN_CODE 77 ENVIRONMENT "ACC_TEST_SLACK=${ACC_TEST_SLACK}")

# Whole jobs that meet through it.
foreach(case OneHost SeveralHosts)
  acc_integration_test(etcd_nodes CASES ${case} TIMEOUT 480)
endforeach()
acc_integration_test(etcd_access TIMEOUT 600)
