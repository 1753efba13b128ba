package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;

/**
 * A layer norm of the rows that a linear map multiplies, which its kernel makes itself: to the bit
 * what {@link LayerNormKernels}' v3 makes.
 *
 * @param gamma [in] F32
 * @param beta [in] F32
 * @param eps added to the variance, more than 0
 */
public record InputNorm(DeviceBuffer gamma, DeviceBuffer beta, float eps) {}
