package dev.loupe.cuda.driver;

import jcuda.Pointer;

/** JCuda's pointer to native memory on the host, from an address. */
public final class HostPointer extends Pointer {
  /** Points to an address of host memory. */
  public HostPointer(long address) {
    super(address);
  }
}
