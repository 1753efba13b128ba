// Which kernels a module image holds. The emulator runs the registered C++ kernel of that name, but only if the image
// that the host loaded really contains it, is for a card like the pretended one, and not too new for the driver.
//
// A text that starts with "// emulated" stands for an image with every kernel, for tests without nvcc.
#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "driver.h"

namespace emu {

static const uint32_t FATBIN_MAGIC = 0xBA55ED50u;

static int number_after(const std::string& text, const char* what) {
  size_t at = text.find(what);
  return at == std::string::npos ? 0 : atoi(text.c_str() + at + strlen(what));
}

/** The newest PTX version, times 10, that a driver of this CUDA version compiles. */
static int newest_ptx(int driver_version) {
  int major = driver_version / 1000, minor = driver_version % 1000 / 10;
  switch (major) {
    case 10: return 60 + 3 + minor;                      // 10.0: 6.3
    case 11: return minor < 4 ? 70 + minor : 70 + minor;  // 11.0: 7.0 ... 11.8: 7.8
    case 12: return 80 + minor;                          // 12.0: 8.0
    default: return 90 + minor;                          // 13.0: 9.0
  }
}

static CUresult read_ptx(const char* text, Image* result) {
  if (!card.jit) return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  std::string ptx(text);
  result->bytes = ptx.size();
  size_t at = ptx.find(".version ");
  if (at == std::string::npos || ptx.find(".target ") == std::string::npos) return CUDA_ERROR_INVALID_PTX;
  double version = atof(ptx.c_str() + at + strlen(".version "));
  if (static_cast<int>(version * 10 + 0.5) > newest_ptx(card.driver_version)) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  int target = number_after(ptx, ".target sm_");
  if (target > card.compute_capability) return CUDA_ERROR_INVALID_PTX;
  for (size_t entry = ptx.find(".entry "); entry != std::string::npos; entry = ptx.find(".entry ", entry + 1)) {
    size_t start = entry + strlen(".entry "), end = start;
    while (isalnum(static_cast<unsigned char>(ptx[end])) || ptx[end] == '_') end++;
    result->kernels[ptx.substr(start, end - start)].architecture = target;
  }
  return CUDA_SUCCESS;
}

/** Calls f with the first three words, as many as there are, of each of an attribute's values in a section .nv.info. */
static void each_attribute(const char* info, size_t bytes, int attribute, const std::function<void(const uint32_t*)>& f) {
  for (size_t at = 0; at + 4 <= bytes;) {
    uint16_t size;
    memcpy(&size, info + at + 2, sizeof size);
    bool has_values = info[at] == 4;  // EIFMT_SVAL; other formats have their value in place of a size
    if (has_values && info[at + 1] == attribute) {
      uint32_t words[3] = {};
      memcpy(words, info + at + 4, std::min<size_t>(size, sizeof words));
      f(words);
    }
    at += has_values ? 4 + size : 4;
  }
}
const int MAX_THREADS = 0x05, REGISTERS = 0x2f;  // EIATTR_MAX_THREADS: x, y, z; EIATTR_REGCOUNT: symbol, number
const int RESERVED_SHARED = 1024;                // of each block, from sm_90 on, beside what the kernel asks for

const unsigned ONE_CARD = 0x800;                 // of an ELF header's flags

static CUresult read_cubin(const char* bytes, Image* result) {
  Elf64_Ehdr header;
  memcpy(&header, bytes, sizeof header);
  if (header.e_machine != EM_CUDA) return CUDA_ERROR_INVALID_IMAGE;
  // nvcc 13 writes ABI version 8 with the card in the second byte of the flags; such files need a driver of CUDA 13
  bool new_form = header.e_ident[EI_ABIVERSION] >= 8;
  if (new_form && card.driver_version < 13000) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  int target = (new_form ? header.e_flags >> 8 : header.e_flags) & 0xff;
  if (target / 10 != card.compute_capability / 10 || target > card.compute_capability) {
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  // of the old form: what PTX it was assembled from, and whether it may use what one card alone has (sm_90a)
  int compiled_for = new_form ? target : header.e_flags >> 16 & 0xff;
  if (!new_form && header.e_flags & ONE_CARD && target != card.compute_capability) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const char* sections = bytes + header.e_shoff;
  result->bytes = header.e_shoff + static_cast<size_t>(header.e_shnum) * header.e_shentsize;
  auto section = [&](int i) {
    Elf64_Shdr s;
    memcpy(&s, sections + static_cast<size_t>(i) * header.e_shentsize, sizeof s);
    return s;
  };
  const char* names = bytes + section(header.e_shstrndx).sh_offset;
  std::function<std::string(uint32_t)> symbol;
  for (int i = 0; i < header.e_shnum; i++) {
    const Elf64_Shdr s = section(i);
    if (s.sh_type != SHT_SYMTAB) continue;
    const char* texts = bytes + section(s.sh_link).sh_offset;
    symbol = [=](uint32_t n) {
      Elf64_Sym it;
      memcpy(&it, bytes + s.sh_offset + n * sizeof it, sizeof it);
      return std::string(texts + it.st_name);
    };
  }
  for (int i = 0; i < header.e_shnum; i++) {
    const Elf64_Shdr s = section(i);
    const char* name = names + s.sh_name;
    const char* content = bytes + s.sh_offset;
    if (!strncmp(name, ".text.", 6)) result->kernels[name + 6].architecture = compiled_for;
    if (!strcmp(name, ".nv.info")) {
      each_attribute(content, s.sh_size, REGISTERS, [&](const uint32_t* words) {
        result->kernels[symbol(words[0])].registers = static_cast<int>(words[1]);
      });
    }
    if (!strncmp(name, ".nv.info.", 9)) {
      each_attribute(content, s.sh_size, MAX_THREADS, [&](const uint32_t* words) {
        result->kernels[name + 9].max_threads = static_cast<int>(words[0] * words[1] * words[2]);
      });
    }
    if (!strncmp(name, ".nv.shared.", 11)) {
      result->kernels[name + 11].shared_bytes = static_cast<int>(s.sh_size) - (target >= 90 ? RESERVED_SHARED : 0);
    }
  }
  return CUDA_SUCCESS;
}

CUresult image_read(const void* image, Image* result) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  const char* bytes = static_cast<const char*>(image);
  uint32_t magic;
  memcpy(&magic, bytes, sizeof magic);
  if (!memcmp(bytes, ELFMAG, SELFMAG)) return read_cubin(bytes, result);
  if (magic == FATBIN_MAGIC) return CUDA_ERROR_NOT_SUPPORTED;  // Loupe ships cubins and PTX only
  if (!strncmp(bytes, "// emulated", 11)) {
    result->every_kernel = true;
    return CUDA_SUCCESS;
  }
  return strnlen(bytes, 64) < 64 ? CUDA_ERROR_INVALID_IMAGE : read_ptx(bytes, result);
}

}  // namespace emu
