# Each section of examples/README.md, run as it stands there.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(examples 01_hello_ranks 02_fashion_mnist 03_survive_a_crash 04_torchrun_line 05_cpp_worker
  07_c_api_python 08_fashion_mnist_cpp 09_early_stop_cpp 10_notebook 11_accelerate)
math(EXPR short "120 * ${ACC_TEST_LIMIT_FACTOR}")
math(EXPR long "600 * ${ACC_TEST_LIMIT_FACTOR}")  # those that train
foreach(example ${examples})
  set(name "example: ${example}")
  add_test(NAME ${name}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/examples_test.py $<TARGET_FILE:acc-launch> ${example})
  set_tests_properties(${name} PROPERTIES LABELS "integration;examples" TIMEOUT ${short} SKIP_RETURN_CODE 77
    ENVIRONMENT "ACC_TEST_LIMIT_FACTOR=${ACC_TEST_LIMIT_FACTOR}" ${acc_python_first})
endforeach()
# They train with a worker per core.
acc_computes("example: 08_fashion_mnist_cpp" 17)
acc_computes("example: 02_fashion_mnist" 12)
set_tests_properties("example: 08_fashion_mnist_cpp" PROPERTIES TIMEOUT ${long})
set_tests_properties("example: 02_fashion_mnist" PROPERTIES TIMEOUT ${long} LABELS "integration;examples;torch")
if(ACC_SANITIZE)  # Python loads the library, and a sanitizer wants its own first
  set_tests_properties("example: 07_c_api_python" PROPERTIES DISABLED ON)
endif()
if(ACC_SANITIZE MATCHES thread)  # its training takes more than ten minutes there
  set_tests_properties("example: 08_fashion_mnist_cpp" PROPERTIES DISABLED ON)
endif()
