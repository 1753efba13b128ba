package dev.loupe.cuda;

import jcuda.driver.CUdeviceptr;

/** JCuda's pointer to device memory, which can be moved and tells its address. */
final class DevicePointer extends CUdeviceptr {
  DevicePointer() {}

  private DevicePointer(DevicePointer from, long bytes) {
    super(from, bytes);
  }

  long address() {
    return getNativePointer() + getByteOffset();
  }

  DevicePointer plus(long bytes) {
    return bytes == 0 ? this : new DevicePointer(this, bytes);
  }
}
