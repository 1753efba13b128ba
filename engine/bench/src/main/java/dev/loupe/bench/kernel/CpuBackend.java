package dev.loupe.bench.kernel;

import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;

/** What a candidate on the CPU computes with. Public, since its copies are of other packages. */
public interface CpuBackend extends AutoCloseable {
  /** For people: the vectors and threads. */
  String name();

  /** For what a run needs. */
  TensorArena arena();

  /**
   * Takes over a problem's inputs.
   *
   * @param arena for what it needs
   * @param out its outputs, in the order of {@link Problem#outputs}
   * @return what computes them, any number of times
   */
  Runnable kernel(Problem problem, TensorArena arena, Tensor out);

  /** Has all threads work for a moment, so that none sleeps when the time starts. */
  void wake();

  @Override
  void close();

  /**
   * The product's code in classes of its own, so that calls which plain loops and vectors share are
   * compiled for each alone, as in a process that has no other. In one set of classes, vectors of
   * 512 bits took half as long again at T=512 (6.7 ms, and 4.5 alone).
   *
   * @param bits of a vector: 128, 256 or 512; 0 for plain loops
   */
  static CpuBackend product(int threads, int bits, Precision precision) {
    try {
      Class<?> copy = new Copies().loadClass(ProductKernels.class.getName());
      return (CpuBackend)
          copy.getConstructor(int.class, int.class, Precision.class)
              .newInstance(threads, bits, precision);
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof RuntimeException cause) {
        throw cause;
      }
      if (e.getCause() instanceof Error cause) {
        throw cause;
      }
      throw new IllegalStateException(e);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Makes classes anew that hold arithmetic, and has all others from its parent. */
  final class Copies extends ClassLoader {
    private static final String ARITHMETIC = "dev.loupe.ops.cpu.";

    Copies() {
      super(CpuBackend.class.getClassLoader());
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      if (!name.startsWith(ARITHMETIC) && !name.startsWith(ProductKernels.class.getName())) {
        return super.loadClass(name, resolve);
      }
      synchronized (getClassLoadingLock(name)) {
        Class<?> own = findLoadedClass(name);
        return own == null ? copy(name) : own;
      }
    }

    private Class<?> copy(String name) throws ClassNotFoundException {
      try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
        if (in == null) {
          throw new ClassNotFoundException(name);
        }
        byte[] code = in.readAllBytes();
        return defineClass(name, code, 0, code.length);
      } catch (IOException e) {
        throw new ClassNotFoundException(name, e);
      }
    }
  }
}
