set(ACC_TEST_PACKAGES ${CMAKE_BINARY_DIR}/test_packages)

# The unit of configs/systemd under a real systemd, booted in namespaces; skips aloud without root or cgroup v2.
add_test(NAME "service: acc-launch@.service under a real systemd"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/service_test.sh $<TARGET_FILE:acc-launch>)
set_tests_properties("service: acc-launch@.service under a real systemd" PROPERTIES
  LABELS "integration;systemd" TIMEOUT 180 SKIP_RETURN_CODE 77 COST 500)
add_test(NAME "service: acc-agent.service under a real systemd"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/agent_test.sh $<TARGET_FILE_DIR:acc-launch>)
add_test(NAME "service: the package acc is installed, upgraded under a job, removed and purged"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/package_test.sh ${ACC_TEST_PACKAGES})
set_tests_properties("service: acc-agent.service under a real systemd"
  "service: the package acc is installed, upgraded under a job, removed and purged"
  PROPERTIES LABELS "integration;systemd" TIMEOUT 180 SKIP_RETURN_CODE 77 COST 500)
add_test(NAME "service: two machines are set up by the page and run one job"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/two_nodes_test.sh ${ACC_TEST_PACKAGES})
set_tests_properties("service: two machines are set up by the page and run one job" PROPERTIES
  LABELS "integration;systemd" TIMEOUT 300 SKIP_RETURN_CODE 77 COST 500)

# The packages are made once for all tests that install them.
add_test(NAME "package: the Debian packages are made"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/debian_packages.sh ${CMAKE_BINARY_DIR} ${ACC_TEST_PACKAGES})
set_tests_properties("package: the Debian packages are made" PROPERTIES
  LABELS "integration" TIMEOUT 360 SKIP_RETURN_CODE 77 FIXTURES_SETUP debian_packages COST 3000)
set_tests_properties("service: the package acc is installed, upgraded under a job, removed and purged"
  "service: two machines are set up by the page and run one job" integration:package
  PROPERTIES FIXTURES_REQUIRED debian_packages)
