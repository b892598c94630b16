# fashion_mnist_cuda: the part of fashion_mnist that computes on GPUs. Without the CUDA toolkit there is none, and nothing else
# changes. CMAKE_CUDA_ARCHITECTURES says for which GPUs; by default A100 (8.0) and all newer ones, beyond H100 by way of PTX.
find_package(CUDAToolkit 12 QUIET)  # older ones can't do C++20
if(TARGET CUDA::cudart_static AND CUDAToolkit_NVCC_EXECUTABLE)
  if(NOT DEFINED CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})  # it needn't be on the PATH
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  enable_language(CUDA)
  # The CUDA runtime is a part of the program; cuBLAS is loaded by it.
  add_library(fashion_mnist_cuda OBJECT ${CMAKE_CURRENT_LIST_DIR}/cuda_model.cu ${CMAKE_CURRENT_LIST_DIR}/cublas.cpp)
  # Not linked to acc::runtime: in acc's own build that comes with options of the C++ compiler, which nvcc doesn't take.
  target_include_directories(fashion_mnist_cuda PRIVATE
    $<TARGET_PROPERTY:acc::runtime,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(fashion_mnist_cuda PUBLIC CUDA::cudart_static)
  target_compile_definitions(fashion_mnist_cuda INTERFACE EXAMPLE_WITH_CUDA)
  # C++20 by an option: the CMake of Debian 12 doesn't know that nvcc can do it.
  set_target_properties(fashion_mnist_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF CUDA_EXTENSIONS OFF)
  target_compile_options(fashion_mnist_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wshadow>)
else()
  message(STATUS "fashion_mnist: no CUDA toolkit (12 or later) here, it will train on the CPU alone")
endif()
