package dev.loupe.kernels;

import jcuda.Pointer;

/** JCuda's pointer to native memory on the host, from an address. */
final class HostPointer extends Pointer {
  HostPointer(long address) {
    super(address);
  }
}
