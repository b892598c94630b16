#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

/// Single questions to this machine. Best effort: what can't be found out is absent, never an
/// error.
namespace acc::launcher {

struct Devices {
  std::string kind = "cuda";
  std::uint32_t count = 0;  ///< as torch.cuda.device_count(): CUDA_VISIBLE_DEVICES is heeded
};
Devices count_devices();
/// How many of this machine's devices CUDA_VISIBLE_DEVICES=list leaves. The CUDA runtime stops at
/// the first entry that names none.
[[nodiscard]] std::uint32_t visible_devices(std::string_view list, std::uint32_t cards);

std::vector<std::string> nvidia_names();
/// "550.54.15"; empty without a driver.
std::string nvidia_driver();
/// Compute capability 8.0 or more: asked of NVML where it can be loaded, else judged by the names.
bool nvidia_computes_bf16();

/// Cores, not hardware threads; at least 1.
std::uint32_t count_physical_cores();

/// What `hostname -f` finds in /etc/hosts, where Kubernetes writes it; else as the kernel knows it.
std::string full_host_name();
/// The longest name with a domain that a line of `hosts` (/etc/hosts) gives to this host; else
/// `name` itself.
std::string name_in_hosts(std::string_view hosts, const std::string& name);

/// Standard output of `program --version`, read for at most `limit`; then the program is killed.
std::string version_text(const std::string& program, std::chrono::milliseconds limit);
/// Runs `mpirun --version` for at most two seconds: openmpi, intel (any other), or empty.
std::string mpirun_kind();

/// Looks into the site-packages that belong to this interpreter, the user's, and where their .pth
/// files lead. Never runs Python.
bool has_module(const std::string& interpreter, std::string_view module);
/// False where the interpreter's packages can't be looked up, as it is no program of its own (a
/// shim of pyenv's), or has no such folder.
bool shows_packages(const std::string& interpreter);
/// From the package's dist-info, else its version.py (Debian's python3-torch), else its egg-info;
/// "0" if it is there without any of them; empty if it isn't there.
std::string installed_version(const std::string& interpreter, std::string_view package);
/// From its dist-info alone, as a package without a module of its own has it; empty: there is none.
std::string listed_version(const std::string& interpreter, std::string_view package);

/// The first of these paths, each below a folder of packages, that this interpreter has:
/// "nvidia/nccl/lib/libnccl.so.2" of a wheel. Empty: none.
std::string file_in_packages(const std::string& interpreter,
                             std::initializer_list<std::string_view> paths);

}  // namespace acc::launcher
