# What workers write: pipes in; console, journal, log files and memory out. Included by CMakeLists.txt after acc_asio.
acc_library(agent_output
  SOURCES output_hub.cpp output_hub_impl.cpp output_console.cpp output_outlet.cpp output_pump.cpp
    output_routes.cpp output_stream.cpp output_terminals.cpp pseudo_terminal.cpp drop_policy.cpp tail_buffer.cpp log_files.cpp
    run_folder.cpp sink.cpp sink_console.cpp sink_files.cpp journal.cpp
  PUBLIC acc::common
  PRIVATE acc::log acc_asio)
if(ACC_SANITIZE MATCHES "thread")
  # Asio's fences, which the sanitizer doesn't know; what they order is also ordered by the scheduler's mutex.
  target_compile_options(acc_agent_output PRIVATE -Wno-tsan)
endif()
