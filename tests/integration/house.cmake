find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME "house: a room includes only what it may know"
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/house_test.py ${PROJECT_SOURCE_DIR})
set_tests_properties("house: a room includes only what it may know" PROPERTIES LABELS "unit;house" TIMEOUT 180)
add_test(NAME "house: the documents say what is there"
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/docs_test.py)
set_tests_properties("house: the documents say what is there" PROPERTIES LABELS "unit;house;docs" TIMEOUT 180)
add_test(NAME "release: notes, digests, comparison and bill of materials" COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/release/release_test.py)
set_tests_properties("release: notes, digests, comparison and bill of materials" PROPERTIES LABELS "unit;release" TIMEOUT 180)
add_test(NAME "house: a run of all tests ends with what failed and why"
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/summary_test.py)
set_tests_properties("house: a run of all tests ends with what failed and why" PROPERTIES LABELS "unit;house" TIMEOUT 180)
add_test(NAME "house: what can't be installed leaves the scripts their way on"
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/setup_test.py)
set_tests_properties("house: what can't be installed leaves the scripts their way on" PROPERTIES LABELS "unit;house" TIMEOUT 60)
