// Global memory: allocations that end at a page that cannot be touched, and stay unusable after they are freed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {

/** Bytes of the emulated card; and whether contexts, modules and the granules that allocations come in take theirs. */
void device_memory_card(size_t bytes, bool overhead);
size_t device_memory_total();
/** Bytes that were asked for and not freed. */
size_t device_memory_used();
size_t device_memory_free_bytes();
/** One context more, or fewer (-1); false if there is no room for it. */
bool device_memory_context(int change);
/** A module of so many bytes more, or fewer; false if there is no room for it. */
bool device_memory_module(long long change);
size_t device_memory_live();

/** Memory full of NaN, aligned to 16 bytes; 0 if the card has not that much left. */
uint64_t device_memory_allocate(size_t bytes);
/** False if this is not the start of a live allocation. */
bool device_memory_free(uint64_t address);
/** Whether all bytes lie in one live allocation. */
bool device_memory_contains(uint64_t address, size_t bytes);
/** Start and size of the live allocation that the address lies in; false if there is none. */
bool device_memory_range(uint64_t address, uint64_t* start, size_t* bytes);
/** Whether an allocation, live or freed, or one of its guard pages is mapped there. */
bool device_memory_maps(uintptr_t address);
/** Words for an address that a kernel should not have touched. */
std::string device_memory_describe(uintptr_t address);
/** Empty, or that something wrote behind the end of an allocation. */
std::string device_memory_check();

}  // namespace emu
