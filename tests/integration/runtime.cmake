# Ranks of the runtime over several hosts.
add_executable(collectives_worker ${CMAKE_CURRENT_LIST_DIR}/collectives_worker.cpp)
target_link_libraries(collectives_worker PRIVATE acc_options acc::runtime)
target_link_options(collectives_worker PRIVATE -no-pie -static-libstdc++ -static-libgcc)
# C++ and C in one program.
add_executable(groups_worker ${CMAKE_CURRENT_LIST_DIR}/groups_worker.cpp)
target_link_libraries(groups_worker PRIVATE acc_options acc::runtime acc::c)
target_link_options(groups_worker PRIVATE -no-pie)
# Ranks that stop making progress, each in its own way.
add_executable(heartbeat_worker ${CMAKE_CURRENT_LIST_DIR}/heartbeat_worker.cpp)
target_link_libraries(heartbeat_worker PRIVATE acc_options acc::runtime)
target_link_options(heartbeat_worker PRIVATE -no-pie)
foreach(case OfTheRuntime Sections Python Stacks Watching SeveralNodes)
  acc_integration_test(hangs CASES ${case} BUSY TIMEOUT 600)
endforeach()
acc_integration_test(runtime_groups BUSY TIMEOUT 600)
foreach(case Launched Plain Faults)
  acc_integration_test(runtime_hosts CASES ${case} TIMEOUT 180)
endforeach()
