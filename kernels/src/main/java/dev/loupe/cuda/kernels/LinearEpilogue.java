package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;

/** What a linear map's kernel does with x . W^T + b before it writes. */
public sealed interface LinearEpilogue {
  /** Where the rows go, [R, outputs]. */
  DeviceBuffer target();

  /**
   * out = f(x . W^T + b).
   *
   * @param out [R, outputs] in F32 or the element of x
   * @param activation f
   */
  record Output(DeviceBuffer out, KernelActivation activation) implements LinearEpilogue {
    @Override
    public DeviceBuffer target() {
      return out;
    }
  }

  /**
   * acc += x . W^T + b, added in f32.
   *
   * @param acc [R, outputs] F32
   */
  record Residual(DeviceBuffer acc) implements LinearEpilogue {
    @Override
    public DeviceBuffer target() {
      return acc;
    }
  }

  /**
   * qkv = x . W^T + b, outputs = 3 C, and the K and V parts of row r appended to a layer's cache at
   * (sequence[r], position[r]). A row whose sequence or position is none of the cache's goes to qkv
   * only.
   *
   * @param qkv [R, 3C] in F32 or the element of x: q, k and v, each H heads of D
   * @param keys of shape {@code cache}, in F32, F16 or BF16
   * @param values likewise, of the same element
   * @param sequence [R] I32
   * @param position [R] I32
   */
  record QkvAppend(
      DeviceBuffer qkv,
      DeviceBuffer keys,
      DeviceBuffer values,
      DeviceBuffer sequence,
      DeviceBuffer position,
      CacheShape cache)
      implements LinearEpilogue {
    @Override
    public DeviceBuffer target() {
      return qkv;
    }
  }
}
