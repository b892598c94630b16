# The unit of configs/systemd under a real systemd, booted in namespaces; skips aloud without root or cgroup v2.
add_test(NAME "service: acc-launch@.service under a real systemd"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/service_test.sh $<TARGET_FILE:acc-launch>)
set_tests_properties("service: acc-launch@.service under a real systemd" PROPERTIES
  LABELS "integration;systemd" TIMEOUT 180 SKIP_RETURN_CODE 77)
add_test(NAME "service: acc-agent.service under a real systemd"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/agent_test.sh $<TARGET_FILE_DIR:acc-launch>)
add_test(NAME "service: the package acc is installed, upgraded under a job, removed and purged"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/package_test.sh ${CMAKE_BINARY_DIR})
set_tests_properties("service: acc-agent.service under a real systemd"
  "service: the package acc is installed, upgraded under a job, removed and purged"
  PROPERTIES LABELS "integration;systemd" TIMEOUT 180 SKIP_RETURN_CODE 77)
add_test(NAME "service: two machines are set up by the page and run one job"
  COMMAND ${CMAKE_CURRENT_LIST_DIR}/systemd/two_nodes_test.sh ${CMAKE_BINARY_DIR})
set_tests_properties("service: two machines are set up by the page and run one job" PROPERTIES
  LABELS "integration;systemd" TIMEOUT 300 PROCESSORS 2 SKIP_RETURN_CODE 77)
