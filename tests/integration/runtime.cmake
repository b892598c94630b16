# Ranks of the runtime over several hosts.
add_executable(collectives_worker ${CMAKE_CURRENT_LIST_DIR}/collectives_worker.cpp)
target_link_libraries(collectives_worker PRIVATE acc_options acc::runtime)
target_link_options(collectives_worker PRIVATE -no-pie -static-libstdc++ -static-libgcc)
foreach(case Launched Plain Faults)
  acc_integration_test(runtime_hosts CASES ${case} TIMEOUT 180)
endforeach()
