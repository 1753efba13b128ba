/**
 * What lies below a GPU that is open: the driver that was found and its cards, JCuda's native
 * libraries, the compiled kernels that were packed with this jar, and the words in which kernels
 * are described. Nothing here knows {@code Gpu}.
 */
@NullMarked
package dev.loupe.cuda.driver;

import org.jspecify.annotations.NullMarked;
